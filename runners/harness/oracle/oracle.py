"""Make inputs from secret seeds, compute what is expected, and judge output bytes.

The oracle runs in a process of its own (see `trusted`), in a sandbox of its own (see `confinement`). It shares the
reference buffers with the referee and nothing with any candidate. Inputs are written to the reference buffers and
passed to the reference as cloned views, so that no reference can change them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from runners.candidate.tensors import Arena, tensor_at
from runners.harness.oracle.parcel import Parcel
from runners.harness.oracle.protocol import Answer
from runners.harness.oracle.setups import write_setup
from runners.job import ProblemBundle
from runners.problems import open_bundle
from runners.problems.base import CallInputs, CandidateSetup, Case, Judging, Problem, TensorSpec
from runners.problems.compare import Comparison, compare, unexpected_special
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.footprint import footprint_of
from runners.problems.precision import PUBLISHED, VARIANT, as_close
from runners.problems.structure import StructureError
from runners.problems.tolerance import Loss
from runners.wire import from_plain, to_plain

# How much to compare at a time: the comparison's own result takes as much memory as what is compared.
PIECE_BYTES = 256 << 20
WORD_BYTES = 8
# How much to digest at a time, which takes three times as much memory.
DIGESTED_BYTES = 64 << 20
# An output this close to the reference's own result, as a share of what is permitted, needs no comparison in higher
# precision where the reference's own is known to stay within the rest.
CLOSE = 0.25
# Odd, so that the weights of neighbouring places differ in all bits (Knuth's multiplicative hashing).
_DIGEST_FACTOR = 0x9E3779B97F4A7C1


@dataclass
class Layout:
    """Hold what all contents of a case have in common, and what its reference showed when it was run once."""

    sizes: dict[str, Any]
    structure: Any
    inputs: list[dict[str, Any]]
    outputs: list[TensorSpec] | None = None
    written: list[str] = field(default_factory=list)


@dataclass
class Expectation:
    """Hold what is expected of a content, and what the reference itself loses (None until a norm is judged).

    `is_own` is true if the outputs are the reference's own.
    """

    content: int
    outputs: list[torch.Tensor]
    losses: list[Loss | None] | None = None
    is_own: bool = False
    judging: Judging = Judging.AS_EXPECTED

    @property
    def size_bytes(self) -> int:
        """Return the memory that the outputs take."""
        return sum(output.nbytes for output in self.outputs)


class Oracle:
    """Answer `open`, `setup`, `footprint`, `distributions`, `inputs`, `judge` and `forget`."""

    def __init__(self, reference_buffers: Arena) -> None:
        self._reference_buffers = reference_buffers
        self._problem: Problem
        self._contents: dict[int, tuple[Case, list[dict[str, Any]]]] = {}
        self._distributions: dict[int, str] = {}
        self._layouts: dict[str, Layout] = {}
        self._expected = self._own = Expectation(-1, [])
        # Whether the reference's own result may stand for the expected one, by case and distribution.
        self._own_serves: dict[tuple[str, str], bool] = {}
        # What the reference loses, by case and distribution, where its own result is what is expected.
        self._own_losses: dict[tuple[str, str], list[Loss | None]] = {}
        self._answers: dict[str, Answer] = {
            "open": self._open, "setup": self._setup, "inputs": self._inputs, "judge": self._judge,
            "forget": self._forget, "footprint": self._footprint, "distributions": self._usable,
        }  # fmt: skip
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Dispatch one question by its `op`."""
        if question["op"] == "inputs":
            numbers = range(question["first"], question["first"] + len(question["seeds"]))
            self._distributions.update(dict.fromkeys(numbers, question["distribution"]))
        return self._answers[question["op"]](question)

    def _open(self, question: dict[str, Any]) -> dict[str, Any]:
        self._problem = open_bundle(from_plain(ProblemBundle, question["bundle"]))
        return {}

    def _setup(self, question: dict[str, Any]) -> dict[str, Any]:
        """Write what candidates are given once to the descriptor that came with the question.

        Return the setups' names by case, none if candidates are given nothing, and the files' places. Every evaluation
        begins with it, and learns nothing from how the last one went.
        """
        self._own_serves.clear()
        self._own_losses.clear()
        names: dict[str, str] = {}
        with os.fdopen(question["descriptor"], "wb") as file:
            parcel = Parcel(file)
            for case in (from_plain(Case, plain) for plain in question["cases"]):
                setup = None if case.name in names else self._problem.candidate_setup(case)
                if setup is not None and setup != CandidateSetup():
                    names[case.name] = str(len(names))
                    write_setup(parcel, names[case.name], setup, self._problem.entry_point)
        return {"names": names, "entries": parcel.entries}

    def _footprint(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the bytes of a case's inputs, weights and outputs, or None if only running it tells."""
        found = footprint_of(self._problem, from_plain(Case, question["case"]))
        return {"footprint": None if found is None else to_plain(found)}

    def _usable(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the input distributions that a case is checked with."""
        return {"distributions": list(self._problem.distributions(from_plain(Case, question["case"])))}

    def _forget(self, question: dict[str, Any]) -> dict[str, Any]:
        self._contents.clear()
        self._distributions.clear()
        self._expected = self._own = Expectation(-1, [])
        return {}

    def _inputs(self, question: dict[str, Any]) -> dict[str, Any]:
        case = from_plain(Case, question["case"])
        offset, contents = question["offset"], []
        for number, seed in enumerate(question["seeds"], start=question["first"]):
            made = self._problem.make_inputs(case, seed, question["distribution"])
            values: list[dict[str, Any]] = []
            for name, value in made.values.items():
                described, offset = self._store(name, value, offset)
                values.append(described)
            self._contents[number] = (case, values)
            self._check_layout(case, made, values)
            contents.append(values)
        return {"contents": contents, "end": offset, **self._common(case, question["first"])}

    def _check_layout(self, case: Case, made: CallInputs, values: list[dict[str, Any]]) -> None:
        """Check that all contents of a case have the same layout. Raises StructureError."""
        inputs = [{key: value.get(key) for key in ("name", "dtype", "shape", "strides")} for value in values]
        layout = self._layouts.setdefault(case.name, Layout(case.sizes, made.structure, inputs))
        if layout.sizes != case.sizes:
            layout = self._layouts[case.name] = Layout(case.sizes, made.structure, inputs)
        if (layout.structure, layout.inputs) != (made.structure, inputs):
            raise StructureError(f"layouts of case {case.name} differ from seed to seed")

    def _common(self, case: Case, content: int) -> dict[str, Any]:
        """Return outputs and structure of a case, with the inputs that its reference writes to."""
        layout = self._layouts[case.name]
        if layout.outputs is None:
            layout.outputs, layout.written = self._outputs_of(case, content)
        return {"outputs": to_plain(layout.outputs), "written": layout.written, "structure": layout.structure}

    def _store(self, name: str, value: Any, offset: int) -> tuple[dict[str, Any], int]:
        if not isinstance(value, torch.Tensor):
            return {"name": name, "scalar": value}, offset
        spec = spec_of(value)
        size_bytes = storage_bytes(spec)
        offset = -(-offset // 256) * 256
        described = {"name": name, **to_plain(spec), "offset": offset, "size_bytes": size_bytes}
        tensor_at(self._reference_buffers, described, offset).copy_(value)
        return described, offset + size_bytes

    def _outputs_of(self, case: Case, content: int) -> tuple[list[TensorSpec], list[str]]:
        """Return the layouts of the outputs and the inputs that are written to, declared or found by running the
        reference."""
        declared = self._problem.outputs(case)
        if declared is not None:
            return list(declared), []
        inputs = self._restored(content)
        self._problem.prepare(case)
        specs = [spec_of(result.contiguous()) for result in self._problem.reference(inputs)]
        written = [
            name for name, value in inputs.values.items() if not alike(value, self._made_input(content, name))
        ]
        return specs, written

    def _restored(self, content: int) -> CallInputs:
        case, values = self._contents[content]
        made = {value["name"]: self._value(value) for value in values}
        return CallInputs(made, self._layouts[case.name].structure)

    def _made_input(self, content: int, name: str) -> Any:
        """Return one input as it was made."""
        return self._value(next(value for value in self._contents[content][1] if value["name"] == name))

    def _case_of(self, content: int) -> Case:
        return self._contents[content][0]

    def _value(self, value: dict[str, Any]) -> Any:
        if "scalar" in value:
            return value["scalar"]
        view = tensor_at(self._reference_buffers, value, value["offset"])
        return torch.empty_strided(view.shape, view.stride(), dtype=view.dtype).copy_(view)

    def _judge(self, question: dict[str, Any]) -> dict[str, Any]:
        """Compare outputs with what is expected of a content.

        Those of `timed` calls are right as well if they are close to the reference's own result, which takes a fraction
        of the time and memory. Only a comparison in full shows that the reference's own serves for that.
        """
        content = question["content"]
        outputs = [self._snapshot(spec) for spec in question["outputs"]]
        self._problem.prepare(self._case_of(content))
        if question.get("timed") and self._are_close(content, outputs):
            # Errors are figures against what is expected, which other calls have.
            return _plain(Comparison(None, 0.0, 0.0))
        compared = self._compared_with_expected(content, outputs)
        kind = self._kind_of(content)
        if kind not in self._own_serves and kind == self._timed_kind_of(content):
            self._own_serves[kind] = self._own_is_right(content)
        return compared

    def _are_close(self, content: int, outputs: list[torch.Tensor]) -> bool:
        """Return whether outputs are `CLOSE` to the reference's own, if that serves.

        It is not asked again in this evaluation once an output was not.
        """
        kind = self._kind_of(content)
        if not self._own_serves.get(kind, False):
            return False
        if self._own.content != content:
            self._own = Expectation(-1, [])  # frees the memory before the next takes its own
            results = self._problem.reference(self._restored(content))
            self._own = Expectation(content, results, [Loss(0.0, 0.0)] * len(results))
        if self._element_wise(outputs, self._own, share=CLOSE).error is None:
            return True
        self._own_serves[kind], self._own = False, Expectation(-1, [])
        return False

    def _own_is_right(self, content: int) -> bool:
        """Return whether the reference's own result on a content stays within what `CLOSE` leaves of the limits.

        Where what is expected has no higher precision, nothing is to be gained, and the answer is no.
        """
        expected = self._expectation(content)
        if self._problem.compares or expected.judging is not Judging.AS_EXPECTED:
            return False
        declared = self._layouts[self._case_of(content).name].outputs or []
        if all(dtype_name(exact) == spec.dtype for exact, spec in zip(expected.outputs, declared, strict=False)):
            return False
        results = self._problem.reference(self._restored(content))
        return self._element_wise(results, expected, share=1.0 - CLOSE).error is None

    def _kind_of(self, content: int) -> tuple[str, str]:
        return self._case_of(content).name, self._distributions[content]

    def _timed_kind_of(self, content: int) -> tuple[str, str]:
        """Return a case with its first distribution. Calls are timed with that alone."""
        case = self._case_of(content)
        return case.name, case.distributions[0]

    def _compared_with_expected(self, content: int, outputs: list[torch.Tensor]) -> dict[str, Any]:
        expected = self._expectation(content)
        if expected.judging is Judging.NOT_AT_ALL:
            return _plain(Comparison(None, 0.0, 0.0))
        own = None
        if self._problem.compares:
            own = self._problem.compare(self._restored(content), outputs, expected.outputs)
        compared = self._element_wise(outputs, expected, norms=own is None)
        if own is not None:
            compared = replace(compared, error=own or unexpected_special(outputs, expected.outputs))
        elif compared.error is not None and self._is_in_tf32(expected):
            compared = self._compared_in_full_precision(expected, outputs) or compared
        return _plain(compared)

    def _compared_in_full_precision(self, expected: Expectation, outputs: list[torch.Tensor]) -> Comparison | None:
        """Compare outputs that differ from what is expected with the reference's result without TF32.

        Return None if they are wrong by that as well, or if the reference is not in TF32.
        """
        content = expected.content
        own = expected.outputs if expected.is_own else self._problem.reference(self._restored(content))
        exact = self._problem.in_full_precision(self._restored(content))
        if exact is None or not len(outputs) == len(own) == len(exact):
            return None
        distribution = self._distributions[content]
        tolerances = [self._problem.tolerance_of(dtype_name(output), distribution) for output in outputs]
        leniency = VARIANT if self._problem.is_variant(distribution) else PUBLISHED
        return as_close(outputs, own, exact, tolerances, leniency)

    def _is_in_tf32(self, expected: Expectation) -> bool:
        """Return whether the reference may be in TF32, so that outputs can be compared with it in full precision.

        Its own result is expected on published inputs then, or it is steady on a variant only without TF32. Where it is
        not accurate on published inputs, no kernel in TF32 has to be on variants.
        """
        kind = self._kind_of(expected.content)
        if self._problem.is_variant(kind[1]):
            published = self._timed_kind_of(expected.content)
            return expected.judging is Judging.WITHOUT_TF32 or published in self._own_losses
        return kind in self._own_losses

    def _snapshot(self, spec: dict[str, Any]) -> torch.Tensor:
        return tensor_at(self._reference_buffers, spec, spec["offset"]).clone()

    def _expectation(self, content: int) -> Expectation:
        """Return the expected outputs. The last ones are kept, since several sides are judged on the same content."""
        if self._expected.content != content:
            self._expected = Expectation(-1, [])  # frees the memory before the next takes its own
            self._expected = self._new_expectation(content)
        return self._expected

    def _new_expectation(self, content: int) -> Expectation:
        """Return the expected outputs of a content.

        If an earlier content of the same case and distribution has shown in this evaluation that only the reference's
        own result can be expected, the run in higher precision is skipped. For a convolution on an H100 that run takes
        60 times as long as the reference.
        """
        kind = self._kind_of(content)
        if kind in self._own_losses:
            results = self._problem.reference(self._restored(content))
            return Expectation(content, results, self._own_losses[kind], is_own=True)
        outputs, restored = self._problem.expected(self._restored(content)), partial(self._restored, content)
        losses = self._problem.losses(restored, outputs)
        # With another distribution, each content has to show by itself whether its inputs are a test.
        judging = self._problem.judging(kind[1], restored)
        is_own = self._problem.expects_own_result
        if is_own and kind == self._timed_kind_of(content):
            self._own_losses[kind] = losses
        return Expectation(content, outputs, losses, is_own=is_own, judging=judging)

    def _element_wise(
        self, outputs: list[torch.Tensor], expected: Expectation, *, norms: bool = True, share: float = 1.0
    ) -> Comparison:
        """Compare every output, permitting a share of what is permitted. The complaint names the first that is
        wrong."""
        if len(outputs) != len(expected.outputs):
            return Comparison(f"{len(outputs)} outputs, expected {len(expected.outputs)}", 0.0, 0.0)
        losses = expected.losses or [None] * len(outputs)
        distribution = self._distributions[expected.content]
        results = []
        for output, exact, loss in zip(outputs, expected.outputs, losses, strict=True):
            tolerance = self._problem.tolerance_of(dtype_name(output), distribution)
            results.append(compare(output, exact, tolerance, loss, norms=norms, share=share))
        faulty = [(n, r.error) for n, r in enumerate(results) if r.error]
        prefix = f"output {faulty[0][0]}: " if faulty and len(results) > 1 else ""
        error = f"{prefix}{faulty[0][1]}" if faulty else None
        return Comparison(error, max(r.max_abs_error for r in results), max(r.max_rel_error for r in results))


def _plain(compared: Comparison) -> dict[str, Any]:
    return {
        "error": compared.error, "max_abs_error": compared.max_abs_error, "max_rel_error": compared.max_rel_error
    }  # fmt: skip


def dtype_name(tensor: torch.Tensor) -> str:
    """Return a dtype's name without the prefix: `float32` for torch.float32."""
    return str(tensor.dtype).removeprefix("torch.")


def alike(one: Any, two: Any) -> bool:
    """Return whether two values of an input are the same, bit by bit if they are tensors."""
    if not isinstance(one, torch.Tensor):
        return bool(one == two)
    if one.shape != two.shape or one.numel() == 0:
        return bool(one.shape == two.shape)
    bits = (value.contiguous().flatten().view(torch.uint8) for value in (one, two))
    return not bool(differs(*bits))


def differs(found: torch.Tensor, wanted: torch.Tensor | int) -> torch.Tensor:
    """Tell whether bytes differ from others or from one value, as a tensor on the device.

    `wanted` is as many bytes as there are, or the value (0 to 255) that each should have.
    """
    if not all(_begins_a_word(side) for side in (found, wanted) if isinstance(side, torch.Tensor)):
        return _any_differs(found, wanted)
    whole = len(found) // WORD_BYTES * WORD_BYTES
    if isinstance(wanted, torch.Tensor):
        words: torch.Tensor | int = wanted[:whole].view(torch.int64)
        rest: torch.Tensor | int = wanted[whole:]
    else:
        words, rest = int.from_bytes(bytes([wanted]) * WORD_BYTES, "little", signed=True), wanted
    return _any_differs(found[:whole].view(torch.int64), words) | _any_differs(found[whole:], rest)


def _begins_a_word(values: torch.Tensor) -> bool:
    """Return whether bytes begin where a word of 64 bits does. A GPU compares words several times as fast as bytes."""
    return values.storage_offset() % WORD_BYTES == 0 and values.data_ptr() % WORD_BYTES == 0


def _any_differs(found: torch.Tensor, wanted: torch.Tensor | int) -> torch.Tensor:
    """Tell whether any element differs, a piece at a time."""
    length, answer = PIECE_BYTES // found.itemsize, found.new_zeros((), dtype=torch.bool)
    for start in range(0, len(found), length):
        part = slice(start, start + length)
        answer |= (found[part] != (wanted if isinstance(wanted, int) else wanted[part])).any()
    return answer


def digest(found: torch.Tensor) -> str:
    """Return sums of the bytes, weighted by their places, which tell them from others without keeping either.

    Not cryptographic: it tells whether a program that does not know of it computed the same twice.
    """
    whole = len(found) // WORD_BYTES * WORD_BYTES
    parts = [found[start : min(start + DIGESTED_BYTES, whole)] for start in range(0, whole, DIGESTED_BYTES)]
    return ",".join([*(str(_weighted_sum(part)) for part in parts), found[whole:].cpu().numpy().tobytes().hex()])


def _weighted_sum(part: torch.Tensor) -> int:
    words = part.view(torch.int64)
    places = torch.arange(len(words), device=words.device)
    return int((words * ((places * _DIGEST_FACTOR ^ (places >> 7)) | 1)).sum())


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Return the layout of a tensor as it will travel. Broadcast or overlapping tensors become contiguous.

    Raises StructureError for a dtype that does not travel.
    """
    if dtype_name(tensor) not in ELEMENT_TYPES:
        raise StructureError(f"a tensor of {dtype_name(tensor)} cannot be sent to a candidate")
    dense = tensor if 0 not in tensor.stride() or tensor.numel() <= 1 else tensor.contiguous()
    return TensorSpec(dtype_name(dense), tuple(dense.shape), tuple(dense.stride()))


def storage_bytes(spec: TensorSpec) -> int:
    """Return the bytes from the first element to the last, gaps of the strides included."""
    if 0 in spec.shape:
        return 0
    extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
    return extent * int(getattr(torch, spec.dtype).itemsize)
