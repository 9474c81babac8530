"""The data: the English reference text that every CPython carries, as passages for training and a part held out."""

from __future__ import annotations

import importlib
import random
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError
from detdata.seeding import current_sample

Bytes = npt.NDArray[np.uint8]

_LEAST = 100_000  # bytes; the releases from 3.11 on carry four times as much
_HELD_OUT = 0.1
_MASK = 0  # no byte of the text
_LETTERS = np.frombuffer(b" etaoinshrdlu", dtype=np.uint8)


class NoText(DetdataError, LookupError):
    """This Python does not carry the text that the demonstration trains on."""


def read_text() -> Bytes:
    """Return the language reference that `help()` shows, as UTF-8 bytes in the order of the topics' names.

    Raises NoText where this Python does not carry it.

    >>> len(read_text()) > 100_000
    True
    """
    try:
        topics: Any = getattr(importlib.import_module("pydoc_data.topics"), "topics", None)
    except ImportError:
        topics = None
    parts = topics.items() if isinstance(topics, dict) else ()
    pages = [page for _, page in sorted((k, v) for k, v in parts if isinstance(k, str) and isinstance(v, str))]
    text = np.frombuffer("\n\n".join(pages).encode(), dtype=np.uint8)
    if len(text) < _LEAST:
        raise NoText(
            f"pydoc_data.topics of this Python holds {len(text)} bytes of text, the demo needs {_LEAST}; "
            "install the full standard library (some distributions split it), or use another Python"
        )
    return text


def split(text: Bytes) -> tuple[Bytes, Bytes]:
    """Return the part to train on and the last tenth, held out.

    >>> [len(part) for part in split(np.zeros(1000, np.uint8))]
    [900, 100]
    """
    cut = len(text) - int(len(text) * _HELD_OUT)
    return text[:cut], text[cut:]


@final
class Passages:
    """`samples` passages of a text; each time one is read, another window of it, noisier in other places.

    A sample is (epoch, id, input int64[context], target int64[context]): the address comes with the data, so that what
    the log says is what the model has seen. Draws from python's, NumPy's and torch's global streams, as augmentations
    do that nobody wrote with a resume in mind.
    """

    def __init__(self, text: Bytes, *, samples: int, context: int) -> None:
        self.text = text
        self.samples = samples
        self.context = context
        self.length = len(text) // samples
        if self.length < context + 1:
            raise ArgumentValueError(
                f"{samples} passages of {len(text)} bytes have {self.length} bytes each, fewer than context + 1 = "
                f"{context + 1}; take fewer samples or a shorter context"
            )

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, id: int) -> tuple[int, int, torch.Tensor, torch.Tensor]:
        if not 0 <= id < self.samples:
            raise IndexError(f"sample id {id} is outside 0 … {self.samples - 1}")
        start = id * self.length + random.randrange(self.length - self.context)  # noqa: S311
        window = self.text[start : start + self.context + 1]
        seen = window[:-1].copy()
        noisy = np.random.random(self.context) < 0.03
        seen[noisy] = np.random.choice(_LETTERS, int(noisy.sum()))
        if torch.rand(()).item() < 0.3:
            hole = int(torch.randint(self.context, ()))
            seen[hole : hole + 4] = _MASK
        return current_sample().epoch, id, _as_tensor(seen), _as_tensor(window[1:])


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
