"""What a worker does with a source row: filter it, map it, make tokens of it; and what it sends back of many.

Runs inside `detdata.reading.Reader`, so whatever these functions draw is seeded by the row's address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError

Filter: TypeAlias = Callable[[Any], Any]
Map: TypeAlias = Callable[[Any], Any]


class _Marker(Enum):
    DROPPED = 0


_DROPPED = _Marker.DROPPED  # stands where the filter kept no row; never leaves the process that read it


@dataclass(frozen=True, slots=True)
class Packing:
    """How rows become sequences of seq_len tokens. tokens: column or function that gives a row's; eos: after each."""

    seq_len: int
    tokens: str | Callable[[Any], Any] | None
    eos: int | None

    def of(self, row: Any, id: int) -> Int64Array:
        """Return the tokens of a row, with the one that ends it, as int64[n]. Raises TypeError, ValueError."""
        if callable(self.tokens):
            found = self.tokens(row)
        elif isinstance(self.tokens, str):
            if not isinstance(row, dict) or self.tokens not in row:
                has = f"only {sorted(map(str, row))}" if isinstance(row, dict) else f"it is a {type(row).__name__}"
                raise ArgumentValueError(f"row {id} has no column {self.tokens!r} to take tokens from, {has}")
            found = row[self.tokens]
        else:
            found = row
        array = np.asarray(found)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ArgumentTypeError(
                f"the tokens of row {id} must be integers in one list or array, got {brief(found)}; "
                "say where they are: tokens= a column's name, or a function of the row"
            )
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise ArgumentValueError(f"row {id} has the token {array.max()}; tokens go up to 2**63 - 1")
        ended = array.astype(np.int64)
        return ended if self.eos is None else np.append(ended, np.int64(self.eos))


@final
class RowReader:
    """A map-style dataset of what becomes of each source row. Picklable if its parts are."""

    def __init__(self, dataset: Any, filter: Filter | None, map: Map | None, packing: Packing | None) -> None:
        self.dataset = dataset
        self.filter = filter
        self.map = map
        self.packing = packing

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, id: int) -> Any:
        return self._made(id, self.dataset[id])

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        if not callable(many):
            return [self._made(id, self.dataset[id]) for id in ids]
        return [self._made(id, row) for id, row in zip(ids, many(list(ids)), strict=True)]

    @property
    def blocks_of(self) -> Any:
        """The dataset's own, if it has one: what tells which blocks will be needed (detdata.look_ahead)."""
        return getattr(self.dataset, "blocks_of", None)

    @property
    def expect(self) -> Any:
        """The dataset's own, if it has one."""
        return getattr(self.dataset, "expect", None)

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset its epoch, where it wants to know."""
        tell = getattr(self.dataset, "set_epoch", None)
        if callable(tell):
            tell(epoch)

    def _made(self, id: int, row: Any) -> Any:
        if self.filter is not None and not self.filter(row):
            return _DROPPED
        if self.map is not None:
            row = self.map(row)
        return row if self.packing is None else self.packing.of(row, id)


class Chunk(NamedTuple):
    """What came of some rows. kept: int64[k], which of them; rows: those; or their tokens, all in one array."""

    kept: Int64Array
    rows: list[Any] | Int64Array
    lengths: Int64Array | None


def collect(samples: list[Any]) -> Chunk:
    """Collate rows for a lane: only those that were kept."""
    kept = [at for at, sample in enumerate(samples) if sample is not _DROPPED]
    return Chunk(np.array(kept, dtype=np.int64), [samples[at] for at in kept], None)


def collect_tokens(samples: list[Any]) -> Chunk:
    """Collate the tokens of rows for a lane: one array is sent faster than many."""
    rows = collect(samples)
    lengths = np.array([row.size for row in rows.rows], dtype=np.int64)
    flat = np.concatenate([np.empty(0, np.int64), *rows.rows])
    return Chunk(rows.kept, flat, lengths)


@final
class CollateKept:
    """Collate the rows of a batch that were kept; [] where there is none. Gives (which of them, the batch)."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[Any]) -> tuple[list[int], Any]:
        """Return (which samples were kept, the batch of these)."""
        kept = [at for at, sample in enumerate(samples) if sample is not _DROPPED]
        return kept, self.collate([samples[at] for at in kept]) if kept else []
