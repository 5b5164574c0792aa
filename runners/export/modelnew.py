"""Write a kernel as one KernelBench file with `ModelNew`, guarded, in any language and for any problem it fits."""

from __future__ import annotations

import json

from runners.export.declaration import PYTHON, ExportError, check_exportable, declaration, settled_text
from runners.export.package import RUNTIME, Exported, filled
from runners.problems.base import Problem, Role, family_of


def modelnew(kernel: Exported) -> str:
    """Return the text of the file. Raises ExportError for a problem of another benchmark."""
    if kernel.problem.format == "native":
        return _of_native(kernel)
    if kernel.problem.format == "kernelbench":
        return _of_python(kernel) if kernel.source.language in PYTHON else _of_compiled(kernel)
    raise ExportError(f"{kernel.name} is a {kernel.problem.format} problem, which has no KernelBench form.")


def _of_native(kernel: Exported) -> str:
    """Return a whole KernelBench problem with its answer: our inputs become those of a model without weights."""
    declared = kernel.declared
    return filled(
        "modelnew_native.txt",
        KERNEL=_at_top(kernel),
        RUNTIME=_runtime(),
        SOURCE=_quoted(settled_text(kernel.source)),
        DECLARED=_quoted(json.dumps(declared, indent=1)),
        REFERENCE=_quoted(kernel.problem.reference_source),
        NAME=kernel.name,
    )


def _of_compiled(kernel: Exported) -> str:
    """Return the reference's file with a `ModelNew` that calls a C function with the model's weights."""
    problem = kernel.problem
    return filled(
        "modelnew_compiled.txt",
        MODEL=problem.reference_source.rstrip(),
        RUNTIME=_runtime(),
        SOURCE=_quoted(settled_text(kernel.source)),
        DECLARED=_quoted(json.dumps(declaration(problem, kernel.source, kernel.target, kernel.result), indent=1)),
        SOURCES=repr(_sources(problem)),
        NAME=kernel.name,
    )


def _of_python(kernel: Exported) -> str:
    """Return the kernel's module with its `ModelNew` in a guard, and the reference for what it does not cover."""
    check_exportable(kernel.problem, kernel.source, kernel.result)
    return filled(
        "modelnew_python.txt",
        KERNEL=settled_text(kernel.source).rstrip(),
        RUNTIME=_runtime(),
        REFERENCE=_quoted(kernel.problem.reference_source),
        DEVICE="cpu" if family_of(kernel.target) == "cpu" else "cuda",
        NAME=kernel.name,
    )


def _sources(problem: Problem) -> list[list[str]]:
    """Return where each tensor of the C function comes from: an input by its position, or an entry of the state."""
    found, inputs = [], 0
    for argument in problem.arguments:
        if argument.role is Role.SCALAR and argument.value:
            raise ExportError(
                f"{problem.name} takes the number {argument.name} in each call, which has no ModelNew yet."
            )
        if argument.role is Role.INPUT:
            found.append(["input", str(inputs)])
            inputs += 1
        elif argument.role is Role.PARAMETER:
            found.append(["state", argument.value_name])
    return found


def _at_top(kernel: Exported) -> str:
    """Return a Python kernel's text for the top of the file, since Triton reads its functions from there."""
    return settled_text(kernel.source).rstrip() if kernel.source.language in PYTHON else ""


def _runtime() -> str:
    """Return the runtime's modules as a Python literal: in modules of their own, their names collide with nothing."""
    texts = {name: (RUNTIME / f"{name}.py").read_text() for name in ("building", "kernel", "model")}
    return "{\n" + "".join(f"    {name!r}: {_quoted(text)},\n" for name, text in texts.items()) + "}"


def _quoted(text: str) -> str:
    """Return a Python literal of a text, in lines where that is safe."""
    safe = "'''" not in text and not text.endswith(("'", "\\")) and "\r" not in text
    return f"r'''{text}'''" if safe else repr(text)
