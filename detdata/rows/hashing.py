"""The hash functions that a digest of rows can be made with."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import brief
from detdata.errors import ArgumentValueError

SIZES = {"xxh3-128": 16, "sha256": 32, "blake3": 32}  # bytes of a digest


class Hasher(Protocol):
    """What all of them offer."""

    def update(self, data: Any, /) -> Any:
        """Add the bytes of a contiguous buffer."""

    def digest(self) -> bytes:
        """Return the digest of all bytes so far."""

    def copy(self) -> Any:
        """Return a hasher of the same bytes that goes on by itself."""


def new_hasher(algorithm: str, data: bytes = b"") -> Hasher:
    """Return a hasher that has had `data`. Raises ValueError for an unknown name, ImportError where blake3 is missing.

    >>> new_hasher("xxh3-128").digest().hex()
    '99aa06d3014798d86001c324468d497f'
    """
    if algorithm == "xxh3-128":
        hasher: Hasher = xxhash.xxh3_128(data)
        return hasher
    if algorithm == "sha256":
        return hashlib.sha256(data)
    if algorithm == "blake3":
        try:
            from blake3 import blake3
        except ImportError as error:
            raise ImportError("blake3 is not installed: pip install 'detdata[blake3]'") from error
        strong: Hasher = blake3(data)
        return strong
    raise ArgumentValueError(f"algorithm must be one of {', '.join(map(repr, SIZES))}, got {brief(algorithm)}")


def as_bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the little-endian bytes of an array, uint8[n]; without a copy wherever there need not be one."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8)


def prefixed(text: str) -> bytes:
    """Return the UTF-8 bytes of a text after their number, as 8 bytes, little-endian.

    >>> prefixed("ab")
    b'\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00ab'
    """
    data = text.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(8, "little") + data
