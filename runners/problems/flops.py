"""Count the FLOPs of one dispatched torch operation from shapes alone.

The rule, operation by operation:

- Matrix products, convolutions and attention: torch's own formulas (`torch.utils.flop_counter`), two FLOPs for each
  multiply-add.
- Elementwise operations: one FLOP for each element of the output, whatever the function.
- Reductions and scans: one FLOP for each element of the input.
- Softmax and log-softmax: five for each element (maximum, difference, exponential, sum, quotient). Normalisations:
  eight for each element (mean, difference, square, sum, scale, shift, and the affine product and sum).
- Recurrent layers: their matrix products.
- Pooling: one for each element of every window. Interpolation: two for each tap beyond the first.
- Operations that only move or create data, and those on integers and booleans alone: none.

An operation that none of these covers has an unknown count: nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

Count = Callable[[Sequence[Any], Any], float]

# Operations that copy, create or index, and so compute nothing.
_MOVES = set(
    """
    alias arange as_strided as_strided_ cat clone constant_pad_nd copy copy_ _to_copy detach diag_embed embedding empty
    empty_like empty_strided eye fill fill_ flip full full_like gather im2col col2im index index_select lift_fresh
    lift_fresh_copy linspace masked_select new_empty new_empty_strided new_full new_ones new_zeros one_hot ones
    ones_like pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d replication_pad2d repeat roll
    scalar_tensor
    scatter scatter_ select_scatter slice_scatter stack triu triu_ tril tril_ unfold upsample_nearest1d
    upsample_nearest2d upsample_nearest3d zero_ zeros zeros_like nonzero index_put index_put_ _unsafe_index
    native_channel_shuffle randperm channel_shuffle masked_fill masked_fill_ _unsafe_view
    """.split()  # noqa: SIM905 - a word list
)
_SCANS = set(
    """
    argmax argmin cumsum cumsum_ cumprod logcumsumexp cummax cummin sort topk kthvalue median mode amax amin max min
    sum mean prod any all aminmax logsumexp std var var_mean norm nansum trace
    """.split()  # noqa: SIM905 - a word list
)
# FLOPs for each element of the first tensor argument.
_PER_ELEMENT = {
    "_softmax": 5.0, "_log_softmax": 5.0, "native_layer_norm": 8.0, "native_group_norm": 8.0,
    "native_batch_norm": 8.0, "_native_batch_norm_legit": 8.0, "_native_batch_norm_legit_no_training": 8.0,
    "_batch_norm_with_update": 8.0, "_batch_norm_no_update": 8.0, "cudnn_batch_norm": 8.0,
    "_fused_rms_norm": 4.0, "linalg_vector_norm": 2.0, "linalg_norm": 2.0,
    "hardswish": 1.0, "hardswish_": 1.0, "nll_loss_forward": 0.0,
    "binary_cross_entropy": 4.0, "huber_loss": 4.0, "smooth_l1_loss": 4.0, "mse_loss": 3.0,
}  # fmt: skip
# Neighbours that each output element of an interpolation is computed from.
_TAPS = {"upsample_linear1d": 2, "upsample_bilinear2d": 4, "upsample_trilinear3d": 8}


def flops_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> float | None:
    """Count the FLOPs of one call of an `OpOverload`, or return None if no rule covers it."""
    packet = func._overloadpacket
    name = packet.__name__
    if name == "mkldnn_rnn_layer":
        return _recurrent(args)
    if name in _MOVES or not _on_floats((args, kwargs, out)):
        return 0.0
    if packet in flop_registry:
        return float(flop_registry[packet](*args, **kwargs, out_val=out))
    if name == "_scaled_dot_product_flash_attention_for_cpu":
        return _attention(args)
    for rule in (_per_element, _window, _by_tag):
        count = rule(func, name, args, out)
        if count is not None:
            return count
    return None


def dtype_of(args: Sequence[Any], out: Any) -> str:
    """Return the floating dtype of an operation's arithmetic: that of its first floating argument, else of its
    output."""
    return str(_floats((args, out))[0].dtype).removeprefix("torch.")


def _on_floats(values: Any) -> bool:
    return bool(_floats(values))


def _floats(values: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor) and v.dtype.is_floating_point]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(values) if isinstance(v, torch.Tensor)]


def _per_element(func: Any, name: str, args: Sequence[Any], out: Any) -> float | None:
    if name in _PER_ELEMENT:
        return _PER_ELEMENT[name] * _tensors(args)[0].numel()
    if name in _TAPS:
        return 2.0 * (_TAPS[name] - 1) * _tensors(out)[0].numel()
    return float(_tensors(args)[0].numel()) if name in _SCANS else None


def _window(func: Any, name: str, args: Sequence[Any], out: Any) -> float | None:
    """Count pooling: elements of a window times windows.

    An adaptive pool reads each element of its input at least once.
    """
    if "adaptive" in name and "pool" in name:
        return float(_tensors(args)[0].numel())
    if "pool" not in name:
        return None
    dimensions = int(name[name.index("pool") + 4])
    kernel = args[1] if isinstance(args[1], list | tuple) else [args[1]]
    window = math.prod(kernel) if len(kernel) > 1 else kernel[0] ** dimensions
    return float(window * _tensors(out)[0].numel())


def _recurrent(args: Sequence[Any]) -> float:
    """Count one layer in one direction: its two matrix products for each step and sequence.

    The gates' own arithmetic is small beside them.
    """
    steps, sequences = args[0].shape[:2]
    return 2.0 * float(steps * sequences * (args[1].numel() + args[2].numel()))


def _by_tag(func: Any, name: str, args: Sequence[Any], out: Any) -> float | None:
    if torch.Tag.pointwise in func.tags:
        return float(_tensors(out)[0].numel())
    if torch.Tag.reduction in func.tags:
        return float(_tensors(args)[0].numel())
    return None


def _attention(args: Sequence[Any]) -> float:
    """Count two products of queries × keys × width for each head; a causal mask halves neither, as in torch's own."""
    query, key, value = args[:3]
    heads, queries, width = math.prod(query.shape[:-2]), query.shape[-2], query.shape[-1]
    keys, value_width = key.shape[-2], value.shape[-1]
    return 2.0 * float(heads * queries * keys * (width + value_width))
