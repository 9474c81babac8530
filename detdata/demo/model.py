"""A small byte-level transformer, with dropout wherever there usually is some."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor, nn

_VOCABULARY = 256


@final
class Transformer(nn.Module):
    """Predict each next byte. int64[b, t] -> float[b, t, 256], for t up to `context`.

    >>> Transformer(layers=1, heads=2, width=8, context=4, dropout=0.1)(torch.zeros(3, 4, dtype=torch.int64)).shape
    torch.Size([3, 4, 256])
    """

    def __init__(self, *, layers: int, heads: int, width: int, context: int, dropout: float) -> None:
        super().__init__()
        self.bytes = nn.Embedding(_VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(heads, width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _VOCABULARY)
        nn.init.normal_(self.bytes.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        length = tokens.shape[1]
        x = self.dropout(self.bytes(tokens) + self.places[:length])
        future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        for block in self.blocks:
            x = block(x, future)
        return cast("Tensor", self.head(self.norm(x)))


@final
class _Block(nn.Module):
    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.norm_mlp = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        x = x + self.dropout(self.out(self._attend(self.norm_attention(x), future)))
        return x + cast("Tensor", self.dropout(self.mlp(self.norm_mlp(x))))

    def _attend(self, x: Tensor, future: Tensor) -> Tensor:
        """Attention in plain operations: the fused kernels have backward passes that may sum in any order."""
        batch, length, width = x.shape
        size = width // self.heads
        query, key, value = self.qkv(x).view(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-1, -2)) * size**-0.5
        weights = self.dropout(scores.masked_fill(future, float("-inf")).softmax(-1))
        return cast("Tensor", (weights @ value).transpose(1, 2).reshape(batch, length, width))
