"""The data: the English reference text that every CPython carries: passages to train on, a part held out."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from detdata.checks import as_int
from detdata.errors import ArgumentValueError, DetdataError

Bytes = npt.NDArray[np.uint8]

_LEAST = 100_000  # bytes; the releases from 3.11 on carry four times as much
_HELD_OUT = 0.1


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


def cut(text: Bytes, samples: int) -> Bytes:
    """Return uint8[samples, length], a view: the text as passages of one length. Less than one each is left over.

    Raises ValueError for more samples than bytes.

    >>> cut(np.arange(7, dtype=np.uint8), 3).tolist()
    [[0, 1], [2, 3], [4, 5]]
    """
    length = len(text) // as_int(samples, "samples", low=1)
    if not length:
        raise ArgumentValueError(f"{len(text)} bytes of text are fewer than samples = {samples}")
    return text[: samples * length].reshape(samples, length)
