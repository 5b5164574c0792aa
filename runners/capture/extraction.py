"""Write what a captured call computes as torch code that needs neither the program nor its classes.

An operator becomes one call of it. A module is traced: symbolically where that works (torch.fx, whose code serves any
shape), else for the captured shapes (make_fx), and then the code refuses other shapes. Either is executed against the
original before it is trusted.
"""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import resolve_name

from runners.capture.calls import Call
from runners.export.runtime.patching import owner_of
from runners.export.runtime.structure import join

# A graph beyond this is a model rather than a kernel.
MOST_NODES = 120
_MODES = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast")


class ExtractionError(ValueError):
    """Report that a computation cannot be written as plain torch code. The message says why."""


@dataclass(frozen=True)
class Code:
    """Hold the body of a function of the named tensors, which ends in `return`. `any_shape` says where it is right."""

    lines: tuple[str, ...]
    any_shape: bool


def extract(call: Call, names: Sequence[str]) -> Code:
    """Return the computation of a call over its tensors and the module's state. Raises ExtractionError."""
    if call.kind == "operator":
        outputs = f"result = {call.path}({_arguments(call.form, names)})"
        return Code((outputs, f"return {_leaves(call.result, 'result')}"), True)
    try:
        return _of_graph(_symbolic(call), names, any_shape=True)
    except Exception:  # tracing runs the program's own code, which may raise anything
        return _of_graph(_concrete(call), names, any_shape=False)


