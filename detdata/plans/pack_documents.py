"""The documents of a packed plan: their lengths, and the cuts that are made of them, each built once."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from detdata.checks import MAX_SIZE, as_int, as_seed
from detdata.errors import ArgumentValueError
from detdata.plans.lengths import as_lengths, chunks, lengths_digest
from detdata.plans.pack_bins import Bins
from detdata.plans.pack_cuts import Cut, FitCut, JoinedCut
from detdata.plans.pack_stream import TokenStream
from detdata.records import Spec

Method: TypeAlias = Literal["concat", "best_fit"]


class Documents:
    """What all phases of a plan share. lengths: integers of any width; seed; method.

    Raises TypeError for anything but integers, ValueError for none, for negative ones and for no token at all.
    """

    def __init__(self, lengths: npt.ArrayLike, seed: int, method: Method) -> None:
        if not isinstance(method, str) or method not in get_args(Method):
            raise ArgumentValueError(f"method must be one of {', '.join(get_args(Method))}; got {method!r}")
        self.method: Method = method
        self.seed = as_seed(seed)
        self.lengths = as_lengths(lengths)
        self.tokens = sum(int(part.sum(dtype=np.int64)) for _, part in chunks(self.lengths))
        if not 0 < self.tokens <= MAX_SIZE:
            what = "every document is empty" if self.tokens == 0 else "at most 2**62 are possible"
            raise ArgumentValueError(f"lengths has {self.lengths.size} documents with {self.tokens} tokens: {what}")
        self._bins: dict[int, Bins] = {}

    @cached_property
    def digest(self) -> str:
        """Digest of the lengths."""
        return lengths_digest(self.lengths)

    def spec(self) -> Spec:
        """Return what a spec says of the lengths: how many, and their digest."""
        return {"count": int(self.lengths.size), "digest": self.digest}

    def cut(self, seq_len: Any, *, epoch: int, token: int, base: int) -> Cut:
        """Return a cut of these documents: see detdata.plans.pack_cuts."""
        size = as_int(seq_len, "seq_len", low=1, high=2**40)
        if token >= self.tokens:
            raise ArgumentValueError(f"token is {token}, but an epoch has {self.tokens} tokens")
        if self.method == "concat":
            return JoinedCut(self._stream, self.tokens, size, epoch=epoch, token=token, base=base)
        if size not in self._bins:
            self._bins = {**self._bins, size: Bins(self.lengths, size, self.seed)}
        return FitCut(self._bins[size], self.seed, epoch=epoch, token=token, base=base)

    @cached_property
    def _stream(self) -> TokenStream:
        return TokenStream(self.lengths, self.seed)
