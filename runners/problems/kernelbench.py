"""Run KernelBench problems: one Python file with `class Model`, `get_inputs` and `get_init_inputs`.

A candidate defines `ModelNew` (Ouyang et al. 2025). Tolerances are the published ones. The weights come from a public
seed and are given to the candidate; inputs come from secret seeds.
"""

from __future__ import annotations

import ast
import copy
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from runners.job import Language, ProblemBundle, Source
from runners.problems import python_text, reduction
from runners.problems.base import (
    Argument,
    CallInputs,
    CandidateSetup,
    Case,
    Footprint,
    Judging,
    Problem,
    ProblemError,
    Purpose,
    Seed,
    Work,
    family_of,
)
from runners.problems.files import read_file
from runners.problems.footprint import held_bytes, of_module
from runners.problems.signature import SYMBOL, read_signature
from runners.problems.structure import flatten, is_tensor, positional, tensors_in
from runners.problems.tolerance import Loss, Tolerance

if TYPE_CHECKING:
    import torch

    from runners.problems.variants import VariantForm

Found = TypeVar("Found")

FORMAT = "kernelbench"
REQUIRED = ("Model", "get_inputs", "get_init_inputs")
# KernelBench's own seed, so that weights are the published ones.
WEIGHT_SEED = 42
PUBLISHED = "published"
SURVIVAL_SEED = 7
# Most bytes of inputs and weights with which a reference is also run in float64, which takes twice as much.
WIDE_BYTES = 2 << 30
# For how long to look for variants that a reference survives; a slow reference has fewer of them.
SURVIVAL_S = 1.0
# Share of the tolerance that float32 may use up on a variant's inputs: the rest is the candidate's.
STEADY = 0.25
# Layers that draw in every call. In a constructor other random words only initialise weights.
_RANDOM_LAYERS = re.compile(r"dropout|rrelu|drop_?path|gumbel", re.IGNORECASE)
_RANDOM_WORDS = re.compile(r"dropout|bernoulli|multinomial|rand|normal_|rrelu|gumbel", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """Hold a model's outputs in its own precision and in float64 (None if it does not run so), and what it loses."""

    narrow: list[torch.Tensor]
    wide: list[torch.Tensor] | None
    losses: list[Loss | None]


def is_kernelbench(source: str) -> bool:
    """Return whether a Python text has the three names that make a KernelBench problem."""
    return all(re.search(rf"^(class|def) {name}\b", source, re.MULTILINE) for name in REQUIRED)


def read_kernelbench(path: Path) -> ProblemBundle:
    """Return the bundle of one file. Raises ProblemError."""
    source = read_file(path)
    return ProblemBundle(path.stem, FORMAT, path.name, {path.name: source})


class KernelBenchProblem(Problem):
    """Represent a problem read from one KernelBench file. Raises ProblemError if it is faulty.

    A case's `sizes` are the module's integer constants; a CPU case holds reduced ones and says so. With a generated
    signature in the bundle (`runners.problems.signature`), a kernel may also be a C function, and work figures are
    known.
    """

    format = FORMAT
    entry_point = "ModelNew"
    has_variants = True
    languages: tuple[Language, ...] = (Language.PYTHON, Language.TRITON)

    def __init__(self, bundle: ProblemBundle) -> None:
        self.name = bundle.name
        self._file = bundle.entry
        self.reference_source = bundle.files.get(bundle.entry, "")
        self._tree = python_text.split_assignments(python_text.parse(self.reference_source, self._file))
        missing = [name for name in REQUIRED if name not in python_text.defined_names(self._tree)]
        if missing:
            raise ProblemError([f"{self._file}: no {name}" for name in missing])
        self._declared = self._read_declared()
        self.title = re.sub(r"^\d+_", "", bundle.name).replace("_", " ").strip()
        self.description = self._describe()
        self.seeds = (
            Seed("reference", "Reference in torch", Source(Language.PYTHON, _renamed(self.reference_source))),
        )
        self._loaded: tuple[str, ModuleType, Any] | None = None
        self.signature = read_signature(bundle.files, self.reference_source)
        if self.signature is not None and self.signature.arguments:
            self.arguments, self.symbol = self.signature.arguments, SYMBOL
            self.languages = (Language.CPP, Language.HIP, Language.CUDA, Language.TRITON, Language.PYTHON)
        self._losses: list[Loss | None] = []
        self._expects_own = False
        # The last outcome of `expected`, kept until `judging` if the reference was not steady.
        self._unsteady: Outcome | None = None

    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """Return one case, as published for GPUs and reduced for a CPU. There are no hidden ones."""
        if purpose is Purpose.HIDDEN:
            return []
        case = self._reduced if family_of(target) == "cpu" else self._published
        return [replace(case, purpose=purpose)]

    def tolerance(self, dtype: str) -> Tolerance:
        """Return 1e-4 in single and double precision and 1e-2 in 16 bits, as published; integers must agree."""
        if dtype in ("float32", "float64"):
            return Tolerance(1e-4, 1e-4)
        return Tolerance(1e-2, 1e-2) if "float" in dtype else Tolerance(0.0, 0.0)

    def work(self, case: Case) -> Work | None:
        """Return what was counted on the traced reference, or None if it was not traced."""
        return None if self.signature is None else self.signature.work(case.name)

    def size_of(self, argument: Argument, case: Case) -> int | float:
        """Return the value that the signature lists for the case. Raises ProblemError for a case that could not be
        traced."""
        figures = self.signature.cases.get(case.name) if self.signature is not None else None
        if figures is None:
            raise ProblemError(
                [f"{self._file}: the case {case.name} could not be traced: no value for {argument.name}"]
            )
        return figures.sizes[argument.name]

    def prepare(self, case: Case) -> None:
        """Build the case's model."""
        self._load(case)

    def reference_as_candidate(self, target: str) -> str:
        """Return the module with `Model` renamed to `ModelNew` and the constants of the target's case."""
        (case,) = self.cases(target, Purpose.BENCHMARK)
        return _renamed(self.input_maker(case))

    def input_maker(self, case: Case) -> str:
        """Return the module with the constants of the case, as it is where they are its own."""
        if case.sizes == self._constants:
            return self.reference_source
        return ast.unparse(python_text.with_constants(self._tree, case.sizes))

    def candidate_setup(self, case: Case) -> CandidateSetup:
        """Return the constructor arguments and weights of the reference model."""
        import torch

        module, model = self._load(case)
        torch.manual_seed(WEIGHT_SEED)
        init = flatten(module.get_init_inputs())
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return CandidateSetup(init=init, state=state, weight_seed=WEIGHT_SEED, call_seed=self._call_seed)

    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """Return get_inputs() with every generator that it may draw from set to the seed.

        The inputs are as published, or one of the variants that the reference survives.
        """
        made = drawn(self._load(case)[0], seed)
        if distribution == PUBLISHED:
            return made
        from runners.problems.variants import changed

        return changed(made, distribution, self._survived[distribution])

    def distributions(self, case: Case) -> tuple[str, ...]:
        """Return the published distribution and the variants that the reference survives.

        Survival is tested on the case that a CPU gets, because that is small. Cases whose inputs and weights exceed
        WIDE_BYTES have no variants: their results are not computed in double precision, without which nobody could
        tell whether a variant is well-conditioned.
        """
        is_small = bool(self._reduced.reduced) and case.sizes == self._reduced.sizes
        if not is_small and (held_bytes(lambda: self._built(case.sizes)) or 0) > WIDE_BYTES:
            return case.distributions
        return (*case.distributions, *self._survived)

    def is_variant(self, distribution: str) -> bool:
        """Return whether a distribution is one of the variants that the reference survives."""
        return distribution != PUBLISHED and distribution in self._survived

    def judging(self, distribution: str, inputs: Callable[[], CallInputs]) -> Judging:
        """Return how outputs for a variant can be judged: not at all if the reference is not steady at this size.

        A reference that only TF32 makes unsteady, and not by much, can be compared with in full precision.
        """
        from runners.problems.precision import VARIANT

        outcome, self._unsteady = self._unsteady, None
        if outcome is None or not self.is_variant(distribution):
            return Judging.AS_EXPECTED
        losses = [math.inf if loss is None else loss.overall for loss in outcome.losses]
        wide = outcome.wide
        if wide is None or max(losses, default=math.inf) > VARIANT.most_loss:
            return Judging.NOT_AT_ALL
        del outcome  # frees the result in TF32, unless it is the expected one, before the next result is computed
        exact = self.in_full_precision(inputs())
        is_steady = exact is not None and self._steady(Outcome(exact, wide, []))
        return Judging.WITHOUT_TF32 if is_steady else Judging.NOT_AT_ALL

    def footprint(self, case: Case) -> Footprint:
        """Return the bytes of a case from its module on the meta device."""
        return of_module(lambda: self._built(case.sizes))

    def reference(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run the prepared model as it was built: in training mode, as published. Its buffers stay as they were."""
        return self._narrow(self._moved(self._prepared(), inputs), inputs)

    def expected(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Return the model's outputs in float64 if it runs so and its own float32 result agrees with that, else in
        float32.

        Float32 serves for models that draw random numbers, mix types, are too large (WIDE_BYTES) or too
        ill-conditioned for the tolerance.
        """
        self._unsteady = None  # frees the memory before the next outcome takes its own
        outcome = self._outcome(self._moved(self._prepared(), inputs), inputs)
        self._losses, self._unsteady = outcome.losses, None if self._steady(outcome) else outcome
        wide = outcome.wide
        if wide is not None and self._unsteady is not None and not self._agree(outcome, 1.0):
            wide = None
        self._expects_own = wide is None
        return outcome.narrow if wide is None else wide

    @property
    def expects_own_result(self) -> bool:
        """Return whether float64 did not serve for the inputs of the last `expected`."""
        return self._expects_own

    def in_full_precision(self, inputs: CallInputs) -> list[torch.Tensor] | None:
        """Run the prepared model with TF32 switched off. Return None if it does not run so.

        Raises torch.OutOfMemoryError: without this result nobody can tell whether an output is right.
        """
        import torch

        from runners.problems.precision import without_tf32

        try:
            with without_tf32():
                return self.reference(inputs)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            return None

    def losses(self, inputs: Callable[[], CallInputs], expected: list[torch.Tensor]) -> list[Loss | None]:
        """Return what the model in its own precision loses against float64, which `expected` has found already.

        If a case is too large for float64, ten times the loss of the case that a CPU gets stands for it: outputs that
        are nothing but rounding errors show there too.
        """
        if self._losses or self._call_seed is not None or len(self._small_losses) != len(expected):
            return self._losses or [None] * len(expected)
        return [loss and Loss(10 * loss.overall, math.inf) for loss in self._small_losses]

    @cached_property
    def _small_losses(self) -> list[Loss | None]:
        return self._on_reduced(lambda made, model: self._outcome(self._moved(model, made), made).losses) or []

    def _outcome(self, model: Any, inputs: CallInputs) -> Outcome:
        """Run a model in float64, where it can and may, and then in its own precision, which may write to inputs."""
        return self._beside(self._wide(model, inputs), model, inputs)

    def _beside(self, wide: list[torch.Tensor] | None, model: Any, inputs: CallInputs) -> Outcome:
        narrow = self._narrow(model, inputs)
        if wide is None or len(wide) != len(narrow):
            return Outcome(narrow, None, [])
        from runners.problems.compare import loss_of

        return Outcome(narrow, wide, [loss_of(own, exact) for own, exact in zip(narrow, wide, strict=True)])

    def _narrow(self, model: Any, inputs: CallInputs) -> list[torch.Tensor]:
        with _preserved(model):
            return self._call(model, inputs)

    def _wide(self, model: Any, inputs: CallInputs) -> list[torch.Tensor] | None:
        if self._call_seed is not None or _bytes_of(model, inputs) > WIDE_BYTES:
            return None
        try:
            return self._call(copy.deepcopy(model).double(), _doubled(inputs))
        except RuntimeError:
            return None

    @cached_property
    def _survived(self) -> dict[str, VariantForm]:
        return self._found_variants()

    def _found_variants(self) -> dict[str, VariantForm]:
        """Return the variants and forms that the reference survives, found on the case that a CPU gets."""
        return self._on_reduced(self._survivors) or {}

    def _survivors(self, made: CallInputs, model: Any) -> dict[str, VariantForm]:
        """Return the variants and forms that a model survives in full precision, since few results in TF32 are
        steady."""
        from runners.problems.precision import without_tf32

        with without_tf32():
            return dict(self._surviving(made, model))

    def _on_reduced(self, find: Callable[[CallInputs, Any], Found]) -> Found | None:
        """Return what `find` returns for inputs and model of the case that a CPU gets, or None if that does not run.

        A reduced case is run on the CPU, where it takes milliseconds: a GPU takes a second to load its kernels for
        double precision. A case that could not be reduced, or a reference that names a device, runs on the device.
        """
        import torch

        for host in (True, False) if self._reduced.reduced else (False,):
            # A reference that does not run when reduced says nothing.
            with suppress(Exception), torch.device("cpu") if host else nullcontext():
                module, model = self._built(self._reduced.sizes)
                return find(drawn(module, SURVIVAL_SEED), model)
        return None

    def _surviving(self, made: CallInputs, model: Any) -> Iterator[tuple[str, VariantForm]]:
        from runners.problems.variants import VARIANTS, changeable, changed

        if not any(changeable(value) for value in made.values.values()):
            return
        model = self._moved(model, made)
        started = time.monotonic()
        for name, forms in VARIANTS.items():
            for form in forms:
                before = time.monotonic()
                inputs = changed(made, name, form)
                # float64 first, since the other run may overwrite its inputs.
                wide = self._wide(model, inputs)
                if wide is None:
                    return  # without float64 nothing shows what the reference survives
                survives = self._steady(self._beside(wide, model, inputs))
                if survives:
                    yield name, form
                if 2 * time.monotonic() - before > started + SURVIVAL_S:
                    return  # one more would take too long
                if survives:
                    break

    def _steady(self, outcome: Outcome) -> bool:
        """Return whether the outputs are finite and float32 stays well within the tolerance around float64."""
        from runners.problems.compare import specials

        if outcome.wide is None or not self._agree(outcome, STEADY):
            return False
        return not any(specials(value) for value in outcome.narrow if value.dtype.is_floating_point)

    @cached_property
    def _call_seed(self) -> int | None:
        """Return the seed of every call if the forward draws random numbers, else None.

        What a constructor draws are weights, except for layers that draw in each call.
        """
        model = next(n for n in self._tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        methods = [node for node in model.body if isinstance(node, ast.FunctionDef)]
        words = {node: _RANDOM_LAYERS if node.name == "__init__" else _RANDOM_WORDS for node in methods}
        return WEIGHT_SEED if any(found.search(ast.unparse(node)) for node, found in words.items()) else None

    @cached_property
    def _constants(self) -> dict[str, python_text.Constant]:
        return python_text.integer_constants(self._tree)

    def _read_declared(self) -> dict[str, python_text.Constant] | None:
        try:
            return reduction.declared_constants(self.reference_source, self._constants)
        except ValueError as error:
            raise ProblemError([f"{self._file}: {error}"]) from error

    @cached_property
    def _published(self) -> Case:
        return Case("published", dict(self._constants), Purpose.TEST, ("gpu",), (PUBLISHED,))

    @cached_property
    def _reduced(self) -> Case:
        small = self._declared or reduction.reduced_constants(self._tree, self._constants)
        words = reduction.described(self._constants, small)
        return Case("reduced" if words else "published", dict(small), Purpose.TEST, ("cpu",), (PUBLISHED,), words)

    def module_and_model(self, case: Case) -> tuple[ModuleType, Any]:
        """Return the executed module and its model for a case."""
        return self._load(case)

    def _load(self, case: Case) -> tuple[ModuleType, Any]:
        """Return module and model for a case; the last one is kept."""
        key = repr(sorted(case.sizes.items()))
        if self._loaded is None or self._loaded[0] != key:
            self._loaded = None  # frees the memory before the next takes its own
            self._loaded = (key, *self._built(case.sizes))
        return self._loaded[1], self._loaded[2]

    def _built(self, sizes: Mapping[str, Any]) -> tuple[ModuleType, Any]:
        """Run the file with the constants of a case and build its model with the public seed."""
        import torch

        module = ModuleType("kernelbench_problem")
        tree = python_text.with_constants(self._tree, sizes)
        exec(compile(tree, self._file, "exec"), module.__dict__)  # noqa: S102 - in the oracle only
        torch.manual_seed(WEIGHT_SEED)
        arguments = module.get_init_inputs()
        # Set again, because making the arguments may have drawn numbers.
        torch.manual_seed(WEIGHT_SEED)
        return module, module.Model(*arguments)

    def _prepared(self) -> Any:
        if self._loaded is None:
            raise RuntimeError("prepare comes first: it builds the model")
        return self._loaded[2]

    @staticmethod
    def _moved(model: Any, inputs: CallInputs) -> Any:
        """Return the model on the device of the inputs."""
        device = next((v.device for v in inputs.values.values() if is_tensor(v)), None)
        return model if device is None else model.to(device)

    def _call(self, model: Any, inputs: CallInputs) -> list[torch.Tensor]:
        import torch

        arguments = positional(inputs)
        if self._call_seed is not None:
            torch.manual_seed(self._call_seed)
        with torch.no_grad():
            return tensors_in(model(*arguments))

    def _agree(self, outcome: Outcome, share: float) -> bool:
        """Return whether the outputs in both precisions agree within a share of the tolerance."""
        from runners.problems.compare import compare

        for value, exact in zip(outcome.narrow, outcome.wide or [], strict=True):
            whole = self.tolerance(str(value.dtype).removeprefix("torch."))
            tolerance = Tolerance(share * whole.rtol, share * whole.atol)
            if compare(value, exact, tolerance, norms=False).error:
                return False
        return True

    def _describe(self) -> str:
        return (
            f"{self._model_docstring()}\n\nThe candidate defines `ModelNew` with the constructor and forward of "
            "`Model`. Beside the inputs that the file makes, scaled, shifted and heavier-tailed ones are checked "
            "where the reference computes them accurately.\n"
        )

    def _model_docstring(self) -> str:
        model = next(n for n in self._tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        return ast.get_docstring(model) or self.title


def drawn(module: ModuleType, seed: int) -> CallInputs:
    """Return get_inputs() with every generator that it may draw from set to the seed, which the module may not
    reset."""
    import numpy as np
    import torch

    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    with unseeded():
        return flatten(module.get_inputs())


@contextmanager
def _preserved(model: Any) -> Iterator[None]:
    """Undo what a forward pass does to a model's buffers, such as running means.

    A copy of the whole model would take its weights' memory once more.
    """
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


@contextmanager
def unseeded() -> Iterator[None]:
    """Make `torch.manual_seed` do nothing within this block, since some problems make the same inputs whatever the
    seed."""
    import torch

    original = torch.manual_seed
    torch.manual_seed = lambda seed: torch.default_generator
    try:
        yield
    finally:
        torch.manual_seed = original


def _bytes_of(model: Any, inputs: CallInputs) -> int:
    tensors = [value for value in inputs.values.values() if is_tensor(value)]
    return sum(t.numel() * t.dtype.itemsize for t in (*tensors, *model.parameters(), *model.buffers()))


def _renamed(text: str) -> str:
    return re.sub(r"\bModel\b", "ModelNew", text)


def _doubled(inputs: CallInputs) -> CallInputs:
    import torch

    def widened(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        return value.double() if is_float else value

    return CallInputs({name: widened(value) for name, value in inputs.values.items()}, inputs.structure)