def original(call: Call, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run the captured operator or module itself on other tensors: inputs first, then the state."""
    with torch.no_grad(), call.casting:
        return _called(call, values)


def _called(call: Call, values: Sequence[Any]) -> list[Any]:
    inputs, state = values[: len(call.inputs)], values[len(call.inputs) :]
    args, kwargs = join(call.form, list(inputs))
    if call.module is None:
        owner, name = owner_of(call.path)
        return _tensors_in(getattr(owner, name)(*args, **kwargs))
    named = dict(zip(call.state, state, strict=True))
    return _tensors_in(torch.func.functional_call(call.module, named, tuple(args), kwargs, tie_weights=True))


def _concrete(call: Call) -> torch.fx.Graph:
    """Trace with tensors of the captured shapes. Control flow and sizes become those of these shapes."""
    notes = (*call.inputs, *call.state.values())
    device = next((p.device for p in call.module.parameters()), None) if call.module is not None else None
    values = [torch.zeros(note.shape, dtype=getattr(torch, note.dtype), device=device) for note in notes]
    try:
        with torch.no_grad(), call.casting:
            traced = make_fx(lambda *given: _called(call, given), pre_dispatch=True)(*values)
    except Exception as error:  # the module's own code runs here
        raise ExtractionError(
            f"cannot be traced: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
        ) from error
    constants = {name: value for name, value in vars(traced).items() if isinstance(value, torch.Tensor)}
    graph: Any = traced.graph
    graph.constants = constants | dict(traced.named_buffers())
    return graph  # type: ignore[no-any-return]


def _symbolic(call: Call) -> torch.fx.Graph:
    """Trace without values, through every part of the module. Raises whatever the module's code raises then."""
    if call.module is None:
        raise ExtractionError("not a module")
    root: Any = torch.nn.Module()
    root.inner = call.module
    names = [f"t{number}" for number in range(len(call.inputs))]

    def forward(*given: Any) -> Any:
        args, kwargs = join(call.form, given)
        return _tensors_in(root.inner(*args, **kwargs))

    # torch.fx counts the parameters of the function that it traces, so they have to be named.
    scope: dict[str, Any] = {"forward": forward}
    exec(f"def traced(self, {', '.join(names)}):\n    return forward({', '.join(names)})", scope)  # noqa: S102
    type_of_root = type("Root", (torch.nn.Module,), {"forward": scope["traced"]})
    root.__class__ = type_of_root
    graph = _Through().trace(root)
    positions = {f"inner.{name}": number for number, name in enumerate(call.state)}
    tied = {id(t): name for name, t in (*root.named_parameters(), *root.named_buffers())}
    _state_as_inputs(graph, root, positions, tied)
    return graph


class _Through(torch.fx.Tracer):
    """Trace into every module, so that only functions of torch remain."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Return False for every module."""
        return False


def _state_as_inputs(
    graph: torch.fx.Graph, root: torch.nn.Module, positions: dict[str, int], tied: dict[int, str]
) -> None:
    """Name for each read of the module's state which argument holds it. Raises ExtractionError for other tensors."""
    for node in graph.nodes:
        if node.op == "get_attr":
            value = root
            for part in str(node.target).split("."):
                value = getattr(value, part)
            name = tied.get(id(value), str(node.target))
            if name not in positions:
                raise ExtractionError(
                    f"reads {str(node.target).removeprefix('inner.')}, a tensor that is no buffer"
                )
            node.meta["state"] = positions[name]


def _of_graph(graph: torch.fx.Graph, names: Sequence[str], *, any_shape: bool) -> Code:
    nodes = list(graph.nodes)
    if len(nodes) > MOST_NODES + len(names):
        raise ExtractionError(f"{len(nodes)} operations are too many for one kernel")
    writer = _Writer(graph, names)
    lines = [line for node in nodes if (line := writer.line(node))]
    return Code(tuple(lines), any_shape)


class _Writer:
    """Write a graph's nodes as assignments."""

    def __init__(self, graph: torch.fx.Graph, names: Sequence[str]) -> None:
        self._inputs = iter(names)
        self._names = names
        self._state_at = sum(node.op == "placeholder" for node in graph.nodes)
        self._constants = getattr(graph, "constants", {})
        self._known: dict[torch.fx.Node, str] = {}

    def line(self, node: torch.fx.Node) -> str:
        """Return the statement of a node, empty for one that needs none. Raises ExtractionError."""
        self._known[node] = f"v_{node.name}"
        if node.op == "placeholder":
            self._known[node] = next(self._inputs)
        elif node.op == "get_attr":
            return self._read(node)
        elif node.op == "output":
            return f"return {self.text(tuple(node.args[0]))}"  # type: ignore[arg-type]
        elif getattr(node.target, "__name__", "") in _MODES:
            return self._mode(node)
        elif node.op == "call_method":
            first, *others = (self.text(argument) for argument in node.args)
            return f"v_{node.name} = {first}.{node.target}({', '.join([*others, *self._named(node)])})"
        elif node.op == "call_function":
            return f"v_{node.name} = {self._applied(node)}"
        else:
            raise ExtractionError(f"calls {node.target}, which could not be traced into")
        return ""

    def text(self, value: Any) -> str:
        """Return an argument as Python. Raises ExtractionError for what has no plain form."""
        if isinstance(value, torch.fx.Node):
            return self._known[value]
        if isinstance(value, tuple | list):
            inner = ", ".join(self.text(item) for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if isinstance(value, torch.device):
            return f"{self._names[0]}.device"
        return plain_text(value)

    def _read(self, node: torch.fx.Node) -> str:
        if "state" in node.meta:
            self._known[node] = self._names[self._state_at + node.meta["state"]]
            return ""
        constant = self._constants.get(str(node.target))
        if constant is None or constant.numel() > 16:
            raise ExtractionError(f"reads {node.target}, a tensor that is neither argument, parameter nor buffer")
        made = f"torch.tensor({constant.tolist()!r}, dtype={constant.dtype}, device={self._names[0]}.device)"
        return f"v_{node.name} = {made}"

    def _mode(self, node: torch.fx.Node) -> str:
        """Leave out switches of autograd, and of autocast where it is off anyway."""
        if "_enter_autocast" in getattr(node.target, "__name__", "") and node.args[2]:
            raise ExtractionError("switches autocast on")
        return ""

    def _named(self, node: torch.fx.Node) -> list[str]:
        return [f"{name}={self.text(value)}" for name, value in node.kwargs.items()]

    def _applied(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        if target is operator.getitem:
            return f"{self.text(node.args[0])}[{self.text(node.args[1])}]"
        arguments = ", ".join([*(self.text(value) for value in node.args), *self._named(node)])
        return f"{_function_name(target)}({arguments})"


def _function_name(target: Any) -> str:
    """Return how a function is called in the written code, which imports torch, math and operator only."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        if namespace not in ("aten", "prims"):
            raise ExtractionError(f"calls {target}, an operator that is no part of torch")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    if target is getattr:
        return "getattr"
    short = getattr(target, "__name__", "")
    for module in (operator, math):
        if getattr(module, short, None) is target:
            return f"{module.__name__}.{short}"
    path = str(resolve_name(target) or "")
    try:
        owner, name = owner_of(path)
        if path.startswith("torch.") and getattr(owner, name) == target:
            return path
    except AttributeError:
        pass
    raise ExtractionError(f"calls {getattr(target, '__name__', target)}, which is no function of torch")


def plain_text(value: Any) -> str:
    """Return a plain value as Python. Raises ExtractionError."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    raise ExtractionError(f"uses an object of class {type(value).__name__}")


def _arguments(form: Any, names: Sequence[str]) -> str:
    args, kwargs = form
    given = [_from_form(item, names) for item in args]
    given += [f"{name}={_from_form(item, names)}" for name, item in kwargs["dict"].items()]
    return ", ".join(given)


def _from_form(form: Any, names: Sequence[str]) -> str:
    """Return a described argument as Python, with its tensors by name."""
    if isinstance(form, list):
        return f"[{', '.join(_from_form(item, names) for item in form)}]"
    if not isinstance(form, dict):
        return plain_text(form)
    ((kind, inner),) = form.items()
    if kind == "tensor":
        return names[inner]
    if kind == "tuple":
        return "(" + "".join(f"{_from_form(item, names)}, " for item in inner) + ")"
    if kind == "dict":
        pairs = (f"{name!r}: {_from_form(item, names)}" for name, item in inner.items())
        return "{" + ", ".join(pairs) + "}"
    return f"torch.{inner}" if kind == "torch" else f"{names[0]}.device"


def _leaves(form: Any, value: str) -> str:
    """Return an expression for the tuple of tensors in a described result."""
    found: list[str] = []

    def collect(part: Any, where: str) -> None:
        if isinstance(part, list):
            for number, item in enumerate(part):
                collect(item, f"{where}[{number}]")
        elif isinstance(part, dict):
            ((kind, inner),) = part.items()
            if kind == "tensor":
                found.append(where)
            elif kind == "tuple":
                collect(list(inner), where)
            elif kind == "dict":
                for name, item in inner.items():
                    collect(item, f"{where}[{name!r}]")

    collect(form, value)
    return f"({', '.join(found)},)"


def _tensors_in(value: Any) -> list[Any]:
    """Return the tensors of a result in order; while a module is traced, proxies stand for them."""
    if isinstance(value, torch.Tensor | torch.fx.Proxy):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return []


def identifier(name: str, taken: Callable[[str], bool]) -> str:
    """Return a name that is a C and Python identifier and not taken."""
    base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name).strip("_") or "x"
    base = f"x{base}" if base[0].isdigit() else base
    if keyword.iskeyword(base) or base in _C_WORDS:
        base += "_"
    number, found = 1, base
    while taken(found):
        number += 1
        found = f"{base}_{number}"
    return found


_C_WORDS = frozenset(
    """alignas alignof and asm auto bool break case catch char class const continue default delete do double else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new operator or private
    protected public register return short signed sizeof static struct switch template this throw true try typedef
    typename union unsigned using virtual void volatile while xor out out0 out1 out2 stream kernel reference torch
    math""".split()  # noqa: SIM905 - sixty quoted words would fill the page
)
