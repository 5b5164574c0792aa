"""Write a kernel as a Python package that pip installs: operator, guards, reference, tests and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.export.declaration import PYTHON, ExportError, declaration, settled_text
from runners.export.provenance import Origin, in_words, provenance, table
from runners.job import JobResult, ProblemBundle, Source
from runners.problems import open_bundle
from runners.problems.base import Problem

RUNTIME = Path(__file__).parent / "runtime"
TEMPLATES = Path(__file__).parent / "templates"
CALLS = "calls.json"
# 2.6 made `register_fake` and `register_autograd` take a library of one's own.
TORCH = "torch>=2.6"


@dataclass(frozen=True)
class Exported:
    """Hold a kernel with everything that its exported files are made from."""

    problem: Problem
    bundle: ProblemBundle
    source: Source
    target: str
    result: JobResult | None
    origin: Origin

    @property
    def name(self) -> str:
        """Return the name of the package and its function."""
        return self.problem.name

    @property
    def declared(self) -> dict[str, Any]:
        """Return what the runtime needs to know. Raises ExportError."""
        return declaration(self.problem, self.source, self.target, self.result)

    @property
    def told(self) -> dict[str, Any]:
        """Return the provenance."""
        return provenance(self.bundle, self.source, self.target, self.result, self.origin)

    @property
    def calls(self) -> str | None:
        """Return the calls of a program that the problem was captured from, or None."""
        return self.bundle.files.get(CALLS)


def exported(
    bundle: ProblemBundle,
    source: Source,
    target: str,
    result: JobResult | None = None,
    origin: Origin | None = None,
) -> Exported:
    """Return a kernel that can be exported. Raises ProblemError for a faulty problem."""
    return Exported(open_bundle(bundle), bundle, source, target, result, origin or Origin())


def package(kernel: Exported) -> dict[str, str]:
    """Return the files of an installable package by path. Raises ExportError."""
    name = kernel.name
    inner = {f"src/{name}/{path}": text for path, text in module_files(kernel).items()}
    return {
        "pyproject.toml": _pyproject(kernel),
        "README.md": readme(kernel),
        **inner,
        f"tests/test_{name}.py": filled("test_package.txt", NAME=name),
    }


def module_files(kernel: Exported) -> dict[str, str]:
    """Return the files of the importable module alone, which other layouts put elsewhere. Raises ExportError.

    Only our own format is supported: the references of others need their benchmark's code around them.
    """
    if kernel.problem.format != "native":
        raise ExportError(
            f"{kernel.name} is a {kernel.problem.format} problem; packages are made of problems in our own format. "
            "Export it in the format of its benchmark."
        )
    source = kernel.source
    files = {
        "__init__.py": filled("package_init.txt", NAME=kernel.name, DOC=_sentence(kernel.problem.title)),
        "__main__.py": filled("package_main.txt", NAME=kernel.name),
        f"_kernel{source.language.suffix}": settled_text(source),
        "_reference.py": kernel.problem.reference_source,
        "declaration.json": plain(kernel.declared),
        "provenance.json": plain(kernel.told),
        **{f"_runtime/{path.name}": path.read_text() for path in sorted(RUNTIME.glob("*.py"))},
    }
    return files | ({CALLS: kernel.calls} if kernel.calls else {})


def readme(kernel: Exported) -> str:
    """Return a page for people: what it computes, what was measured, how to call it and when torch computes."""
    declared, told = kernel.declared, kernel.told
    given = ", ".join(a["name"] for a in declared["arguments"] if a["role"] in ("input", "scalar"))
    covered = "\n".join(f"- {case['name']}: {_shown(declared, case)}" for case in declared["cases"])
    return filled(
        "README.md",
        NAME=kernel.name,
        TITLE=_sentence(kernel.problem.title),
        GIVEN=given,
        MEASURED="\n\n".join(filter(None, [in_words(told), table(told)])),
        COVERED=covered,
        DEVICE={"cpu": "CPU", "cuda": "GPU"}[declared["device"]],
        BUILD=_how_built(declared),
        LICENCE=kernel.origin.licence or "not stated: ask the author before you pass it on",
        CAPTURED=filled("README_captured.md", NAME=kernel.name) if kernel.calls else "",
    )


def filled(template: str, **values: str) -> str:
    """Return a template's text with `@NAME@` replaced by values."""
    text = (TEMPLATES / template).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def plain(data: Mapping[str, Any]) -> str:
    """Return data as JSON for a file."""
    return json.dumps(data, indent=1, default=str) + "\n"


def _pyproject(kernel: Exported) -> str:
    licence = f"license = {json.dumps(kernel.origin.licence)}\n" if kernel.origin.licence else ""
    authors = f"authors = [{{ name = {json.dumps(kernel.origin.author)} }}]\n" if kernel.origin.author else ""
    needs = [TORCH, *(["triton"] if kernel.source.language.value == "triton" else [])]
    return filled(
        "pyproject.txt",
        NAME=kernel.name,
        VERSION=json.dumps(kernel.origin.version),
        DESCRIPTION=json.dumps(_sentence(kernel.problem.title), ensure_ascii=False),
        LICENCE=licence + authors,
        NEEDS=json.dumps(needs),
    )


def _sentence(title: str) -> str:
    """Return a title in one line that ends no string of the texts it is put into."""
    return " ".join(title.replace('"', "'").replace("\\", "/").split())[:120]


def _shown(declared: dict[str, Any], case: dict[str, Any]) -> str:
    given = [a for a in declared["arguments"] if a["role"] in ("input", "scalar")]
    pairs = zip(given, case["values"], strict=True)
    return ", ".join(f"{a['name']} {v['shape'] if isinstance(v, dict) else v}" for a, v in pairs)


def _how_built(declared: dict[str, Any]) -> str:
    if declared["language"] in tuple(PYTHON):
        return "Nothing is compiled ahead; Triton compiles at the first call."
    compiler = {"cpp": "a C++ compiler", "cuda": "nvcc", "hip": "hipcc"}[declared["language"]]
    return (
        f"The first covered call builds the library with {compiler} and keeps it in `~/.cache/exported-kernels`; "
        f"`python -m {declared['name']} build` does so ahead, beside the installed files."
    )
