"""Write the texts of a captured problem: reference.py, problem.toml and its description."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runners.capture.calls import Call, TensorNote
from runners.capture.extraction import Code
from runners.capture.samples import Sample, literal
from runners.program import IMPORTED

TOLERANCES = {
    "float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2,
    "float8_e4m3fn": 0.1, "float8_e4m3fnuz": 0.1, "float8_e5m2": 0.2, "float8_e5m2fnuz": 0.2,
}  # fmt: skip
PARTS = {True: "benchmark", False: "test"}


@dataclass(frozen=True)
class Draft:
    """Hold what a problem is written from: calls of equal arguments at several shapes, and code for each of them.

    `names` are those of inputs and state, `outputs` those of the results. `facts` are sentences for the description.
    """

    name: str
    calls: tuple[Call, ...]
    codes: tuple[Code, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    share: float
    program: str

    @property
    def first(self) -> Call:
        """Return the call that takes the most time."""
        return self.calls[0]

    @property
    def notes(self) -> tuple[TensorNote, ...]:
        """Return the descriptions of inputs and state of the first call."""
        return (*self.first.inputs, *self.first.state.values())


@dataclass(frozen=True)
class Checked:
    """Hold what running the reference showed: tolerances, input distributions, and whether float64 serves."""

    tolerances: dict[str, tuple[float, float]]
    distributions: tuple[str, ...]
    wide: bool


def reference_text(draft: Draft, *, wide: bool = True) -> str:
    """Return reference.py: the computation, inputs like the captured ones, and `expected` where float64 fails."""
    head = f'"""{draft.first.title} as {draft.program} calls it: captured, not written by hand."""\n'
    parts = [head + "\nimport base64\nimport math\nimport operator\nimport zlib\n\nimport torch\n", _data(draft)]
    parts.append(computation_text(draft))
    if not wide:
        given = ", ".join(draft.names)
        parts.append(
            f"def expected({given}):\n"
            '    """Compute in the reference\'s own precision: it does not run, or not alike, in float64."""\n'
            f"    return reference({given})\n"
        )
    return "\n\n".join([*parts, _FILL])


def seed_text(draft: Draft) -> str:
    """Return the reference as a first kernel."""
    given = ", ".join(draft.names)
    entry = f"def custom_kernel({given}):\n    return reference({given})\n"
    head = f'"""{draft.first.title} in torch, as captured."""\n\nimport math\nimport operator\n\nimport torch\n'
    return "\n\n".join([head, computation_text(draft), entry])


def computation_text(draft: Draft) -> str:
    """Return `reference` and what it calls. Calls whose code differs by shape are told apart by their shapes."""
    given = ", ".join(draft.names)
    distinct = list(dict.fromkeys(code.lines for code in draft.codes))
    functions = [
        f"def _compute_{number}({given}):\n    " + "\n    ".join(lines) + "\n"
        for number, lines in enumerate(distinct)
    ]
    any_shape = len(distinct) == 1 and all(code.any_shape for code in draft.codes)
    lines = [f'    """Return what {draft.first.title} returned, in the order of its memory."""']
    if not any_shape:
        chosen = {
            call.shapes: distinct.index(code.lines) for call, code in zip(draft.calls, draft.codes, strict=True)
        }
        functions.append(f"_AT = {chosen!r}\n")
        lines += [
            f"    shapes = tuple(tuple(tensor.shape) for tensor in ({given},))",
            "    if shapes not in _AT:",
            '        raise ValueError(f"captured at other shapes than {shapes}: the original computes these")',
        ]
    for name, note in zip(draft.names, draft.notes, strict=True):
        if note.order is not None and list(note.order) != sorted(note.order):
            lines.append(f"    {name} = {name}.permute({_inverse(note.order)})")
    called = (
        "_compute_0" if any_shape else f"({', '.join(f'_compute_{n}' for n in range(len(distinct)))},)[_AT[shapes]]"
    )
    if cast := draft.first.autocast:
        lines.append(f"    with torch.autocast({draft.names[0]}.device.type, dtype=torch.{cast}):")
    lines.append(f"    {'    ' if cast else ''}results = {called}({given})")
    stored = [f"results[{n}]{_stored(note)}" for n, note in enumerate(draft.first.outputs)]
    lines.append(f"    return {stored[0] if len(stored) == 1 else ', '.join(stored)}")
    return "\n\n".join([*functions, f"def reference({given}):\n" + "\n".join(lines) + "\n"])


