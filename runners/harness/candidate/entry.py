"""The callable of a Python candidate, made ready from what it is given once before its first call.

Used inside the sandbox, where it finds no problem code and no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

ENTRY_POINTS = ("custom_kernel", "ModelNew")


@dataclass(frozen=True)
class Setup:
    """`wanted`: the entry point that the problem asks for. `init` and `state`: constructor arguments and weights of
    a `ModelNew`; `weight_seed` is set before its construction, `call_seed` before every call. None: not set."""

    wanted: str = ENTRY_POINTS[0]
    init: list[Any] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    weight_seed: int | None = None
    call_seed: int | None = None


def entry_of(namespace: Mapping[str, Any], setup: Setup, device: str = "cpu") -> Callable[..., Any]:
    """The callable that takes the positional inputs: the function `custom_kernel`, or an instance of `ModelNew`
    on `device` with the reference's weights. Where the wanted one is absent the other serves.

    Raises LookupError naming both where the module defines neither.
    """
    name = next((n for n in (setup.wanted, *ENTRY_POINTS) if n in namespace), None)
    if name is None:
        raise LookupError(f"the module defines neither {' nor '.join(ENTRY_POINTS)}")
    entry: Callable[..., Any] = namespace[name]
    call = _model(entry, setup, device) if isinstance(entry, type) else entry
    return call if setup.call_seed is None else _seeded(call, setup.call_seed)


def load_matching(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> bool:
    """Load weights by name where every parameter and buffer of the model has one of its shape in `state`.

    Returns whether that was so; where not, the model keeps the weights that it drew from the public seed.
    """
    own = model.state_dict()
    matches = bool(own) and all(name in state and state[name].shape == value.shape for name, value in own.items())
    if matches:
        model.load_state_dict({name: state[name] for name in own})
    return matches


def _model(cls: type, setup: Setup, device: str) -> Callable[..., Any]:
    """Built on the device, like the reference: the same seed draws other numbers on another kind of device."""
    if setup.weight_seed is not None:
        torch.manual_seed(setup.weight_seed)
    with torch.device(device):
        model: Callable[..., Any] = cls(*setup.init)
    if isinstance(model, torch.nn.Module):
        load_matching(model, setup.state)
        model = model.to(device)
    return model


def _seeded(call: Callable[..., Any], seed: int) -> Callable[..., Any]:
    def seeded(*arguments: Any) -> Any:
        torch.manual_seed(seed)
        return call(*arguments)

    return seeded
