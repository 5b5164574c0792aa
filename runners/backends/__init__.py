"""Register the backends by language. A new language adds one module and one line here."""

from __future__ import annotations

from importlib import import_module

from runners.backends.base import Artefact, Backend, BuildRequest
from runners.job import Language

REGISTRY: dict[Language, str] = {
    Language.CPP: "runners.backends.cpp:CppBackend",
    Language.CUDA: "runners.backends.cuda:CudaBackend",
    Language.HIP: "runners.backends.hip:HipBackend",
    Language.TRITON: "runners.backends.triton:TritonBackend",
    Language.PYTHON: "runners.backends.triton:ModuleBackend",
}


def backend_for(language: Language) -> Backend:
    """Return the backend of a language, which is imported on first use. Raises KeyError if there is none."""
    module, name = REGISTRY[language].split(":")
    backend: Backend = getattr(import_module(module), name)()
    return backend


__all__ = ["REGISTRY", "Artefact", "Backend", "BuildRequest", "backend_for"]
