"""Format log records for machines: one JSON object each (KERNELSCI_JSON_LOGS=1), with `run`, `job`, `call` if known."""

from __future__ import annotations

import datetime as dt
import json
import logging


class JsonFormatter(logging.Formatter):
    """Write `at` (UTC, ISO 8601), `level`, `logger`, `message`, `process`, the ids of
    `runners.log_context`, `error`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line. JSON escapes whatever a kernel or a model put into a message."""
        told: dict[str, object] = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            **getattr(record, "about", {}),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)
