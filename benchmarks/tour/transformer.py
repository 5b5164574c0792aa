"""Run a small transformer in plain torch with random weights, as a user would have it: `python transformer.py`."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    """Scale by the root mean square over the last axis."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled tokens."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return scaled.to(x.dtype) * self.weight


class Gate(nn.Module):
    """Gate one half of the hidden layer by the other."""

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return SiLU(gate) times value."""
        return F.silu(gate) * value


class Block(nn.Module):
    """Apply attention and a gated feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = RMSNorm(width), RMSNorm(width)
        self.qkv, self.joined = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate = Gate()
        self.up, self.side = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after this layer."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.joined(attended.transpose(1, 2).reshape(batch, tokens, width))
        inner = self.between(x)
        out: torch.Tensor = x + self.down(self.gate(self.up(inner), self.side(inner)))
        return out


class Transformer(nn.Module):
    """Embed tokens and apply a stack of layers."""

    def __init__(self, width: int, heads: int, layers: int, words: int = 1000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        out: torch.Tensor = self.head(self.last(x))
        return out


def settings() -> tuple[str, torch.dtype, int, int, int, int]:
    """Return device, type, width, layers, batch and tokens: a GPU gets a larger model in half precision."""
    if torch.cuda.is_available():
        return "cuda", torch.float16 if "fp16" in sys.argv else torch.bfloat16, 2048, 8, 4, 1024
    return "cpu", torch.float32, 256, 4, 2, 512


DEVICE, DTYPE, WIDTH, LAYERS, BATCH, TOKENS = settings()
torch.manual_seed(0)
MODEL = Transformer(WIDTH, WIDTH // 64, LAYERS).to(DEVICE, DTYPE).eval()
PROMPT = torch.randint(1000, (BATCH, TOKENS)).to(DEVICE)


def main() -> torch.Tensor:
    """Return the logits of a batch of prompts."""
    with torch.no_grad():
        return MODEL(PROMPT)  # type: ignore[no-any-return]


if __name__ == "__main__":
    print(f"mean logit {main().float().mean().item():.6f}")
