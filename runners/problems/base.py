"""Define what the harness needs to know of a problem, independent of its format.

A format (native, kernelbench, gpumode) subclasses `Problem`. Everything up to `# executed` is readable without
running problem code and without torch; the rest runs only in the oracle and baseline processes, never beside a
candidate. Values travel between processes as raw bytes with the layout that `TensorSpec` declares.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from runners.job import Language, Source
from runners.problems.tolerance import Loss, Tolerance

if TYPE_CHECKING:
    import torch


class ProblemError(ValueError):
    """Report that a problem can't be read. `complaints` names every fault as `file: what is wrong`."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("; ".join(complaints))
        self.complaints = complaints


class Role(StrEnum):
    """List the roles of an argument of the C signature.

    A parameter is a tensor with the same content in every call of a case, such as a model's weights.
    """

    INPUT = "input"
    PARAMETER = "parameter"
    OUTPUT = "output"
    SIZE = "size"
    SCALAR = "scalar"


class Purpose(StrEnum):
    """List the purposes of a case. `hidden` cases are checked but never shown to agents."""

    TEST = "test"
    BENCHMARK = "benchmark"
    HIDDEN = "hidden"


class TorchPolicy(StrEnum):
    """List what follows if a candidate's work is done by torch or a vendor library."""

    FORBID = "forbid"
    FLAG = "flag"
    ALLOW = "allow"


class Judging(StrEnum):
    """List the ways in which outputs can be judged."""

    AS_EXPECTED = "as_expected"
    # The reference is accurate on these inputs without TF32 and nearly so with it: only gross errors show.
    WITHOUT_TF32 = "without_tf32"
    NOT_AT_ALL = "not_at_all"


@dataclass(frozen=True)
class Argument:
    """Describe one argument of the C signature.

    `shape` holds expressions over the sizes, outermost first. `order` is `row` (last dimension contiguous) or
    `column` (first dimension contiguous). `distribution` is None for an argument that a case's distribution fills, or
    a fixed distribution's name. `value` names what fills the argument, an input of the call or an entry of the state
    dict, if its name differs.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[str, ...] = ()
    order: str = "row"
    distribution: str | None = None
    value: str = ""

    @property
    def value_name(self) -> str:
        """Return the name of the input or state tensor that fills it."""
        return self.value or self.name


@dataclass(frozen=True)
class Case:
    """Describe one shape of a problem.

    `targets` lists the target keys or families (`cpu`, `gpu`, `gfx942`…) that it is meant for. `reduced` describes
    what an importer made smaller so that the case fits the target, empty if nothing.
    """

    name: str
    sizes: dict[str, Any]
    purpose: Purpose
    targets: tuple[str, ...] = ("cpu", "gpu")
    distributions: tuple[str, ...] = ("normal",)
    reduced: str = ""


@dataclass(frozen=True)
class Footprint:
    """Hold the bytes of one call.

    `outputs` is None if only running the reference tells, for example because it reads sizes from a tensor's values.
    """

    inputs: int
    weights: int
    outputs: int | None

    @property
    def total(self) -> int:
        """Return everything that is known, in bytes."""
        return self.inputs + self.weights + (self.outputs or 0)


@dataclass(frozen=True)
class Work:
    """Describe what a case costs.

    `flops` is by the dtype of the arithmetic, empty if unknown. `bytes` counts each input and parameter read once and
    each output written once. `traced` figures were counted on a run of the reference instead of declared, so that a
    better algorithm may need fewer FLOPs.
    """

    flops: dict[str, float]
    bytes: float
    traced: bool = False


@dataclass(frozen=True)
class Seed:
    """Describe a starting kernel that ships with a problem. `status` is, for example, `built, never executed on
    MI300`."""

    name: str
    title: str
    source: Source
    status: str = ""


@dataclass(frozen=True)
class TensorSpec:
    """Describe the layout of one tensor in shared memory: torch dtype name, shape, strides in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class CallInputs:
    """Hold the inputs of one call in argument order: tensors and plain numbers by name.

    `structure` says in JSON how the positional arguments of a Python entry point are rebuilt from them
    (`runners.candidate.structure`); None if each value is one argument.
    """

    values: dict[str, Any] = field(default_factory=dict)
    structure: Any = None


@dataclass(frozen=True)
class CandidateSetup:
    """Hold what a Python candidate is given once, before its first call, beside its own source. Nothing in here is
    secret.

    `files` are modules it may import, by file name. `init` and `state` are constructor arguments and weights of a
    `ModelNew`. Weights are loaded by name and shape if all match; otherwise `weight_seed`, set before construction,
    gives the reference's weights to a model that creates them in the same order. `call_seed` is what torch's global
    generator is set to before every call, on both sides, if the reference draws from it.
    """

    files: dict[str, str] = field(default_factory=dict)
    init: CallInputs = field(default_factory=CallInputs)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    weight_seed: int | None = None
    call_seed: int | None = None
    strict: bool = False


def family_of(target: str) -> str:
    """Return `cpu` or `gpu`: the family that a case may name instead of a target key."""
    return "cpu" if target.startswith("cpu") else "gpu"


