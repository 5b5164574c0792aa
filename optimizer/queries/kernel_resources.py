"""Compare the compiler's resource report of a kernel with its parent's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runners.job import BuildReport, KernelResources
from runners.static_features import LABELS as FEATURES

LABELS = {
    "vgpr": "Vector registers (VGPR)",
    "agpr": "Accumulation registers (AGPR)",
    "sgpr": "Scalar registers (SGPR)",
    "registers": "Registers",
    "lds_bytes": "LDS or shared memory, bytes",
    "scratch_bytes": "Scratch, bytes",
    "vgpr_spills": "Vector register spills",
    "sgpr_spills": "Scalar register spills",
    "occupancy": "Occupancy, waves per SIMD (NVIDIA: warps per SM)",
    "matrix_instructions": "Matrix instructions",
    "code_bytes": "Code, bytes",
}


@dataclass(frozen=True)
class ResourceFigure:
    """Hold one value and its change against the parent.

    `change` is None without a comparable parent, and for a number that did not change.
    """

    value: Any
    change: int | float | None = None


@dataclass(frozen=True)
class ResourceRow:
    """Hold one figure of the report, by device kernel."""

    label: str
    values: Sequence[ResourceFigure]


def resource_rows(build: BuildReport | None, parent: BuildReport | None) -> list[ResourceRow]:
    """Return the rows with at least one value."""
    pairs = pairs_of(build, parent)
    rows = [_row(text, [(getattr(one, name), old and getattr(old, name)) for one, old in pairs])
            for name, text in LABELS.items()]  # fmt: skip
    more = [(_more(one), _more(old) if old else {}) for one, old in pairs]
    rows += [
        _row(name.replace("_", " "), [(new.get(name), old.get(name)) for new, old in more])
        for name in dict.fromkeys(name for new, _ in more for name in new)
    ]
    return [row for row in rows if any(figure.value is not None for figure in row.values)]


def _more(kernel: KernelResources) -> dict[str, Any]:
    """Return what else is known of a kernel, one figure a row: constants of Triton, widths of vectors."""
    found: dict[str, Any] = {}
    # Constants come first: another figure of the same name replaces one.
    for name, value in sorted(kernel.extra.items(), key=lambda item: item[0] != "constants"):
        within = "" if name == "constants" else f"{name} "
        several = isinstance(value, Mapping)
        found |= {f"{within}{key}": one for key, one in value.items()} if several else {name: value}
    return found


def feature_rows(build: BuildReport | None, parent: BuildReport | None) -> list[ResourceRow]:
    """Return a row for each static feature that is not 0 in some kernel or in its parent."""
    pairs = [(one.features, old.features if old else {}) for one, old in pairs_of(build, parent)]
    rows = [
        (label, [(new.get(name), old.get(name)) for new, old in pairs])
        for name, label in FEATURES.items()
        if any(side.get(name) for pair in pairs for side in pair)
    ]
    return [_row(label, values) for label, values in rows]


def changed_features(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, str]:
    """Return the labels of the features that both sides have and that differ, by name, in the order of the labels."""
    both = old.keys() & new.keys()
    return {name: label for name, label in FEATURES.items() if name in both and not _alike(old[name], new[name])}


def _alike(one: float, other: float) -> bool:
    # Ratios of counts differ in their last digits only.
    return abs(one - other) <= 1e-6 * max(abs(one), abs(other), 1e-12)


def spilled_registers(kernels: Iterable[KernelResources]) -> int:
    """Return how many vector registers device kernels spill. NVIDIA's compiler tells bytes, of which each has four."""
    return sum((one.vgpr_spills or 0) + (one.spill_store_bytes or 0) // 4 for one in kernels)


def pairs_of(
    build: BuildReport | None, parent: BuildReport | None
) -> list[tuple[KernelResources, KernelResources | None]]:
    """Return each device kernel of a build with the parent's of the same name, None where there is none.

    Where each side has one kernel, they are a pair whatever their names, which may hold a template argument or a hash.
    """
    kernels, others = (one.kernels if one else [] for one in (build, parent))
    if len(kernels) == len(others) == 1:
        return [(kernels[0], others[0])]
    named = {other.name: other for other in others}
    return [(one, named.get(one.name)) for one in kernels]


def _row(label: str, values: Sequence[tuple[Any, Any]]) -> ResourceRow:
    return ResourceRow(label, [ResourceFigure(tidy(new), tidy(_change(new, old))) for new, old in values])


def tidy(value: Any) -> Any:
    """Return a figure as a page shows it: a whole number where it is one, else three digits."""
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else round(value, 3)


def _change(new: Any, old: Any) -> int | float | None:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (new, old))
    return (new - old) or None if numbers else None
