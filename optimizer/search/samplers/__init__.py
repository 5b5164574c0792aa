"""Register the samplers for `tune` by name. A new sampler is one module and one line here.

A sampler's module is imported when it is first used, because SciPy and Optuna take seconds to import and most
commands search nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from optimizer.search.samplers.base import Sampler, Trial

DEFAULT = "gp"
_PLACES = {
    "gp": ("gp", "GaussianProcessSampler"),
    "random": ("uniform", "RandomSampler"),
    "tpe": ("library", "TreeParzenSampler"),
    "optuna_gp": ("library", "OptunaGaussianProcessSampler"),
}


class _Samplers(Mapping[str, type[Sampler]]):
    """Map names to classes, imported at first access."""

    def __getitem__(self, name: str) -> type[Sampler]:
        module, kind = _PLACES[name]
        found: type[Sampler] = getattr(import_module(f"{__name__}.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


SAMPLERS: Mapping[str, type[Sampler]] = _Samplers()

__all__ = ["DEFAULT", "SAMPLERS", "Sampler", "Trial"]
