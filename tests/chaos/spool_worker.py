"""Run `python -m runners work-spool` with the sleeping evaluation, and less patience with the dead."""

from __future__ import annotations

import sys

import django

from runners.__main__ import main
from runners.commands import work_spool
from runners.dispatch import spool_source
from runners.dispatch.spool import Spool

ABANDONED_AFTER_S = 6.0


class HastySpool(Spool):
    """Take a worker for dead after seconds instead of minutes."""

    def put_back_abandoned(self, after_s: float = ABANDONED_AFTER_S) -> int:
        """See `Spool.put_back_abandoned`."""
        return super().put_back_abandoned(after_s)


if __name__ == "__main__":
    django.setup()
    from tests.chaos.backend import evaluate

    work_spool.Spool = HastySpool  # type: ignore[attr-defined]
    work_spool.evaluate = evaluate  # type: ignore[attr-defined]
    work_spool.POLL_S = 0.3
    spool_source.BEAT_S = 1.0
    sys.exit(main(["work-spool", *sys.argv[1:]]))
