"""Values as the bytes that are hashed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


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
