"""The one place where integers and integer arrays enter: checked and widened here, trusted everywhere else."""

from __future__ import annotations

import operator
import reprlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from detdata.errors import ArgumentTypeError, ArgumentValueError, OutOfRange

Int64Array: TypeAlias = npt.NDArray[np.int64]
UInt64Array: TypeAlias = npt.NDArray[np.uint64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

MAX_SEED = 2**63 - 1
MAX_SIZE = 2**62


def as_int(value: object, name: str, *, low: int = 0, high: int | None = None, why: str = "") -> int:
    """Return `value` as a Python int in [low, high].

    Python and NumPy integers of any width are integers; bool, float and str are not.
    Raises TypeError or ValueError naming the argument, the value and what is allowed; `why` ends the message.

    >>> as_int(np.int32(7), "batch_size", low=1)
    7
    """
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
        raise ArgumentTypeError(f"{name} must be an integer, got {brief(value)} of type {type(value).__name__}{why}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:  # an array of many elements has __index__ too
        raise ArgumentTypeError(f"{name} must be one integer, got {type(value).__name__}{why}") from error
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"in {low} … {high}"
        raise ArgumentValueError(f"{name} must be {limit}, got {number}{why}")
    return number


def brief(value: object) -> str:
    """Return a value's repr, cut to what a message can hold: a wrong argument may be a list of a million items.

    >>> brief(list(range(10**6)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    return _brief.repr(value)


_brief = reprlib.Repr()


def as_seed(value: object, name: str = "seed") -> int:
    """Return `value` as a seed: an integer in 0 … 2**63 - 1.

    >>> as_seed(0)
    0
    """
    return as_int(value, name, low=0, high=MAX_SEED)


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
    if isinstance(values, (list, tuple)) and any(type(item) is bool for item in values):  # NumPy makes integers of them
        raise ArgumentTypeError(f"{name} must be integers, got {brief(values)} with a bool among them")
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(f"{name} must be an integer or an array of integers, got dtype {array.dtype}")
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= below:
            raise OutOfRange(f"{name}: {what} {low if low < 0 else high} is outside 0 … {below - 1}")
    return array.astype(np.int64, copy=False)


def as_version(value: object) -> str | None:
    """Return a dataset's version as text: a string, the `.digest` of whatever has one, or None."""
    digest = value if value is None or isinstance(value, str) else getattr(value, "digest", None)
    if value is not None and not (isinstance(digest, str) and digest):
        raise ArgumentTypeError(
            "dataset_version must be a string or have a .digest that is one (as a Manifest has), "
            f"got {type(value).__name__}"
        )
    return digest
