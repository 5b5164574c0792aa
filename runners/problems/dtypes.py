"""List element types by torch's name, with their C names and sizes. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """Describe one element type.

    `c_name` is its type in the C signature of a CPU kernel. 16-bit and 8-bit floats travel as plain integers of their
    size, because C has no portable name for them.
    """

    c_name: str
    size_bytes: int
    floating: bool


ELEMENT_TYPES: dict[str, ElementType] = {
    "float64": ElementType("double", 8, True),
    "float32": ElementType("float", 4, True),
    # C has no portable name for these, so a kernel converts the bits itself.
    "float16": ElementType("uint16_t", 2, True),
    "bfloat16": ElementType("uint16_t", 2, True),
    "float8_e4m3fnuz": ElementType("uint8_t", 1, True),
    "float8_e4m3fn": ElementType("uint8_t", 1, True),
    "float8_e5m2fnuz": ElementType("uint8_t", 1, True),
    "float8_e5m2": ElementType("uint8_t", 1, True),
    "int64": ElementType("int64_t", 8, False),
    "int32": ElementType("int32_t", 4, False),
    "int16": ElementType("int16_t", 2, False),
    "int8": ElementType("int8_t", 1, False),
    "uint8": ElementType("uint8_t", 1, False),
    "bool": ElementType("bool", 1, False),
}