def sizes_of(draft: Draft) -> tuple[dict[str, list[str]], list[dict[str, int]]]:
    """Return the shape of each argument in names of sizes, and the values of these names by call.

    Extents that are equal in every call share a name, because a kernel then needs only one of them.
    """
    named: dict[tuple[int, ...], str] = {}
    shapes: dict[str, list[str]] = {}
    tensors = [(*call.inputs, *call.state.values(), *call.outputs) for call in draft.calls]
    for position, name in enumerate((*draft.names, *draft.outputs)):
        stored = [notes[position].stored for notes in tensors]
        extents = list(zip(*stored, strict=True))
        shapes[name] = [named.setdefault(column, f"{name}_{axis}") for axis, column in enumerate(extents)]
    values = [{name: column[index] for column, name in named.items()} for index in range(len(draft.calls))]
    return shapes, values


def toml_text(draft: Draft, checked: Checked, benchmarks: Sequence[bool], flops: Sequence[float | None]) -> str:
    """Return problem.toml. `benchmarks` says which calls are timed, `flops` counts their products or is None."""
    shapes, values = sizes_of(draft)
    counted = all(count for count in flops)
    dtypes = {name: note.dtype for name, note in zip(draft.names, draft.notes, strict=True)}
    dtypes |= {name: note.dtype for name, note in zip(draft.outputs, draft.first.outputs, strict=True)}
    lines = [
        "format = 1",
        f"name = {_quoted(draft.name)}",
        f"title = {_quoted(f'{draft.first.title}, captured')}",
        f"symbol = {_quoted(draft.name)}",
        'languages = ["cpp", "hip", "cuda", "triton", "python"]',
        "",
        "[provenance]",
        f"captured_from = {_quoted(draft.program)}",
        f"share_of_time = {draft.share:.4f}",
        f"calls = {sum(call.count for call in draft.calls)}",
        *([f"autocast = {_quoted(draft.first.autocast)}"] if draft.first.autocast else []),
        "",
    ]
    for name in (*draft.names, *draft.outputs):
        role = "output" if name in draft.outputs else "input"
        lines += _argument(name, role, dtypes[name], shapes[name])
    used = dict.fromkeys(size for name in shapes for size in shapes[name])
    lines += [line for size in used for line in _argument(size, "size", "", [])]
    lines += ["[distributions]", 'own = ["captured"]', ""]
    for dtype, (rtol, atol) in checked.tolerances.items():
        lines += [f"[tolerances.{dtype}]", f"rtol = {rtol!r}", f"atol = {atol!r}", ""]
    if counted:
        lines += ["[work.flops]", f'{dtypes[draft.outputs[0]]} = "products"', ""]
    for index, call in enumerate(draft.calls):
        sizes = values[index] | ({"products": int(flops[index] or 0)} if counted else {})
        for purpose in ("test", *(["benchmark"] if benchmarks[index] else [])):
            lines += _case(
                f"{case_name(call, index)}{'_timed' * (purpose == 'benchmark')}", purpose, sizes, checked
            )
    lines += ["[[seeds]]", 'name = "reference"', 'title = "As captured"', 'language = "python"']
    return "\n".join([*lines, 'file = "seeds/reference.py"', ""])


def case_name(call: Call, index: int) -> str:
    """Return the name of a call's case: its number by time, and its first shape."""
    return f"{index}_{'x'.join(map(str, call.inputs[0].shape)) if call.inputs else 'state'}"


def description_text(draft: Draft, checked: Checked, left_out: Sequence[str]) -> str:
    """Return description.md: where it comes from, how often it is called, and how its inputs are made."""
    bound = 1 / (1 - min(draft.share, 0.9999))
    lines = [
        f"# {draft.first.title}",
        "",
        f"Captured from `{draft.program}`, where it takes {draft.share:.1%} of the time: at most {bound:.2f}× end to "
        "end if it were free.",
        "",
        "| case | calls | of its time | shapes |",
        "|---|---:|---:|---|",
    ]
    seconds = sum(call.seconds for call in draft.calls) or 1.0
    for index, call in enumerate(draft.calls):
        shapes = ", ".join("×".join(map(str, shape)) or "scalar" for shape in call.shapes)
        lines.append(f"| {case_name(call, index)} | {call.count} | {call.seconds / seconds:.0%} | {shapes} |")
    lines += [
        "",
        "Tensors are passed as they lie in memory, slowest axis first. `reference.py` has the computation:",
    ]
    lines += ["", "```python", computation_text(draft).strip(), "```", ""]
    lines.append(
        "Inputs of the distribution `captured` have the quantiles of those in the program; small integers are "
        "the program's own. Parameters of a module are inputs like all others."
    )
    if draft.first.autocast:
        lines.append(
            f"\nThe program calls this under `torch.autocast` to {draft.first.autocast}, and so does the reference. A "
            "kernel gets the inputs as the program passes them, and returns the declared type."
        )
    if not checked.wide:
        lines.append("\nThe reference does not run in float64, so results are compared with its own precision.")
    return "\n".join([*lines, *(f"\n{sentence}" for sentence in left_out), ""])


