"""Run GPU MODE tasks: generate_input, ref_kernel and check_implementation in reference.py.

A candidate defines `custom_kernel(data)`. `runners.problems.gpumode_task` reads the tasks; none ships with this
package.
"""

from __future__ import annotations

import ast
import copy
import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runners.job import Language, ProblemBundle, Source
from runners.problems.base import (
    CallInputs,
    CandidateSetup,
    Case,
    Problem,
    ProblemError,
    Purpose,
    Seed,
    Work,
    family_of,
)
from runners.problems.gpumode_task import ENTRY, FORMAT
from runners.problems.modules import Modules
from runners.problems.python_text import DEVICE_NAME, defined_names, on_its_device, parse
from runners.problems.structure import flatten, positional, tensors_in
from runners.problems.tolerance import Loss, Tolerance

if TYPE_CHECKING:
    import torch

LARGEST_SEED = 1 << 16  # as published ones; some tasks add it to float32 data, whose tolerance is relative
# The published benchmarks are sized for a GPU.
CPU_BENCHMARKS = 3
_NEEDED = ("generate_input", "ref_kernel")
# The reference would give the solution away, and the others belong to KernelBot's own harness.
_NOT_FOR_CANDIDATES = {"reference.py", "eval.py", "submission.py", ENTRY}


# The task's tensors are made on the CPU, whose generators need no driver, and are moved by whoever asked for them.
_MAKER = """
import importlib.abc, importlib.util, sys

_TEXTS = {texts!r}


class _Files(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if path is None and name in _TEXTS else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        setattr(module, {device_name!r}, "cpu")
        exec(compile(_TEXTS[module.__name__], module.__name__ + ".py", "exec"), module.__dict__)


for _name in _TEXTS:
    sys.modules.pop(_name, None)
sys.meta_path.insert(0, _Files())


def get_init_inputs():
    return []


def get_inputs():
    import reference

    return [reference.generate_input(**{arguments!r})]
"""


