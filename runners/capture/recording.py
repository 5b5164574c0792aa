"""Watch a program's calls of torch functions and modules, and time them where they do not disturb each other.

Every call is timed on its own, on a GPU between two synchronisations, so that the times of calls add up. What watching
costs is measured too and taken off the calls that contain it. Shares therefore describe a program that waits for each
call; kernels that overlap in the real program take less than the sum of theirs.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from runners.capture.calls import NO_INPUT, NOTHING, Call, note_of
from runners.capture.samples import sample_of
from runners.export.runtime.kernel import autocast_type
from runners.export.runtime.patching import owner_of
from runners.export.runtime.structure import UnplainError, configuration, key_of, split

# A program whose shapes never repeat would fill the memory; what is left out is counted.
MOST_CALLS = 2000
# A module of so many parts is a whole model rather than a kernel: timed, and not described.
MOST_PARTS = 40
clock = time.perf_counter


class Recorder:
    """Record calls from `start` to `stop`. Only the thread that started it is watched."""

    def __init__(self, *, keep: bool = False) -> None:
        """Prepare; `keep` keeps small inputs themselves instead of their distribution."""
        self.calls: dict[Any, Call] = {}
        self.left_out = 0
        self.began: float | None = None
        self.ended = 0.0
        self.on_gpu = torch.cuda.is_available()
        self._keep = keep
        self._overhead = self._overhead_at_start = 0.0
        self._stack: list[int] = []
        self._mode = _Functions(self)
        self._module_call: Any = None
        self._thread = 0
        # Watching calls torch itself, which must not be watched.
        self._busy = self._saw_module = False
        self._described: dict[int, tuple[Any, Any]] = {}

    @property
    def seconds(self) -> float:
        """Return the time of the recorded part: from the first call of a module to the end, without the watching."""
        return max(self.ended - (self.began or 0.0) - (self._overhead - self._overhead_at_start), 0.0)

    def start(self) -> None:
        """Watch from now on."""
        self._thread = threading.get_ident()
        self._module_call = original = torch.nn.Module.__call__

        def watched(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._busy or threading.get_ident() != self._thread or torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            if not self._saw_module:
                self._begin()
            return self._watch(module, args, kwargs, lambda: original(module, *args, **kwargs))

        torch.nn.Module.__call__ = watched  # type: ignore[method-assign]
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Watch no longer."""
        self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        torch.nn.Module.__call__ = self._module_call  # type: ignore[method-assign]

    def function(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a torch function for the mode."""
        name = getattr(function, "__name__", "")
        if self._busy or threading.get_ident() != self._thread or name in ("__get__", "__set__"):
            return function(*args, **kwargs)
        return self._watch(function, args, kwargs, lambda: function(*args, **kwargs))

    def _begin(self) -> None:
        """Start the clock at the first module: what came before, such as making weights, is no part of the work."""
        self._saw_module = True
        self.calls.clear()
        self._sync()
        self.began, self._overhead_at_start = clock(), self._overhead

    def _watch(self, what: Any, args: Any, kwargs: dict[str, Any], run: Callable[[], Any]) -> Any:
        entered = clock()
        with self._unwatched():
            call, tensors = self._found(what, args, kwargs)
            before = self._before(call, tensors) if call is not None and call.count == 0 else None
            self._sync()
        if call is None:
            self._overhead += clock() - entered
            return run()
        self._stack.append(id(call))
        overhead, started = self._overhead, clock()
        if self.began is None:
            self.began, self._overhead_at_start = started, overhead
        try:
            result = run()
            self._sync()
        finally:
            self._stack.pop()
        self.ended = clock()
        call.count += 1
        call.seconds += max(self.ended - started - (self._overhead - overhead), 0.0)
        if before is not None:
            with self._unwatched():
                self._after(call, tensors, before, result)
        self._overhead += (clock() - entered) - (self.ended - started)
        return result

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _found(self, what: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Call | None, list[torch.Tensor]]:
        """Return the record of such a call, a new one the first time, and the call's tensors."""
        tensors: list[torch.Tensor] = []
        is_module = isinstance(what, torch.nn.Module)
        path = _path_of(what)
        try:
            form, obstacle = split([list(args), kwargs], tensors), ""
        except UnplainError as error:
            form, obstacle = None, f"takes {error}"
        config, state = self._description(what) if is_module else (None, {})
        if config is None and is_module:
            obstacle = "too large to be one kernel"
        device = tensors[0].device if tensors else torch.device("cpu")
        autocast = autocast_type(device.type)
        notes = tuple(note_of(tensor) for tensor in tensors)
        key = (path, key_of(form), notes, config, tuple(state.items()), autocast)
        call = self.calls.get(key)
        if call is None:
            if len(self.calls) >= MOST_CALLS:
                self.left_out += 1
                return None, tensors
            call = self.calls[key] = Call(
                kind="module" if is_module else "operator",
                path=path,
                form=form,
                inputs=notes,
                key=key_of([form, configuration(what)]) if is_module and config else key_of(form),
                names=_names(what, args, kwargs) if not obstacle else (),
                module=what if is_module else None,
                function=None if is_module else what,
                state=state,
                device=str(device),
                autocast=autocast,
                obstacle=obstacle or ("" if is_module else _unreachable(what, path)),
            )
        call.inside.update(self._stack)
        return call, tensors

    def _description(self, module: torch.nn.Module) -> tuple[str | None, dict[str, Any]]:
        """Return configuration and state of a module, which are looked at once for each module and mode."""
        known = self._described.get(id(module))
        if known is not None and known[0] == module.training:
            return known[1]  # type: ignore[no-any-return]
        found: tuple[str | None, dict[str, Any]] = (None, {})
        if sum(1 for _ in module.modules()) <= MOST_PARTS:
            found = key_of(configuration(module)), {name: note_of(t) for name, t in state_of(module).items()}
        self._described[id(module)] = (module.training, found)
        return found

    def _before(self, call: Call, tensors: list[torch.Tensor]) -> tuple[list[int], Any]:
        """Look at the values of a first call, and note what would show that it changes them or draws numbers."""
        everything = [*tensors, *(state_of(call.module).values() if call.module is not None else ())]
        if not call.obstacle:
            call.samples = [sample_of(tensor, keep=self._keep) for tensor in everything]
            call.obstacle = next((f"an input {s.obstacle}" for s in call.samples if s.obstacle), "")
        return _versions(everything), _generators(self.on_gpu)

    def _after(self, call: Call, tensors: list[torch.Tensor], before: tuple[list[int], Any], result: Any) -> None:
        everything = [*tensors, *(state_of(call.module).values() if call.module is not None else ())]
        outputs: list[torch.Tensor] = []
        try:
            call.result = split(result, outputs)
        except UnplainError as error:
            call.obstacle = call.obstacle or f"returns {error}"
            return
        call.outputs = tuple(note_of(tensor) for tensor in outputs)
        if not outputs:
            call.obstacle = NOTHING
            return
        call.obstacle = call.obstacle or _obstacle(everything, outputs, before, self.on_gpu)

    def _sync(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


class _Functions(TorchFunctionMode):
    """Hand every torch function of the program to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.function(func, args, kwargs or {})


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name; weights that are tied come once, under their first name."""
    seen: set[int] = set()
    found = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor
    return found


def _path_of(what: Any) -> str:
    if isinstance(what, torch.nn.Module):
        return f"{type(what).__module__}:{type(what).__qualname__}"
    return str(resolve_name(what) or getattr(what, "__name__", what))


def _unreachable(function: Any, path: str) -> str:
    """Return why an operator has no name under which a program, or a reference, calls it again."""
    try:
        owner, name = owner_of(path)
        reachable = path.startswith("torch.") and getattr(owner, name) == function
    except AttributeError:
        reachable = False
    return "" if reachable else "goes by no public name of torch"


def _names(what: Any, args: Any, kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Return a name for each tensor argument: the parameter's, numbered where it holds several."""
    try:
        callee = what.forward if isinstance(what, torch.nn.Module) else what
        given = list(inspect.signature(callee).bind(*args, **kwargs).arguments.items())
    except (TypeError, ValueError):
        given = [(f"x{number}", value) for number, value in enumerate(args)] + list(kwargs.items())
    names: list[str] = []
    for name, value in given:
        tensors: list[torch.Tensor] = []
        split(value if not isinstance(value, dict) else dict(value), tensors)
        names += [name] if len(tensors) == 1 else [f"{name}_{number}" for number in range(len(tensors))]
    return tuple(names)


def _obstacle(
    inputs: list[torch.Tensor], outputs: list[torch.Tensor], before: tuple[list[int], Any], on_gpu: bool
) -> str:
    """Return why what a first call did is not what a kernel may do."""
    if _versions(inputs) != before[0]:
        return "changes a tensor in place"
    memories = {_memory(tensor) for tensor in inputs}
    if any(_memory(tensor) in memories for tensor in outputs):
        return "returns a view of its input: nothing is computed"
    if _generators(on_gpu) != before[1]:
        return "draws random numbers; call model.eval() if that is dropout"
    if not inputs:
        return NO_INPUT
    return ""


def _memory(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _versions(tensors: list[torch.Tensor]) -> list[int]:
    """Return how often each tensor was changed; tensors of inference mode do not count that."""
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _generators(on_gpu: bool) -> bytes:
    """Return the state of torch's generators, which only drawing changes."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if on_gpu else [])
    return b"".join(state.numpy().tobytes() for state in states)
