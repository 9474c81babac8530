"""Samples of the text: passages that show another window each time, and windows that are always the same."""

from __future__ import annotations

import random
from typing import Any, final

import numpy as np
import torch

from detdata.arrays import Int64Array
from detdata.corpora.corpus import Corpus
from detdata.demo.text import Bytes
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.look_ahead import Notice
from detdata.seeding import current_sample

_MASK = 0  # no byte of the text
_LETTERS = np.frombuffer(b" etaoinshrdlu", dtype=np.uint8)


@final
class Passages:
    """Passages of a text; each time one is read, another window of it, noisier in other places.

    rows: the passages, uint8[length] each and all of one length: uint8[n, length], or a corpus with such rows.

    A sample is (epoch, id, input int64[context], target int64[context]): the address comes with the data, so that what
    the log says is what the model has seen. Draws from python's, NumPy's and torch's global streams, as augmentations
    do that nobody wrote with a resume in mind.
    """

    def __init__(self, rows: Bytes | Corpus, *, context: int) -> None:
        self.rows = rows
        self.context = context
        self.length = len(rows[0])
        if self.length < context + 1:
            raise ArgumentValueError(
                f"{len(rows)} passages have {self.length} bytes each, fewer than context + 1 = {context + 1}; "
                "take fewer samples or a shorter context"
            )

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, id: int) -> tuple[int, int, torch.Tensor, torch.Tensor]:
        if not 0 <= id < len(self):
            raise IndexError(f"sample id {id} is outside 0 … {len(self) - 1}")
        start = random.randrange(self.length - self.context)  # noqa: S311
        window = self.rows[id][start : start + self.context + 1]
        seen = window[:-1].copy()
        noisy = np.random.random(self.context) < 0.03
        seen[noisy] = np.random.choice(_LETTERS, int(noisy.sum()))
        if torch.rand(()).item() < 0.3:
            hole = int(torch.randint(self.context, ()))
            seen[hole : hole + 4] = _MASK
        return current_sample().epoch, id, _as_tensor(seen), _as_tensor(window[1:])

    # Whoever wraps a corpus hands on what the Loader tells it of the future.

    def blocks_of(self, ids: Any) -> Int64Array:
        """Return the blocks of a corpus that samples lie in."""
        if not isinstance(self.rows, Corpus):
            raise ArgumentTypeError("these passages are an array, which has no blocks")
        return self.rows.blocks_of(ids)

    def expect(self, notice: Notice) -> bool:
        """Take notice of the blocks that will be needed, and return whether that is of any use."""
        return isinstance(self.rows, Corpus) and self.rows.expect(notice)


def windows(text: Bytes, *, count: int, context: int) -> torch.Tensor:
    """Return int64[count, context + 1]: windows at even distances over `text`, always the same.

    >>> windows(np.arange(100, dtype=np.uint8), count=2, context=3).tolist()
    [[0, 1, 2, 3], [48, 49, 50, 51]]
    """
    room = len(text) - context - 1
    if room < 0:
        raise ArgumentTypeError(f"text of {len(text)} bytes is shorter than one window of {context + 1}")
    return torch.stack([_as_tensor(text[s : s + context + 1]) for s in (i * room // count for i in range(count))])


def _as_tensor(values: Bytes) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))
