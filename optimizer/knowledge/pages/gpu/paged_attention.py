"""Decode with a paged cache: one query per sequence, with keys and values in the pages that a table lists."""

import torch
import triton
import triton.language as tl

PAGE = 16


@triton.jit
def decode_kernel(q, k, v, table, lengths, out, scale, pages, page: tl.constexpr, dim: tl.constexpr):
    """Compute out [sequences, dim] from q of the same shape and the pools k and v [pool pages, page, dim].

    table [sequences, pages] holds the number of each page in the pool.
    """
    sequence = tl.program_id(0)
    length = tl.load(lengths + sequence)
    inner, within = tl.arange(0, dim), tl.arange(0, page)
    query = tl.load(q + sequence * dim + inner).to(tl.float32)
    top, sum = float("-inf"), 0.0
    total = tl.zeros((dim,), tl.float32)
    for number in range(0, tl.cdiv(length, page)):  # up to its own length: no work for a batch's padding
        slot = tl.load(table + sequence * pages + number).to(tl.int64)  # 64 bits: pools exceed 2^31 elements
        at = slot * page * dim + within[:, None] * dim + inner
        inside = number * page + within < length
        keys = tl.load(k + at, mask=inside[:, None], other=0.0).to(tl.float32)
        scores = tl.where(inside, tl.sum(keys * query, 1) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 0))
        weights, shrink = tl.exp2(scores - higher), tl.exp2(top - higher)
        values = tl.load(v + at, mask=inside[:, None], other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(weights[:, None] * values, 0)
        sum = sum * shrink + tl.sum(weights, 0)
        top = higher
    tl.store(out + sequence * dim + inner, (total / sum).to(out.dtype.element_ty))


def custom_kernel(q, k, v, table, lengths):
    """Return the attention of one new token per sequence to the pages of that sequence. Lengths are at least 1."""
    out = torch.empty_like(q)
    scale = 1.4426950408889634 / q.shape[1] ** 0.5
    decode_kernel[(len(q),)](q, k, v, table, lengths, out, scale, table.shape[1], PAGE, q.shape[1], num_warps=2)
    return out


# --- check ---
LIMIT = 2e-3


def inputs(device):
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(3, 64, generator=generator).half()
    k, v = (torch.randn(40, PAGE, 64, generator=generator).half() for _ in range(2))
    table = torch.randperm(40, generator=generator)[:24].reshape(3, 8).to(torch.int32)
    lengths = torch.tensor([1, 37, 128], dtype=torch.int32)
    return tuple(tensor.to(device) for tensor in (q, k, v, table, lengths))


def expected(q, k, v, table, lengths):
    rows = []
    for i in range(len(q)):
        keys, values = (pool[table[i].long()].reshape(-1, 64)[: lengths[i]].double() for pool in (k, v))
        rows.append(torch.softmax(keys @ q[i].double() / 8, 0) @ values)
    return torch.stack(rows)
