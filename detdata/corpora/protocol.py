"""What a format of files is to a corpus: the one protocol that every format implements, ours and yours.

A file is a run of blocks, a block is a run of rows. An `Outline` says how many rows each block has, and whatever else
the format must know to find a block without reading what lies before it. It is made once for each file; where making
it means reading the file, it is stored as an index.

To read rows, a `Shard` gives a block in two moves. `load` does what is expensive (fetching, inflating, decoding) and
gives the block as one flat buffer, which can be kept, counted in bytes, written to a cache and mapped by another
process. `view` makes `Rows` of such a buffer and is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.corpora.files import DataFile

Buffer: TypeAlias = Any  # whatever memoryview() takes: bytes, mmap, pyarrow.Buffer, an array of uint8
Progress: TypeAlias = Callable[[int], None]  # called with bytes done since the last call


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was asked of `open_corpus`, as far as it concerns formats. Immutable, picklable.

    columns: names to give, in this order, or None for all. seq_len: tokens of a window. dtype: of raw token files, as
    NumPy writes it ("uint16"). rows_per_block: of formats that have no blocks of their own, or None for the format's
    choice. text_column: what the one column of plain text is called. extra: whatever else a format takes by name.
    """

    columns: tuple[str, ...] | None = None
    seq_len: int | None = None
    dtype: str | None = None
    rows_per_block: int | None = None
    text_column: str = "text"
    extra: tuple[tuple[str, Any], ...] = ()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an extra option.

        >>> Options(extra=(("delimiter", ";"),)).get("delimiter", ",")
        ';'
        """
        return dict(self.extra).get(name, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Where the rows of one file are.

    block_sizes: int64[blocks], rows of each block; zeros are allowed. arrays: whatever else finds a block, by name.
    meta: plain JSON beside them. Both hold all that `Format.open` needs beside the file itself.
    """

    block_sizes: Int64Array
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the file.

        >>> import numpy as np
        >>> Outline(block_sizes=np.array([3, 2])).rows
        5
        """
        return int(self.block_sizes.sum())


class Rows(Protocol):
    """The rows of one block, as they are asked for. Valid as long as somebody holds it.

    Rows that are arrays of one shape may also have `arrays(rows: int64[n])`, which gives {column: array of n rows}, a
    copy: NumPy and torch columns are then made of that, without Arrow.
    """

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return these rows, numbered from 0 in the block, in any order and as often as asked: dicts by default.

        Raises CorpusError with `row` for one that is broken.
        """
        ...

    def arrow(self, rows: Int64Array) -> Any:
        """Return these rows as a pyarrow.RecordBatch or Table; None where the format has no columns of its own."""
        ...


class Shard(Protocol):
    """One file, open for reading in this process. Never pickled, never used in another process or after a fork.

    May be called by several threads at a time.
    """

    def load(self, block: int) -> Buffer:
        """Return one block, decoded, as one flat buffer. Raises CorpusError with the block."""
        ...

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a buffer that `load` gave for this block, here or in another process. Copies nothing."""
        ...


class Format(Protocol):
    """A format of files. A value without state: its methods may be called in any process.

    name: as given to `open_corpus(format=…)`. endings: of file names, lower case, with the dot; the longest wins.
    scans: whether `outline` reads the whole file, so that it is worth storing as an index. A format whose outlines cost
    something all the same may say `stores = True`: `detdata index` stores them then, and `open_corpus` uses them.
    random: what reading single rows anywhere costs if that is much, as half a sentence ("a row costs its whole row
    group"), else None. A format whose costs depend on its files has `random_cost(outlines) -> Cost | None` beside it
    (see detdata.corpora.costs), which is asked instead.
    keeps: whether loaded blocks are worth keeping; False where `load` only points into a mapping.
    outline_options: the names of the options that change an outline, beside rows_per_block.
    A format of which several files are one may have `whole(files)`, which gives the files as it sees them; see
    detdata.corpora.pairs.
    A format whose `load` only reads, and decodes nothing, may say `shares = False`: then the workers of a Loader do not
    share loaded blocks of files on this machine, as copying them costs more than reading them again.
    """

    name: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    scans: ClassVar[bool]
    random: ClassVar[str | None]
    keeps: ClassVar[bool]
    outline_options: ClassVar[tuple[str, ...]]

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are. Raises CorpusError."""
        ...

    def open(self, file: DataFile, outline: Outline, options: Options) -> Shard:
        """Open a file for reading, by its outline. Reads no rows. Raises CorpusError, also for a missing column."""
        ...

    def schema(self, outline: Outline, options: Options) -> Any:
        """Return what files of one corpus must have in common, as a value to compare by == and to print; or None."""
        ...