def calls_text(draft: Draft) -> str:
    """Return calls.json: which calls of the program a kernel of this problem replaces, and how."""
    first = draft.first
    calls = [_replaced(one) for call in draft.calls for one in (call, *call.also)]
    told = {"kind": first.kind, "path": first.path, "modules": _modules(draft), "calls": calls}
    return json.dumps(told, indent=1) + "\n"


def _modules(draft: Draft) -> list[str]:
    """Return the names under which the module of the class may be imported; a script has several."""
    module = draft.first.path.partition(":")[0]
    own = module in ("__main__", IMPORTED)
    return ["__main__", IMPORTED, draft.program.removesuffix(".py")] if own else [module]


def _replaced(call: Call) -> dict[str, Any]:
    arguments: list[dict[str, Any]] = [{"tensor": n, "order": _order(note)} for n, note in enumerate(call.inputs)]
    arguments += [{"state": name, "order": _order(note)} for name, note in call.state.items()]
    orders = [_order(note) or list(range(len(note.shape))) for note in call.outputs]
    return {"key": call.key, "arguments": arguments, "orders": orders, "result": call.result}


def _order(note: TensorNote) -> list[int] | None:
    return None if note.order is None else list(note.order)


def _argument(name: str, role: str, dtype: str, shape: Sequence[str]) -> list[str]:
    lines = ["[[arguments]]", f"name = {_quoted(name)}", f"role = {_quoted(role)}"]
    if dtype:
        lines += [f"dtype = {_quoted(dtype)}", f"shape = {json.dumps(list(shape))}"]
    return [*lines, ""]


def _case(name: str, purpose: str, sizes: dict[str, int], checked: Checked) -> list[str]:
    inner = ", ".join(f"{size} = {value}" for size, value in sizes.items())
    kinds = checked.distributions if purpose == "test" else checked.distributions[:1]
    return [
        "[[cases]]",
        f"name = {_quoted(name)}",
        f"purpose = {_quoted(purpose)}",
        f"sizes = {{ {inner} }}",
        f"distributions = {json.dumps(list(kinds))}",
        "",
    ]


def _data(draft: Draft) -> str:
    """Return what `fill_captured` draws from: one entry for each tensor, and its own values by case where kept."""
    _, values = sizes_of(draft)
    kept: dict[str, Any] = {}
    own: dict[str, dict[Any, Any]] = {}
    for call, sizes in zip(draft.calls, values, strict=True):
        notes = (*call.inputs, *call.state.values())
        for name, note, sample in zip(draft.names, notes, call.samples, strict=True):
            _keep(kept, own, name, note, sample, tuple(sorted(sizes.items())))
    shapes, _ = sizes_of(draft)
    told = {name: (note.dtype, shapes[name]) for name, note in zip(draft.names, draft.notes, strict=True)}
    return f"_ARGUMENTS = {told!r}\n_DRAWN = {kept!r}\n_OWN = {own!r}"


def _keep(
    kept: dict[str, Any], own: dict[str, dict[Any, Any]], name: str, note: TensorNote, sample: Sample, key: Any
) -> None:
    if sample.values:
        order = list(note.order) if note.order is not None else list(range(len(note.shape)))
        own.setdefault(name, {})[key] = (list(note.shape), order, literal(sample))
    kept.setdefault(name, list(sample.quantiles) or [sample.low, sample.high])


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(axis) for axis in range(len(order))]


def _stored(note: TensorNote) -> str:
    moved = note.order is not None and list(note.order) != sorted(note.order)
    return f".permute({list(note.order or ())}).contiguous()" if moved else ".contiguous()"


def _quoted(text: str) -> str:
    return json.dumps(text)


_FILL = '''def fill_captured(sizes, generator):
    """Draw inputs like the captured ones: by quantiles or ranges, or the captured values themselves."""
    products = {name: value for name, value in sizes.items() if name != "products"}
    key = tuple(sorted(products.items()))
    made = {}
    for name, (dtype, extents) in _ARGUMENTS.items():
        shape = [sizes[extent] for extent in extents]
        if key in _OWN.get(name, {}):
            made[name] = _own(*_OWN[name][key], getattr(torch, dtype))
        elif getattr(torch, dtype).is_floating_point:
            made[name] = _drawn(_DRAWN[name], shape, generator)
        else:
            low, high = _DRAWN[name]
            made[name] = torch.randint(low, high + 1, shape, generator=generator)
    return made


def _drawn(quantiles, shape, generator):
    """Draw by the inverse of the distribution function, which is linear between the quantiles."""
    levels = torch.tensor(quantiles)
    position = torch.rand(shape, generator=generator) * (len(quantiles) - 1)
    below = position.floor().clamp(max=len(quantiles) - 2)
    share = position - below
    below = below.long()
    return levels[below] * (1 - share) + levels[below + 1] * share


def _own(shape, order, text, dtype):
    """Return captured values, in the order of their memory."""
    data = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape).permute(order).contiguous()
'''
