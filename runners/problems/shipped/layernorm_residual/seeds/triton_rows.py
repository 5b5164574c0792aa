# @tune BLOCK 1024 2048 4096 8192 default=4096
# @tune WARPS 4 8 16 default=8
import torch
import triton
import triton.language as tl

BLOCK = 4096
WARPS = 8


@triton.jit
def layernorm_kernel(x, residual, weight, bias, summed, out, cols, eps, block: tl.constexpr):
    """One program a row: sum and mean, then the variance around it, then the normalised row."""
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, block)
    total = tl.zeros((block,), tl.float32)
    for start in range(0, cols, block):
        inside = start + lanes < cols
        at = row + start + lanes
        value = tl.load(x + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
        tl.store(summed + at, value, mask=inside)
        total += value
    mean = tl.sum(total, 0) / cols
    spread = tl.zeros((block,), tl.float32)
    for start in range(0, cols, block):
        inside = start + lanes < cols
        at = row + start + lanes
        value = tl.load(x + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
        spread += tl.where(inside, (value - mean) * (value - mean), 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(spread, 0) / cols + eps)
    for start in range(0, cols, block):
        inside = start + lanes < cols
        at = row + start + lanes
        value = tl.load(x + at, mask=inside, other=0.0) + tl.load(residual + at, mask=inside, other=0.0)
        w = tl.load(weight + start + lanes, mask=inside, other=0.0)
        b = tl.load(bias + start + lanes, mask=inside, other=0.0)
        tl.store(out + at, (value - mean) * scale * w + b, mask=inside)


def custom_kernel(x, residual, weight, bias, eps):
    """x, residual [rows, cols], weight, bias [cols] -> their sum and its normalisation over the last dimension."""
    rows, cols = x.shape
    summed, out = torch.empty_like(x), torch.empty_like(x)
    block = min(BLOCK, triton.next_power_of_2(cols))
    layernorm_kernel[(rows,)](x, residual, weight, bias, summed, out, cols, eps, block, num_warps=WARPS)
    return summed, out
