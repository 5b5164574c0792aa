"""Write an exported kernel in the layouts of other tools: Hugging Face `kernels`, and flashinfer-bench."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from runners.export.declaration import ExportError, arguments_of, covered, settled_text, sizes_of
from runners.export.package import Exported, module_files, plain, readme
from runners.problems.base import Argument, Role

# The newest layout that `kernels` 0.17 reads: a folder of Python per kind of device, for every version of torch.
VARIANTS = {"cpu": "torch-cpu", "cuda": "torch-cuda"}


def huggingface(kernel: Exported) -> dict[str, str]:
    """Return a repository for Hugging Face `kernels`, which `get_local_kernel` loads and the Hub serves.

    The module compiles at first use, so that one folder serves every version of torch.
    """
    device = kernel.declared["device"]
    variant = f"build/{VARIANTS[device]}"
    files = {f"{variant}/{path}": text for path, text in module_files(kernel).items()}
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:10]
    metadata = {
        "name": kernel.name.replace("_", "-").lower(),
        "id": f"_{kernel.name}_{device}_{digest}",
        "version": 1,
        "license": kernel.origin.licence or "unknown",
        "python-depends": [],
        "backend": {"type": device},
    }
    card = f"---\nlibrary_name: kernels\nlicense: {(kernel.origin.licence or 'unknown').lower()}\n---\n"
    return {"README.md": card + readme(kernel), f"{variant}/metadata.json": plain(metadata), **files}


def flashinfer(kernel: Exported) -> dict[str, str]:
    """Return a trace set for flashinfer-bench: definition, solution and one workload per measured case.

    The solution is Python that guards the kernel and builds it at first use, whatever its language.
    """
    definition = _definition(kernel)
    solution = _solution(kernel, definition["name"])
    where = f"{definition['op_type']}/{definition['name']}"
    workloads = "".join(json.dumps(line) + "\n" for line in _workloads(kernel, definition))
    return {
        f"definitions/{where}.json": plain(definition),
        f"solutions/{where}/{solution['name']}.json": plain(solution),
        f"workloads/{where}.jsonl": workloads,
    }


def _definition(kernel: Exported) -> dict[str, Any]:
    problem = kernel.problem
    arguments = arguments_of(problem)
    given = [a for a in arguments if a.role in (Role.INPUT, Role.SCALAR)]
    names = ", ".join(a.name for a in given)
    call = ", ".join(f"{a.name}={a.name}" for a in given)
    outputs = [a for a in arguments if a.role is Role.OUTPUT]
    tensors = [a for a in arguments if a.role in (Role.INPUT, Role.OUTPUT)]
    if strange := next((a for a in tensors if a.order != "row"), None):
        raise ExportError(f"flashinfer-bench has no layout for {strange.name}, which is column-major.")
    return {
        "name": kernel.name,
        "op_type": "captured" if kernel.calls else "custom",
        "axes": _axes(kernel, tensors),
        "inputs": {a.name: _tensor(a) for a in given},
        "outputs": {a.name: _tensor(a) for a in outputs},
        "reference": f"{problem.reference_source}\n\n\ndef run({names}):\n    return reference({call})\n",
        "description": problem.title,
    }


def _axes(kernel: Exported, tensors: list[Argument]) -> dict[str, Any]:
    """Return a variable axis for each named size, and a constant one for each extent that is computed."""
    arguments = arguments_of(kernel.problem)
    cases = [sizes_of(kernel.problem, arguments, case) for case in covered(kernel.problem, kernel.target)]
    from_inputs = {text for a in tensors if a.role is Role.INPUT for text in a.shape if text.isidentifier()}
    axes: dict[str, Any] = {}
    for argument in tensors:
        for text in argument.shape:
            values = {_extent(text, sizes) for sizes in cases}
            if text in from_inputs:
                axes[_axis(text)] = {"type": "var"}
            elif len(values) == 1:
                axes[_axis(text)] = {"type": "const", "value": values.pop()}
            else:
                raise ExportError(f"flashinfer-bench has no axis for {text!r} of {argument.name}: no input has it.")
    return axes


def _extent(text: str, sizes: dict[str, Any]) -> int:
    from runners.problems.expressions import evaluate

    return int(evaluate(text, sizes))


def _axis(text: str) -> str:
    return text if text.isidentifier() else f"n{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _tensor(argument: Argument) -> dict[str, Any]:
    shape = None if argument.role is Role.SCALAR else [_axis(text) for text in argument.shape]
    return {"shape": shape, "dtype": argument.dtype}


def _solution(kernel: Exported, definition: str) -> dict[str, Any]:
    files = {f"{kernel.name}/{path}": text for path, text in module_files(kernel).items() if text}
    entry = (
        f'"""Call the guarded kernel."""\n\nfrom .{kernel.name} import {kernel.name} as run\n\n__all__ = ["run"]\n'
    )
    digest = hashlib.sha256(settled_text(kernel.source).encode()).hexdigest()[:8]
    language = "triton" if kernel.source.language.value == "triton" else "python"
    return {
        "name": f"{kernel.name}_{kernel.source.language.value}_{digest}",
        "definition": definition,
        "author": kernel.origin.author or "unknown",
        "spec": {
            "language": language,
            "target_hardware": [kernel.target],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": False,
        },
        "sources": [{"path": path, "content": text} for path, text in {"main.py": entry, **files}.items()],
        "description": f"{kernel.problem.title}; guarded, with torch where it was not measured",
    }


def _workloads(kernel: Exported, definition: dict[str, Any]) -> list[dict[str, Any]]:
    arguments = arguments_of(kernel.problem)
    variable = [name for name, axis in definition["axes"].items() if axis["type"] == "var"]
    lines = []
    for case in covered(kernel.problem, kernel.target):
        sizes = sizes_of(kernel.problem, arguments, case)
        inputs = {
            name: {"type": "random"} if spec["shape"] is not None else {"type": "scalar", "value": sizes[name]}
            for name, spec in definition["inputs"].items()
        }
        workload = {
            "axes": {name: sizes[name] for name in variable},
            "inputs": inputs,
            "uuid": _uuid(kernel, case.name),
        }
        lines.append({"definition": kernel.name, "workload": workload})
    return lines


def _uuid(kernel: Exported, case: str) -> str:
    return hashlib.sha256(f"{kernel.bundle.content_hash} {case}".encode()).hexdigest()[:32]
