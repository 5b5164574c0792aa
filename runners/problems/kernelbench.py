"""KernelBench problems: one Python file with `class Model`, `get_inputs` and `get_init_inputs`; a candidate defines
`ModelNew` (Ouyang et al. 2025). Tolerances are the published ones.

The weights come from a public seed and are handed to the candidate; inputs come from secret ones.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runners.job import Language, ProblemBundle, Source
from runners.problems import python_text, reduction
from runners.problems.base import (
    CallInputs,
    CandidateSetup,
    Case,
    Problem,
    ProblemError,
    Purpose,
    Seed,
    Tolerance,
    Work,
    family_of,
)
from runners.problems.files import read_file
from runners.problems.structure import flatten, is_tensor, positional, tensors_in

if TYPE_CHECKING:
    import torch

FORMAT = "kernelbench"
REQUIRED = ("Model", "get_inputs", "get_init_inputs")
WEIGHT_SEED = 42
_RANDOM_WORDS = re.compile(r"dropout|bernoulli|multinomial|rand|normal_|rrelu|gumbel", re.IGNORECASE)


def is_kernelbench(source: str) -> bool:
    """Whether a Python text has the three names that make a KernelBench problem."""
    return all(re.search(rf"^(class|def) {name}\b", source, re.MULTILINE) for name in REQUIRED)


def read_kernelbench(path: Path) -> ProblemBundle:
    """The bundle of one file. Raises ProblemError."""
    source = read_file(path)
    return ProblemBundle(path.stem, FORMAT, path.name, {path.name: source})


class KernelBenchProblem(Problem):
    """A problem read from one KernelBench file. Raises ProblemError where it is faulty.

    A case's `sizes` are the module's integer constants; a CPU case holds reduced ones and says so.
    """

    format = FORMAT
    entry_point = "ModelNew"
    languages = (Language.PYTHON, Language.TRITON)

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

    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """One case, as published for GPUs and reduced for a CPU; no hidden ones."""
        if purpose is Purpose.HIDDEN:
            return []
        case = self._reduced if family_of(target) == "cpu" else self._published
        return [replace(case, purpose=purpose)]

    def tolerance(self, dtype: str) -> Tolerance:
        """1e-4 in single and double precision, 1e-2 in 16 bits, as published; integers must agree."""
        if dtype in ("float32", "float64"):
            return Tolerance(1e-4, 1e-4)
        return Tolerance(1e-2, 1e-2) if "float" in dtype else Tolerance(0.0, 0.0)

    def work(self, case: Case) -> Work | None:
        """Not declared by this format."""
        return None

    def prepare(self, case: Case) -> None:
        """Build the case's model."""
        self._load(case)

    def reference_as_candidate(self, target: str) -> str:
        """Return the module with `Model` renamed to `ModelNew` and the constants of the target's case."""
        (case,) = self.cases(target, Purpose.BENCHMARK)
        text = self.reference_source
        if case.sizes != self._constants:
            text = ast.unparse(python_text.with_constants(self._tree, case.sizes))
        return _renamed(text)

    def candidate_setup(self, case: Case) -> CandidateSetup:
        """Constructor arguments and weights of the reference model."""
        import torch

        module, model = self._load(case)
        torch.manual_seed(WEIGHT_SEED)
        init = flatten(module.get_init_inputs())
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return CandidateSetup(init=init, state=state, weight_seed=WEIGHT_SEED, call_seed=self._call_seed)

    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """get_inputs() with every generator it may draw from set to the seed; `distribution` is as published."""
        import numpy as np
        import torch

        module, _ = self._load(case)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        return flatten(module.get_inputs())

    def reference(self, inputs: CallInputs) -> list[torch.Tensor]:
        """The prepared model as it was built: in training mode, as published."""
        model = self._prepared()
        return self._call(self._moved(model, inputs), inputs)

    def expected(self, inputs: CallInputs) -> list[torch.Tensor]:
        """The model in float64 where it runs so and its own float32 result agrees with that; else in float32:
        models that draw random numbers, mix types, or are too ill-conditioned for the published tolerance."""
        model = self._moved(self._prepared(), inputs)
        narrow = self._call(copy.deepcopy(model), inputs)
        if self._call_seed is not None:
            return narrow
        try:
            wide = self._call(copy.deepcopy(model).double(), _doubled(inputs))
        except RuntimeError:
            return narrow
        return wide if self._agree(narrow, wide) else narrow

    @cached_property
    def _call_seed(self) -> int | None:
        model = next(n for n in self._tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        body = "\n".join(ast.unparse(n) for n in model.body if isinstance(n, ast.FunctionDef))
        return WEIGHT_SEED if _RANDOM_WORDS.search(body) else None

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
        return Case("published", dict(self._constants), Purpose.TEST, ("gpu",), ("published",))

    @cached_property
    def _reduced(self) -> Case:
        small = self._declared or reduction.reduced_constants(self._tree, self._constants)
        words = reduction.described(self._constants, small)
        return Case("reduced" if words else "published", dict(small), Purpose.TEST, ("cpu",), ("published",), words)

    def _load(self, case: Case) -> tuple[ModuleType, Any]:
        """Module and model for a case; the last one is kept."""
        import torch

        key = repr(sorted(case.sizes.items()))
        if self._loaded is None or self._loaded[0] != key:
            module = ModuleType("kernelbench_problem")
            tree = python_text.with_constants(self._tree, case.sizes)
            exec(compile(tree, self._file, "exec"), module.__dict__)  # noqa: S102 - in the oracle only
            torch.manual_seed(WEIGHT_SEED)
            arguments = module.get_init_inputs()
            torch.manual_seed(WEIGHT_SEED)
            self._loaded = (key, module, module.Model(*arguments))
        return self._loaded[1], self._loaded[2]

    def _prepared(self) -> Any:
        if self._loaded is None:
            raise RuntimeError("prepare comes first: it builds the model")
        return self._loaded[2]

    @staticmethod
    def _moved(model: Any, inputs: CallInputs) -> Any:
        """The model on the device of the inputs."""
        device = next((v.device for v in inputs.values.values() if is_tensor(v)), None)
        return model if device is None else model.to(device)

    def _call(self, model: Any, inputs: CallInputs) -> list[torch.Tensor]:
        import torch

        arguments = positional(inputs)
        if self._call_seed is not None:
            torch.manual_seed(self._call_seed)
        with torch.no_grad():
            return tensors_in(model(*arguments))

    def _agree(self, narrow: list[torch.Tensor], wide: list[torch.Tensor]) -> bool:
        import torch

        for value, exact in zip(narrow, wide, strict=True):
            tolerance = self.tolerance(str(value.dtype).removeprefix("torch."))
            if not torch.allclose(value.double(), exact.double(), tolerance.rtol, tolerance.atol):
                return False
        return True

    def _describe(self) -> str:
        model = next(n for n in self._tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        words = ast.get_docstring(model) or self.title
        return f"{words}\n\nThe candidate defines `ModelNew` with the constructor and forward of `Model`.\n"


def _renamed(text: str) -> str:
    return re.sub(r"\bModel\b", "ModelNew", text)


def _doubled(inputs: CallInputs) -> CallInputs:
    import torch

    def widened(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        return value.double() if is_float else value

    return CallInputs({name: widened(value) for name, value in inputs.values.items()}, inputs.structure)
