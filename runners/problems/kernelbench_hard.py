"""Run problems of kernelbench.com's "hard" benchmark.

A problem has a reference model, a list of shapes, tolerances by dtype, forbidden operations, and formulas for FLOPs
and bytes. `runners.problems.kernelbench_hard_task` reads it.

As in the benchmark's harness, every shape sets the reference module's variables, models are in evaluation mode, and a
candidate's `Model` (or `ModelNew`) must take the reference's state dict strictly. Numeric stress cases that scale
inputs become further input distributions; those that scale weights become hidden cases. Unlike there, inputs come
from secret seeds, and weights from a public one.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runners.job import ProblemBundle, Source
from runners.problems.base import CallInputs, CandidateSetup, Case, ProblemError, Purpose, Work, family_of
from runners.problems.expressions import evaluate
from runners.problems.forbidden import forbidden_in
from runners.problems.kernelbench import PUBLISHED, WEIGHT_SEED, KernelBenchProblem, drawn
from runners.problems.kernelbench_hard_task import ENTRY, FORMAT, REFERENCE
from runners.problems.structure import flatten
from runners.problems.tolerance import Tolerance

if TYPE_CHECKING:
    import torch

    from runners.problems.variants import VariantForm

# The key of a case's sizes that names a stress case which scales weights.
STRESS = "stress"
# The benchmark's own defaults by dtype.
_DEFAULTS = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2, "float8_e4m3fn": 0.1, "float8_e5m2": 0.1}
# Its names of the arithmetic, which choose the peak that a kernel is compared with.
_PEAK_DTYPES = {"fp8": "float8_e4m3fn", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "tf32": "float32"}
_FIELDS = {"title", "regime", "flops", "bytes", "peak", "forbidden", "tolerance", "shapes", "stress", "peaks"}
# Sizes of at least this many keep their remainder by it when they are reduced: kernels and references ask for tiles and
# groups, and a shape that is not aligned is meant to stay so.
_TILE = 128


class KernelBenchHardProblem(KernelBenchProblem):
    """Represent a problem as it was bundled. Raises ProblemError if the bundle is faulty."""

    format = FORMAT

    def __init__(self, bundle: ProblemBundle) -> None:
        self._task = _decoded(bundle)
        super().__init__(ProblemBundle(bundle.name, FORMAT, REFERENCE, bundle.files))
        self.title = self._task["title"]
        self._names = {size: name for shape in self._task["shapes"] for size, name in shape["names"].items()}
        self._stress = {case["name"]: case for case in self._task["stress"]}
        self._scaled_inputs = tuple(name for name, case in self._stress.items() if not case["state"])
        self.compares = self._selects
        self.has_variants = not self._stress
        self.judged_dtypes = tuple(self._task["tolerance"]) or self.judged_dtypes
        self.obstacles = self._missing_modules()
        self.description = self._described()

    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """Return a case for each shape, smallest first: as published for GPUs, reduced for a CPU.

        Hidden cases scale the weights.
        """
        of_shapes = self._reduced_shapes if family_of(target) == "cpu" else self._published_shapes
        if purpose is Purpose.HIDDEN:
            scaled = [name for name, case in self._stress.items() if case["state"]]
            return [self._hidden(case, name) for case in of_shapes for name in scaled]
        distributions = (PUBLISHED, *(self._scaled_inputs if purpose is Purpose.TEST else ()))
        return [Case(c.name, c.sizes, purpose, c.targets, distributions, c.reduced) for c in of_shapes]

    def tolerance(self, dtype: str) -> Tolerance:
        """Return the declared tolerance, or the benchmark's default for the dtype; integers must agree."""
        return self.tolerance_of(dtype, PUBLISHED)

    def tolerance_of(self, dtype: str, distribution: str) -> Tolerance:
        """Return the tolerance that a stress case declares, or else the problem's."""
        declared = {**self._task["tolerance"], **self._stress.get(distribution, {}).get("tolerance", {})}
        default = _DEFAULTS.get(dtype, _DEFAULTS["float32"] if "float" in dtype else 0.0)
        atol, rtol = declared.get(dtype, (default, default))
        return Tolerance(rtol, atol)

    def work(self, case: Case) -> Work:
        """Evaluate the declared formulas for a case."""
        sizes = {name: value for name, value in case.sizes.items() if name != STRESS}
        key = self._task["peak"]
        flops = float(evaluate(self._task["flops"], sizes))
        return Work({_PEAK_DTYPES.get(key, key): flops}, float(evaluate(self._task["bytes"], sizes)))

    @property
    def shape_names(self) -> list[str]:
        """Return the names of the shapes' cases on a GPU, in the order of shapes.py."""
        return [_name(shape["sizes"]) for shape in self._task["shapes"]]

    def peak_fraction(self, case: Case, time_us: float) -> float | None:
        """Return the share of the benchmark's peak that a call of that time reaches, or None if the peaks are not
        known.

        It is FLOP/s of a problem bound by compute, bytes/s of one bound by memory.
        """
        peaks, work = self._task["peaks"], self.work(case)
        if peaks is None or time_us <= 0:
            return None
        if self._task["regime"] == "memory":
            return float(work.bytes / (time_us * 1e-6) / (peaks["gb_s"] * 1e9))
        peak = peaks["tflops"].get(self._task["peak"])
        return float(sum(work.flops.values()) / (time_us * 1e-6) / (peak * 1e12)) if peak else None

    def complaints(self, source: Source) -> list[str]:
        """Name the forbidden operations that a candidate uses."""
        return [
            f"{name} is forbidden in {self.name}" for name in forbidden_in(source.text, self._task["forbidden"])
        ]

    def reference_as_candidate(self, target: str) -> str:
        """Return the reference as it is: a `Model` that takes its sizes as constructor arguments."""
        return self.reference_source

    def candidate_setup(self, case: Case) -> CandidateSetup:
        """Return the constructor arguments and the state dict, which a candidate must take strictly."""
        module, model = self._load(case)
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return CandidateSetup(init=flatten(module.get_init_inputs()), state=state, strict=True)

    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """Return get_inputs() drawn from the seed, scaled if the distribution is a stress case."""
        stress = self._stress.get(distribution)
        if stress is None:
            return super().make_inputs(case, seed, distribution)
        made = drawn(self._load(case)[0], seed)
        values = dict(made.values)
        for position, scale in stress["inputs"].items():
            values[position] = _scaled(values[position], scale)
        return CallInputs(values, made.structure)

    def distributions(self, case: Case) -> tuple[str, ...]:
        """Return the declared stress cases, or our own variants if none is declared."""
        return case.distributions if self._stress else super().distributions(case)

    def compare(self, inputs: CallInputs, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
        """Judge top-k problems, whose indices may differ for tied values; leave others to the referee."""
        if not self._selects:
            return None
        return selection_error(inputs, outputs, expected, self.tolerance("float32"))

    @cached_property
    def _selects(self) -> bool:
        return any(
            isinstance(node, ast.Assign) and ast.unparse(node) == "OP_TYPE = 'topk'" for node in self._tree.body
        )

    @cached_property
    def _published_shapes(self) -> list[Case]:
        shapes = [shape["sizes"] for shape in self._task["shapes"]]
        return self._sorted([Case(_name(s), dict(s), Purpose.TEST, ("gpu",)) for s in shapes])

    @cached_property
    def _reduced_shapes(self) -> list[Case]:
        cases: dict[str, Case] = {}
        for case in self._published_shapes:
            sizes = reduced(case.sizes)
            words = ", ".join(f"{n} {case.sizes[n]} → {v}" for n, v in sizes.items() if v != case.sizes[n])
            cases.setdefault(_name(sizes), Case(_name(sizes), sizes, Purpose.TEST, ("cpu",), reduced=words))
        return self._sorted(list(cases.values()))

    @cached_property
    def _reduced(self) -> Case:
        return self._reduced_shapes[0]

    @cached_property
    def _survived(self) -> dict[str, VariantForm]:
        return {} if self._stress else self._found_variants()

    def _sorted(self, cases: list[Case]) -> list[Case]:
        return sorted(cases, key=lambda case: self.work(case).bytes)

    @staticmethod
    def _hidden(case: Case, stress: str) -> Case:
        sizes = {**case.sizes, STRESS: stress}
        return Case(f"{case.name} {stress}", sizes, Purpose.HIDDEN, case.targets, (stress,), case.reduced)

    def _built(self, sizes: Mapping[str, Any]) -> tuple[ModuleType, Any]:
        """Run the reference, set its variables to a shape, and build its model in evaluation mode."""
        import torch

        module = ModuleType("reference")
        exec(compile(self._tree, REFERENCE, "exec"), module.__dict__)  # noqa: S102 - in the oracle only
        for size, value in sizes.items():
            if size != STRESS:
                setattr(module, self._names[size], value)
        torch.manual_seed(WEIGHT_SEED)
        model = module.Model(*module.get_init_inputs()).eval()
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for name, scale in self._stress.get(str(sizes.get(STRESS, "")), {}).get("state", {}).items():
            with torch.no_grad():
                named[name].copy_(_scaled(named[name], scale))
        return module, model

    def _missing_modules(self) -> tuple[str, ...]:
        """Name the packages that the reference imports and this machine lacks."""
        imported = [node for node in self._tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [
            n
            for i in imported
            for n in ([i.module] if isinstance(i, ast.ImportFrom) else [a.name for a in i.names])
        ]
        tops = dict.fromkeys(str(name).partition(".")[0] for name in names if name)
        lacking = [top for top in tops if importlib.util.find_spec(top) is None]
        return tuple(f"the reference imports {top}, which is not installed here" for top in lacking)

    def _described(self) -> str:
        forbidden = ", ".join(f"`{name}`" for name in self._task["forbidden"]) or "none"
        stress = f"Inputs or weights are also scaled: {', '.join(self._stress)}.\n" if self._stress else ""
        return (
            f"{self._model_docstring()}\n\nThe candidate defines `Model` (or `ModelNew`) with the constructor, the "
            "forward and exactly the parameters and buffers of the reference's `Model`; it is put into evaluation mode "
            f"and takes the reference's state dict strictly.\n\nForbidden operations: {forbidden}.\n{stress}"
        )


def reduced(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return a shape that a CPU computes in a moment: at most two tiles an extent, remainders kept."""
    return {name: value if value < 2 * _TILE else _TILE + value % _TILE for name, value in sizes.items()}


def selection_error(
    inputs: CallInputs, outputs: list[torch.Tensor], expected: list[torch.Tensor], tolerance: Tolerance
) -> str:
    """Check (values, indices) of a top-k along the last axis.

    The values must be right, and the indices different ones that select these values. The choice among equal elements
    is free.
    """
    import torch

    from runners.problems.compare import compare

    source = next(iter(inputs.values.values()))
    (values, indices), wanted = outputs, expected[0]
    if found := compare(values, wanted, tolerance).error:
        return f"output 0: {found}"
    places = indices.to(torch.int64)
    outside = int(((places < 0) | (places >= source.shape[-1])).sum())
    if outside:
        return f"output 1: {outside} of {places.numel()} indices are outside 0…{source.shape[-1] - 1}"
    ordered = places.sort(dim=-1).values
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        return "output 1: an index is selected twice"
    if found := compare(source.gather(-1, places), wanted, tolerance).error:
        return f"output 1: the indices select other values: {found}"
    return ""


def _decoded(bundle: ProblemBundle) -> dict[str, Any]:
    try:
        task = json.loads(bundle.files[ENTRY])
        missing = _FIELDS - set(task)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ProblemError([f"{ENTRY}: missing or not JSON"]) from error
    if missing:
        raise ProblemError([f"{ENTRY}: no {name}" for name in sorted(missing)])
    return dict(task)


def _name(sizes: Mapping[str, int]) -> str:
    return "-".join(f"{name}{value}" for name, value in sizes.items())[:120]


def _scaled(value: torch.Tensor, scale: float) -> torch.Tensor:
    return (value.float() * scale).to(value.dtype)