class GpuModeProblem(Problem):
    """Represent a task as it was bundled. Raises ProblemError if the bundle is faulty.

    A task that can be read but not evaluated here says why in `obstacles`.
    """

    format = FORMAT
    compares = True
    languages = (Language.PYTHON, Language.TRITON)

    def __init__(self, bundle: ProblemBundle) -> None:
        task = _decoded(bundle)
        self.name = bundle.name
        self.title = bundle.name.removesuffix("_py").replace("_", " ").replace("-", " ")
        self.description = str(task["description"])
        self.ranking_by = str(task["ranking_by"])
        self.reference_source = bundle.files.get("reference.py", "")
        self._defined = defined_names(parse(self.reference_source, "reference.py"))
        self._files = bundle.files
        self._modules = Modules(bundle.files)
        self._tests = _cases(task["tests"], Purpose.TEST)
        self._benchmarks = _cases(task["benchmarks"], Purpose.BENCHMARK)
        self.obstacles = self._obstacles(bool(task["multi_gpu"]))
        self.seeds = self._seeds(task["templates"])
        self._nesting: Any = None

    def cases(self, target: str, purpose: Purpose) -> list[Case]:
        """Return the task's tests or benchmarks, smallest first. On a CPU the smallest tests stand in for
        benchmarks."""
        if purpose is Purpose.HIDDEN:
            return []
        if purpose is Purpose.BENCHMARK and family_of(target) == "cpu":
            return self._cpu_benchmarks()
        return sorted(self._tests if purpose is Purpose.TEST else self._benchmarks, key=_volume)

    def tolerance(self, dtype: str) -> Tolerance:
        """Return the tolerance for tasks without a check_implementation of their own."""
        if dtype in ("float32", "float64"):
            return Tolerance(1e-4, 1e-4)
        return Tolerance(2e-2, 1e-2) if "float" in dtype else Tolerance(0.0, 0.0)

    def work(self, case: Case) -> Work | None:
        """Return None, because this format does not declare the work."""
        return None

    def reference_as_candidate(self, target: str) -> str:
        """Return reference.py with `ref_kernel` under a submission's name."""
        return f"{on_its_device(self.reference_source, 'reference.py')}\n\ncustom_kernel = ref_kernel\n"

    def input_maker(self, case: Case) -> str | None:
        """Return a text that installs the task's modules for whoever imports them, and calls generate_input."""
        if self.obstacles or self._modules.texts is None:
            return None
        arguments = self._arguments(case, seed=1)
        return _MAKER.format(texts=self._modules.texts, device_name=DEVICE_NAME, arguments=arguments)

    def candidate_setup(self, case: Case) -> CandidateSetup:
        """Return the modules that submissions import (task.py, utils.py), without the reference."""
        allowed = {name: text for name, text in self._files.items() if name not in _NOT_FOR_CANDIDATES}
        return CandidateSetup(files={name: text for name, text in allowed.items() if "/" not in name})

    def make_inputs(self, case: Case, seed: int, distribution: str) -> CallInputs:
        """Call generate_input of the case with the secret seed in place of the published one."""
        import torch

        with self._on(torch.get_default_device().type):
            return flatten([self._reference("generate_input")(**self._arguments(case, seed))])

    def reference(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run ref_kernel(data) on the device of the inputs."""
        return tensors_in(self._run(inputs))

    def expected(self, inputs: CallInputs) -> list[torch.Tensor]:
        """Run ref_kernel on a copy, in the task's own precision, because its check allows for that."""
        result = self._run(_copied(inputs))
        self._nesting = _like(result, itertools.repeat(True))
        return tensors_in(result)

    def losses(self, inputs: Callable[[], CallInputs], expected: list[torch.Tensor]) -> list[Loss | None]:
        """Return None for every output, because what is expected is the reference in its own precision."""
        return [None] * len(expected)

    def compare(self, inputs: CallInputs, outputs: list[torch.Tensor], expected: list[torch.Tensor]) -> str | None:
        """Return the complaint of check_implementation, "" if it accepts, or None if the task has none.

        Called after `expected`, which shows how results are nested.
        """
        if "check_implementation" not in self._defined:
            return None
        received = _like(self._nesting, iter(outputs))
        with self._on(_device_of(inputs)):
            verdict = self._reference("check_implementation")(*positional(_copied(inputs)), received)
        return _complaint(verdict)

    def _run(self, inputs: CallInputs) -> Any:
        with self._on(_device_of(inputs)):
            return self._reference("ref_kernel")(*positional(inputs))

    @contextmanager
    def _on(self, device: str) -> Iterator[None]:
        """Make the task's modules importable, with `"cuda"` meaning that device.

        Tensors that name no device lie on the CPU, as in the task's own harness.
        """
        import torch

        with self._modules.active(), torch.device("cpu"):
            self._modules.use_device(device)
            yield

    def _reference(self, name: str) -> Any:
        return getattr(self._modules.get("reference"), name)

    def _arguments(self, case: Case, seed: int) -> dict[str, Any]:
        """Return the arguments of generate_input for a case, with the seed if it takes one."""
        takes_seed = "seed" in self._generator_parameters()
        return dict(case.sizes) | ({"seed": seed % LARGEST_SEED} if takes_seed else {})

    def _generator_parameters(self) -> set[str]:
        tree = parse(self.reference_source, "reference.py")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == "generate_input":
                return {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        return set()

    def _obstacles(self, multi_gpu: bool) -> tuple[str, ...]:
        missing = [f"reference.py defines no {name}" for name in _NEEDED if name not in self._defined]
        return (*missing, *(["the task runs on several GPUs at once"] if multi_gpu else []))

    def _cpu_benchmarks(self) -> list[Case]:
        words = "published tests stand in for benchmarks, whose sizes are a GPU's"
        smallest = sorted(self._tests, key=_volume)[:CPU_BENCHMARKS]
        return [Case(c.name, c.sizes, Purpose.BENCHMARK, ("cpu",), c.distributions, words) for c in smallest]

    def _seeds(self, templates: dict[str, str]) -> tuple[Seed, ...]:
        seeds = []
        if "ref_kernel" in self._defined:
            source = Source(Language.PYTHON, self.reference_as_candidate("gpu"))
            seeds.append(Seed("reference", "Reference in torch", source))
        for label, path in sorted(templates.items()):
            source = Source(Language.PYTHON, self._files.get(path, ""))
            seeds.append(
                Seed(f"template_{label.lower()}", f"The task's template for {label}", source, "a template")
            )
        return tuple(seeds)


def _decoded(bundle: ProblemBundle) -> dict[str, Any]:
    try:
        task = json.loads(bundle.files[ENTRY])
        missing = {"description", "ranking_by", "multi_gpu", "tests", "benchmarks", "templates"} - set(task)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ProblemError([f"{ENTRY}: missing or not JSON"]) from error
    if missing:
        raise ProblemError([f"{ENTRY}: no {name}" for name in sorted(missing)])
    return dict(task)


def _cases(tables: list[dict[str, Any]], purpose: Purpose) -> list[Case]:
    cases: list[Case] = []
    for table in tables:
        sizes = {name: value for name, value in table.items() if name != "seed"}
        name = "-".join(f"{key}{value}" for key, value in sizes.items())[:120] or "case"
        # Cases that differ in their seed alone get a number, since seeds are replaced.
        twins = sum(case.name.split("#")[0] == name for case in cases)
        cases.append(Case(f"{name}#{twins + 1}" if twins else name, sizes, purpose, distributions=("published",)))
    return cases


def _volume(case: Case) -> float:
    numbers = [v for v in case.sizes.values() if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
    return math.prod(numbers)


def _copied(inputs: CallInputs) -> CallInputs:
    return CallInputs(copy.deepcopy(inputs.values), inputs.structure)


def _device_of(inputs: CallInputs) -> str:
    return next((str(v.device) for v in inputs.values.values() if hasattr(v, "device")), "cpu")


def _like(result: Any, leaves: Any) -> Any:
    """Arrange flat outputs as the reference's result is nested."""
    if isinstance(result, list | tuple):
        items = [_like(item, leaves) for item in result]
        return items if isinstance(result, list) else tuple(items)
    if isinstance(result, dict):
        return {key: _like(item, leaves) for key, item in result.items()}
    return None if result is None else next(leaves)


def _complaint(verdict: Any) -> str:
    """Convert a task's answer to a complaint: a string that is empty if all is well, or (accepted, message)."""
    if isinstance(verdict, tuple) and len(verdict) == 2:
        accepted, message = verdict
        return "" if accepted else (str(message) or "not accepted by check_implementation")
    if isinstance(verdict, bool):
        return "" if verdict else "not accepted by check_implementation"
    return str(verdict or "")
