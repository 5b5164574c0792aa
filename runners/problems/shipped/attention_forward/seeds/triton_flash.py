# @tune BLOCK_Q 64 128 default=128
# @tune BLOCK_K 32 64 128 default=64
# @tune WARPS 4 8 default=8
# @tune STAGES 1 2 3 default=2
import torch
import triton
import triton.language as tl

BLOCK_Q = 128
BLOCK_K = 64
WARPS = 8
STAGES = 2


@triton.jit
def step(
    queries, k, v, top, sum, total, rows, start, length, scale,
    masked: tl.constexpr, bk: tl.constexpr, dim: tl.constexpr,
):  # fmt: skip
    """One block of keys and values: scores, online softmax, weighted sum."""
    columns, inner = start + tl.arange(0, bk), tl.arange(0, dim)
    keys = tl.load(k + columns[None, :] * dim + inner[:, None], mask=columns[None, :] < length, other=0.0)
    scores = tl.dot(queries, keys) * scale
    if masked:
        scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
    values = tl.load(v + columns[:, None] * dim + inner[None, :], mask=columns[:, None] < length, other=0.0)
    total = tl.dot(weights.to(tl.bfloat16), values, total * shrink[:, None])
    return higher, sum * shrink + tl.sum(weights, 1), total


@triton.jit
def attention_kernel(
    q, k, v, out, heads, kv_heads, length, scale, bq: tl.constexpr, bk: tl.constexpr, dim: tl.constexpr
):
    """One program a block of queries; blocks below the diagonal need no mask. `scale` is log2(e) / sqrt(dim)."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # long rows first
    head = tl.program_id(1)
    shared = (head // heads * kv_heads + head % heads // (heads // kv_heads)).to(tl.int64) * length * dim
    rows, inner = block * bq + tl.arange(0, bq), tl.arange(0, dim)
    place = head.to(tl.int64) * length * dim + rows[:, None] * dim + inner[None, :]
    queries = tl.load(q + place, mask=rows[:, None] < length, other=0.0)
    top = tl.full((bq,), float("-inf"), tl.float32)
    sum = tl.zeros((bq,), tl.float32)
    total = tl.zeros((bq, dim), tl.float32)
    diagonal = block * bq // bk * bk
    for start in range(0, diagonal, bk):
        top, sum, total = step(
            queries, k + shared, v + shared, top, sum, total, rows, start, length, scale, False, bk, dim
        )
    for start in range(diagonal, tl.minimum((block + 1) * bq, length), bk):
        top, sum, total = step(
            queries, k + shared, v + shared, top, sum, total, rows, start, length, scale, True, bk, dim
        )
    tl.store(out + place, (total / sum[:, None]).to(tl.bfloat16), mask=rows[:, None] < length)


def custom_kernel(q, k, v):
    """q [batch, heads, length, dim], k and v [batch, kv_heads, length, dim] bfloat16 -> causal attention, as q."""
    batch, heads, length, dim = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(length, BLOCK_Q), batch * heads)
    scale = 1.4426950408889634 / dim**0.5
    attention_kernel[grid](
        q, k, v, out, heads, k.shape[1], length, scale, BLOCK_Q, BLOCK_K, dim, num_warps=WARPS, num_stages=STAGES
    )
    return out
