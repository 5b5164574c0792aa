"""The callable of a Python candidate or reference module, made ready from a CandidateSetup. Needs torch.

Imported by the candidate process too: it holds no problem code and no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runners.problems.base import CandidateSetup
from runners.problems.structure import positional

ENTRY_POINTS = ("custom_kernel", "ModelNew")


def entry_of(
    namespace: Mapping[str, Any], setup: CandidateSetup, wanted: str, device: str = "cpu"
) -> Callable[..., Any]:
    """The callable that takes the positional inputs: the function `custom_kernel`, or an instance of `ModelNew`
    on `device` with the reference's weights, called without gradients. `wanted` is the problem's entry point; where
    it is absent the other serves.

    Raises LookupError naming both where the module defines neither.
    """
    name = next((n for n in (wanted, *ENTRY_POINTS) if n in namespace), None)
    if name is None:
        raise LookupError(f"the module defines neither {' nor '.join(ENTRY_POINTS)}")
    entry: Callable[..., Any] = namespace[name]
    call = _model(entry, setup, device) if isinstance(entry, type) else entry
    return call if setup.call_seed is None else _seeded(call, setup.call_seed)


def _model(cls: Callable[..., Any], setup: CandidateSetup, device: str) -> Callable[..., Any]:
    import torch

    if setup.weight_seed is not None:
        torch.manual_seed(setup.weight_seed)
    model = cls(*positional(setup.init))
    if isinstance(model, torch.nn.Module):
        load_matching(model, setup.state)
        model = model.to(device)
    without_gradients: Callable[..., Any] = torch.no_grad()(model.__call__)
    return without_gradients


def load_matching(model: Any, state: Mapping[str, Any]) -> bool:
    """Load weights by name where every parameter and buffer of the model has one of its shape in `state`.

    Returns whether that was so; where not, the model keeps the weights that it drew from the public seed.
    """
    own = model.state_dict()
    matches = bool(own) and all(name in state and state[name].shape == value.shape for name, value in own.items())
    if matches:
        model.load_state_dict({name: state[name] for name in own})
    return matches


def _seeded(call: Callable[..., Any], seed: int) -> Callable[..., Any]:
    import torch

    def seeded(*arguments: Any) -> Any:
        torch.manual_seed(seed)
        return call(*arguments)

    return seeded