class Problem(ABC):
    """Represent a problem that has been read without faults."""

    name: str
    title: str
    description: str
    format: str
    torch_policy: TorchPolicy = TorchPolicy.FLAG
    languages: tuple[Language, ...]
    arguments: tuple[Argument, ...] = ()
    autocast: str = ""  # the type to which torch.autocast converts in the program that it was captured from
    symbol: str = ""
    entry_point: str = "custom_kernel"
    seeds: tuple[Seed, ...] = ()
    reference_source: str = ""
    compares: bool = False  # whether `compare` has a verdict of its own
    has_variants: bool = False  # whether `distributions` has more than a case names
    # Of which outputs people are told the tolerance where the format declares no arguments.
    judged_dtypes: tuple[str, ...] = ("float32", "float16")
    obstacles: tuple[str, ...] = ()  # why it can be read but not evaluated here; empty for most

    @abstractmethod
    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """Return the cases of that purpose for a target key, or else for its family, smallest first."""

    @abstractmethod
    def tolerance(self, dtype: str) -> Tolerance:
        """Return the tolerance for an output of that dtype."""

    @abstractmethod
    def work(self, case: Case) -> Work | None:
        """Return the FLOPs and bytes of one call, or None if the format does not declare them."""

    def size_of(self, argument: Argument, case: Case) -> int | float:
        """Return the value that a size, or a scalar that is no input of the call, has in a case."""
        value: int | float = case.sizes[argument.name]
        return value

    def outputs(self, case: Case) -> tuple[TensorSpec, ...] | None:
        """Return the layouts of the outputs in argument order, or None if only running the reference tells."""
        return None

    def complaints(self, source: Source) -> list[str]:
        """Return why the problem refuses a candidate for its text alone, or nothing."""
        return []

    # executed: only in the oracle and the baseline process

    def footprint(self, case: Case) -> Footprint | None:
        """Return the bytes of a case, or None if only running it tells.

        Call `footprint_of` instead, which catches what the problem's code raises.
        """
        return None

    def prepare(self, case: Case) -> None:
        """Build what the reference keeps between calls of a case, such as a model with its weights.

        Called before `reference` and `expected` get inputs of another case.
        """
        return

    @abstractmethod
    def reference_as_candidate(self, target: str) -> str:
        """Return a Python module's text that computes the reference as a candidate would, with the same entry point.

        The baseline is this module in a candidate's process, so that both sides differ only in their source.
        """

    def input_maker(self, case: Case) -> str | None:
        """Return a module's text whose `get_inputs` and `get_init_inputs` make the arguments of a call, or None."""
        return None

    def candidate_setup(self, case: Case) -> CandidateSetup:
        """Return what a Python candidate needs beside the inputs, made in the oracle and sent as bytes and JSON."""
        return CandidateSetup()

    @abstractmethod
    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """Make the inputs of one call on the CPU from a secret seed. The same seed gives the same bytes."""

    @abstractmethod
    def reference(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run the reference in torch, on whatever device the inputs lie on."""

    @abstractmethod
    def expected(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Return the outputs to compare with, in higher precision (float64 if affordable)."""

    @property
    def expects_own_result(self) -> bool:
        """Return whether the last `expected` was the reference's own result, because none in higher precision
        serves."""
        return False

    def in_full_precision(self, inputs: CallInputs) -> list[torch.Tensor] | None:
        """Return the reference's result with TF32 switched off, or None if that says nothing for this format.

        Called only where the reference may be in TF32 and an output is not within the tolerance of what is expected.
        """
        return None

    def losses(self, inputs: Callable[[], CallInputs], expected: list[torch.Tensor]) -> list[Loss | None]:
        """Return what the reference in its own precision loses against `expected`, by output; None if unknown.

        Called after `expected` for the same inputs. `inputs` makes a copy of them, which may take GiB and be changed.
        """
        from runners.problems.compare import loss_of

        own = self.reference(inputs())
        if len(own) != len(expected):
            return [None] * len(expected)
        return [loss_of(value, exact) for value, exact in zip(own, expected, strict=True)]

    def distributions(self, case: Case) -> tuple[str, ...]:
        """Return the input distributions with which a case is checked, the timed one first."""
        return case.distributions

    def tolerance_of(self, dtype: str, distribution: str) -> Tolerance:
        """Return the tolerance for an output of that dtype if the inputs come from a distribution."""
        return self.tolerance(dtype)

    def is_variant(self, distribution: str) -> bool:
        """Return whether a distribution is a variant of ours and not one that the problem declares."""
        return False

    def judging(self, distribution: str, inputs: Callable[[], CallInputs]) -> Judging:
        """Return how outputs for inputs can be judged, by what the reference loses on them.

        Called after `expected` for the same inputs. `inputs` makes a copy of them, which may take GiB and be changed.
        """
        return Judging.AS_EXPECTED

    def compare(self, inputs: CallInputs, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
        """Return a format's own verdict on the outputs (GPU MODE's check_implementation).

        None leaves it to the referee's element-wise comparison. A non-empty string is the complaint; "" means
        accepted.
        """
        return None
