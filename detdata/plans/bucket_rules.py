"""What decides the batches of a bucketed plan beside its changes: the index of lengths, sizes by bucket, tail, seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.plans.lengths import MAX_BUCKETS, MAX_LENGTH, LengthIndex, chunks, even_bounds

BucketTail: TypeAlias = Literal["drop", "keep", "pad"]
Oversized: TypeAlias = Literal["error", "clip", "alone"]
MOST_BUCKETS = 64  # where neither bounds nor a number are given: more gain little, and each leaves a mixed batch
_FEWEST = 64  # samples of a bucket on average, likewise


@dataclass(frozen=True, slots=True)
class Rules:
    """tokens: whether a batch's size is a budget of padded tokens. widths: of each bucket, int."""

    index: LengthIndex
    tokens: bool
    divisor: int
    seed: int
    tail: BucketTail
    limit: int
    oversized: Oversized

    @property
    def widths(self) -> list[int]:
        """The largest length of each bucket."""
        bounds: list[int] = self.index.bounds.tolist()
        return bounds

    def sizes(self, size: int) -> Int64Array:
        """Samples of a batch of each bucket. Raises ValueError if a bucket's samples are too long for it."""
        if not self.tokens:
            alone = (self.index.bounds > self.limit) & (self.oversized == "alone")
            return np.where(alone, self.divisor, size).astype(np.int64)
        found = size // np.maximum(self.index.bounds, 1) // self.divisor * self.divisor
        wrong = np.flatnonzero((found == 0) & (self.index.sizes > 0) & (self.index.bounds <= self.limit))
        if wrong.size:
            width = int(self.index.bounds[wrong[0]])
            raise ArgumentValueError(
                f"max_tokens is {size}, but {self.divisor} samples (divisor) as long as {width} take "
                f"{width * self.divisor}; raise max_tokens, or make the plan with a max_length and "
                "oversized='clip', or with oversized='alone'"
            )
        sizes: Int64Array = np.clip(found, self.divisor, 2**31 // self.divisor * self.divisor).astype(np.int64)
        return sizes

    def lengths(self, ids: Int64Array) -> Int64Array:
        """The lengths of samples as they count here: clipped, where that was asked for."""
        found = self.index.lengths[ids].astype(np.int64)
        return np.minimum(found, self.limit) if self.oversized == "clip" else found


def check_choice(value: object, name: str, choices: Any) -> Any:
    """Return one of some strings. Raises ValueError naming them."""
    if not isinstance(value, str) or value not in get_args(choices):
        raise ArgumentValueError(f"{name} must be one of {', '.join(get_args(choices))}; got {brief(value)}")
    return str(value)


def check_long(lengths: npt.NDArray[Any], limit: int, why: str) -> None:
    """Raise ValueError naming the first sample that is longer than `limit`."""
    for first, part in chunks(lengths):
        wrong = np.flatnonzero(part > limit)
        if wrong.size:
            at = first + int(wrong[0])
            raise ArgumentValueError(
                f"lengths[{at}] is {int(lengths[at])}, but {why}. Leave it out (Subset has no lengths: give those of "
                "what is left), or take oversized='clip' (it counts as that long, and is cut by whoever reads it) or "
                "oversized='alone' (a batch of its own)"
            )


def bounds_of(
    lengths: npt.NDArray[Any], boundaries: object, num_buckets: object, limit: int, oversized: str
) -> Int64Array:
    """Return the upper bounds of the buckets: the same for any size of batches, which may be changed on the way."""
    longest = int(lengths.max())
    if boundaries is not None:
        if num_buckets is not None:
            raise ArgumentTypeError("boundaries and num_buckets: give one of them")
        found = _given(boundaries)
    else:
        most = min(MOST_BUCKETS, max(1, lengths.size // _FEWEST))
        count = most if num_buckets is None else as_int(num_buckets, "num_buckets", low=1, high=MAX_BUCKETS)
        found = even_bounds(lengths, count, limit)
    top = longest if oversized != "clip" else min(longest, limit)
    found = found[found <= limit] if longest > limit else found
    if longest > limit and (not found.size or found[-1] < limit):
        found = np.append(found, limit)
    found = np.unique(np.minimum(found, top))
    return np.append(found, top) if found[-1] < top else found


def _given(boundaries: object) -> Int64Array:
    try:
        array = np.asarray(boundaries)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"boundaries must be integers in one dimension: {error}") from error
    if isinstance(boundaries, (list, tuple)) and bool in set(map(type, boundaries)):
        raise ArgumentTypeError(f"boundaries must be integers, got {brief(boundaries)} with a bool among them")
    if array.ndim != 1 or array.dtype.kind not in "iu" or not array.size:
        raise ArgumentTypeError(f"boundaries must be integers in one dimension, at least one; got {brief(boundaries)}")
    if int(array.min()) < 0 or int(array.max()) > MAX_LENGTH or (np.diff(array.astype(np.int64)) <= 0).any():
        raise ArgumentValueError(f"boundaries must ascend, from 0 to 2**40; got {brief(boundaries)}")
    if array.size >= MAX_BUCKETS:
        raise ArgumentValueError(f"boundaries make {array.size} buckets; at most {MAX_BUCKETS - 1} are possible")
    return array.astype(np.int64)
