"""The one place where arrays of integers enter: checked and widened here, trusted everywhere else."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, OutOfRange

Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def as_int64(values: Any, name: str, *, below: int, what: str) -> Int64Array:
    """Return `values` (an int or integers of any shape) as int64, each checked to lie in [0, below).

    Raises TypeError for anything but integers and IndexError for one out of range. Cost O(len(values)).

    >>> as_int64([0, 2], "positions", below=3, what="position").dtype
    dtype('int64')
    """
    try:
        array = np.asarray(values)
    except (OverflowError, ValueError) as error:
        raise ArgumentTypeError(f"{name} must be an integer or an array of integers: {error}") from error
    if array.size == 0 and not isinstance(values, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype == object and array.size and all(type(item) is int for item in array.ravel()):
        bad = next((item for item in array.ravel() if not 0 <= item < below), None)
        if bad is not None:
            raise OutOfRange(f"{name}: {what} {bad} is outside 0 … {below - 1}")
    if isinstance(values, (list, tuple)) and bool in set(map(type, values)):  # NumPy makes integers of them
        raise ArgumentTypeError(f"{name} must be integers, got {brief(values)} with a bool among them")
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{name} must be an integer or an array of integers, got dtype {array.dtype}")
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= below:
            raise OutOfRange(f"{name}: {what} {low if low < 0 else high} is outside 0 … {below - 1}")
    return array.astype(np.int64, copy=False)
