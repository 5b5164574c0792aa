"""Samplers for `tune`, by name. Adding one touches a new module and a line here."""

from __future__ import annotations

from optimizer.search.samplers.base import Sampler, Trial
from optimizer.search.samplers.gp import GaussianProcessSampler
from optimizer.search.samplers.library import OptunaGaussianProcessSampler, TreeParzenSampler
from optimizer.search.samplers.uniform import RandomSampler

DEFAULT = GaussianProcessSampler.name
SAMPLERS: dict[str, type[Sampler]] = {
    sampler.name: sampler
    for sampler in (GaussianProcessSampler, RandomSampler, TreeParzenSampler, OptunaGaussianProcessSampler)
}

__all__ = ["DEFAULT", "SAMPLERS", "Sampler", "Trial"]
