"""The digest of batches: what they consist of, whatever plan made them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xxhash

from detdata.plans.batch import Batch


def digest_of(batch_at: Callable[[int], Batch], first: int, last: int) -> str:
    """Return the digest of the batches of steps first … last - 1 (docs/spec.md, section 4). O(samples)."""
    state = xxhash.xxh3_128()
    for step in range(first, last):
        batch = batch_at(step)
        state.update(np.array([len(batch)], dtype="<i8").tobytes())
        state.update(batch.ids.astype("<i8").tobytes())
        state.update(batch.real.tobytes())
    return "xxh3-128:" + state.hexdigest()
