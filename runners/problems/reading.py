"""Take typed fields out of a decoded TOML or JSON table, collecting faults instead of stopping at the first."""

from __future__ import annotations

from typing import Any


class FieldReader:
    """Read one table.

    Every fault goes to `complaints` as `file: where.key: what is wrong`. A faulty field reads as its default, so that
    reading goes on and all faults are named at once.
    """

    def __init__(self, table: Any, where: str, complaints: list[str]) -> None:
        self.where = where
        self.complaints = complaints
        self._left: dict[str, Any] = {}
        if isinstance(table, dict):
            self._left = dict(table)
        else:
            self.complain(f"expected a table, got {type(table).__name__}")

    def complain(self, message: str, key: str = "") -> None:
        """Note a fault of this table, or of its field `key`."""
        self.complaints.append(f"{self.where}{'.' + key if key else ''}: {message}")

    def take(self, key: str, kind: type | tuple[type, ...], default: Any = None, *, required: bool = False) -> Any:
        """Return the field if it exists and is of that kind, else `default`. A bool never counts as a number."""
        if key not in self._left:
            if required:
                self.complain("missing", key)
            return default
        value = self._left.pop(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.complain(f"expected {_kind_name(kind)}, got {value!r:.80}", key)
            return default
        return value

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Return a string field."""
        return str(self.take(key, str, default, required=required))

    def texts(self, key: str, default: tuple[str, ...] = (), *, required: bool = False) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self.take(key, list, None, required=required)
        if values is None:
            return default
        if not all(isinstance(value, str) for value in values):
            self.complain("expected a list of strings", key)
            return default
        return tuple(values)

    def number(self, key: str, default: float = 0.0, *, required: bool = False) -> float:
        """Return an integer or float field."""
        return float(self.take(key, (int, float), default, required=required))

    def choice(self, key: str, allowed: tuple[str, ...], default: str, *, required: bool = False) -> str:
        """Return a string field that must be one of `allowed`."""
        value = self.text(key, default, required=required)
        if value not in allowed:
            self.complain(f"{value!r} is not one of {', '.join(allowed)}", key)
            return default
        return value

    def table(self, key: str, *, required: bool = False) -> FieldReader:
        """Return a sub-table, empty if absent."""
        return FieldReader(self.take(key, dict, {}, required=required), f"{self.where}.{key}", self.complaints)

    def tables(self, key: str, *, required: bool = False) -> list[FieldReader]:
        """Return a list of tables; the messages name each one as `key[n]`."""
        values = self.take(key, list, [], required=required)
        return [FieldReader(v, f"{self.where}.{key}[{n}]", self.complaints) for n, v in enumerate(values)]

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def remaining(self) -> list[str]:
        """Return the fields that were not taken yet."""
        return list(self._left)

    def rest(self) -> dict[str, Any]:
        """Return what has not been taken yet; it counts as taken from here on."""
        rest, self._left = self._left, {}
        return rest

    def close(self) -> None:
        """Complain about every field that was not read."""
        for key in self._left:
            self.complain("unknown field", key)


def _kind_name(kind: type | tuple[type, ...]) -> str:
    names = {"str": "a string", "list": "a list", "dict": "a table", "int": "an integer", "float": "a number"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(names.get(k.__name__, k.__name__) for k in kinds)
