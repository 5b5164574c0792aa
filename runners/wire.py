"""Convert the dataclasses of `runners.job` to JSON and back, strictly.

Unknown, missing or ill-typed fields raise WireError, and so do nesting and numbers that no message of ours has: what
is read here is later stored, shown and sent on by code that must not fail for it. Texts are made storable on the way
out and in, since logs and messages of hostile programs may hold anything. Standard library only (see `runners.job`);
pydantic serves the same purpose on the optimizer's side.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union

T = TypeVar("T")

# A result nests five levels deep, its profile a few more. Deeper data would end a later recursion, not this one.
MOST_DEPTH = 64
# What a database column and every other JSON reader can hold.
MOST_INTEGER = (1 << 63) - 1


class WireError(ValueError):
    """Report that the bytes do not match the contract. The message names the field."""


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Return the JSON text of a contract dataclass. Texts are storable in it; NaN and infinities, which are not JSON,
    are null."""
    return json.dumps(_outgoing(to_plain(value)), indent=indent, allow_nan=False, ensure_ascii=False)


def loads(cls: type[T], text: str | bytes) -> T:
    """Parse JSON text into `cls`. Raises WireError."""
    try:
        # Python reads NaN and Infinity, which are not JSON and which no other reader accepts.
        plain = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    return from_plain(cls, _incoming(plain, cls.__name__, MOST_DEPTH))


def travels(plain: Any, most_depth: int = 8) -> bool:
    """Return whether plain data of a hostile program may be part of a message: neither nested deeply nor with numbers
    that no reader takes."""
    try:
        _incoming(plain, "", most_depth)
    except WireError:
        return False
    return True


def storable_text(text: str) -> str:
    """Return a text without NUL characters and lone surrogates, which neither files nor PostgreSQL take."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def to_plain(value: Any) -> Any:
    """Convert dataclasses to dicts, enums to values, tuples to lists; recursively."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(cls: type[T], plain: Any) -> T:
    """Build `cls` from decoded JSON. Raises WireError."""
    return typing.cast(T, _decode(cls, plain, cls.__name__))


def _outgoing(plain: Any) -> Any:
    """Make plain data of ours fit for every reader."""
    if isinstance(plain, str):
        return storable_text(plain)
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    if isinstance(plain, dict):
        return {storable_text(key): _outgoing(item) for key, item in plain.items()}
    return [_outgoing(item) for item in plain] if isinstance(plain, list) else plain


def _incoming(plain: Any, where: str, depth: int) -> Any:
    """Check plain data of others, and make its texts storable. Raises WireError."""
    if isinstance(plain, str):
        return storable_text(plain)
    if isinstance(plain, int) and abs(plain) > MOST_INTEGER:
        raise WireError(f"{where}: an integer of more than 64 bits")
    # JSON has no infinity, but 1e999 is read as one.
    if isinstance(plain, float) and not math.isfinite(plain):
        raise WireError(f"{where}: a number out of range")
    if isinstance(plain, list | dict) and depth == 0:
        raise WireError(f"{where}: nested more than {MOST_DEPTH} levels deep")
    if isinstance(plain, dict):
        return {storable_text(key): _incoming(item, where, depth - 1) for key, item in plain.items()}
    return [_incoming(item, where, depth - 1) for item in plain] if isinstance(plain, list) else plain


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _decode(expected: Any, plain: Any, where: str) -> Any:
    origin = typing.get_origin(expected)
    if expected is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _decode_union(typing.get_args(expected), plain, where)
    if origin in (list, tuple, dict):
        return _decode_container(origin, typing.get_args(expected), plain, where)
    if dataclasses.is_dataclass(expected):
        return _decode_dataclass(typing.cast(type, expected), plain, where)
    if _is_enum(expected):
        return _decode_enum(expected, plain, where)
    return _decode_scalar(expected, plain, where)


def _is_enum(expected: Any) -> bool:
    return isinstance(expected, type) and issubclass(expected, Enum)


def _decode_union(options: tuple[Any, ...], plain: Any, where: str) -> Any:
    if plain is None and type(None) in options:
        return None
    problems: list[str] = []
    # An enumeration is tried before `str`, which would accept every value of it.
    ranked = sorted(
        (o for o in options if o is not type(None)), key=lambda o: (not _is_enum(o), o is not type(plain))
    )
    for option in ranked:
        try:
            return _decode(option, plain, where)
        except WireError as error:
            problems.append(str(error))
    raise WireError(problems[0])


def _decode_container(origin: Any, args: tuple[Any, ...], plain: Any, where: str) -> Any:
    if origin is dict:
        if not isinstance(plain, dict):
            raise WireError(f"{where}: expected an object, got {type(plain).__name__}")
        return {key: _decode(args[1], item, f"{where}.{key}") for key, item in plain.items()}
    if not isinstance(plain, list):
        raise WireError(f"{where}: expected a list, got {type(plain).__name__}")
    items = [_decode(args[0], item, f"{where}[{n}]") for n, item in enumerate(plain)]
    return items if origin is list else tuple(items)


def _decode_dataclass(cls: type, plain: Any, where: str) -> Any:
    if not isinstance(plain, dict):
        raise WireError(f"{where}: expected an object, got {type(plain).__name__}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(set(plain) - set(fields)):
        raise WireError(f"{where}: unknown field {unknown[0]!r}")
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in plain:
            raise WireError(f"{where}: missing field {name!r}")
    hints = _hints(cls)
    return cls(**{name: _decode(hints[name], item, f"{where}.{name}") for name, item in plain.items()})


def _decode_enum(cls: type[Enum], plain: Any, where: str) -> Enum:
    try:
        return cls(plain)
    except ValueError as error:
        raise WireError(f"{where}: {plain!r} is not one of {', '.join(str(m.value) for m in cls)}") from error


def _decode_scalar(expected: Any, plain: Any, where: str) -> Any:
    if expected is float and isinstance(plain, int) and not isinstance(plain, bool):
        try:
            return float(plain)
        except OverflowError as error:
            raise WireError(f"{where}: a number out of range") from error
    # Exactly: True would pass as an integer.
    if type(plain) is expected:
        return plain
    raise WireError(f"{where}: expected {expected.__name__}, got {type(plain).__name__}")
