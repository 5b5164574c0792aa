"""Define which languages a target can run."""

from __future__ import annotations

from runners.job import Language

_BY_VENDOR = {
    "cpu": (Language.CPP, Language.PYTHON),
    "gfx": (Language.HIP, Language.TRITON, Language.PYTHON),
    "sm_": (Language.CUDA, Language.TRITON, Language.PYTHON),
}


def languages_for(target: str) -> tuple[Language, ...]:
    """Return the languages of a target key (cpu, gfx942-mi300x, sm_90-h100 …), preferred first; none if unknown."""
    return next((languages for prefix, languages in _BY_VENDOR.items() if target.startswith(prefix)), ())
