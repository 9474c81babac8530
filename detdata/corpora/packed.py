"""Lines of JSON, text and CSV, packed by gzip or Zstandard: the plain formats, reading through `InflatedFile`.

A block is the rows that begin between two access points, so that loading it unpacks little more than its own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import as_int
from detdata.corpora.costs import Cost
from detdata.corpora.csv import Csv
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.gzip_points import gzip_text, open_gzip
from detdata.corpora.inflating import InflatedFile, OpenAt
from detdata.corpora.jsonl import JsonLines
from detdata.corpora.line_rows import LineShard
from detdata.corpora.lines import row_starts
from detdata.corpora.marks import Marks
from detdata.corpora.points import Points
from detdata.corpora.protocol import Buffer, Options, Outline, Progress, Rows
from detdata.corpora.survey import Survey
from detdata.corpora.text import Text
from detdata.corpora.zst_frames import open_zst, zst_text

_OWN = ("spacing",)
_SPACING = 1 << 20  # bytes of text
_NEAR = 1 << 17  # bytes of text between points up to which nothing is said of costs: plain blocks are half of that
_FAR = 1 << 24  # the same, from which on blocks out of order are dear too


class _Plain(Protocol):
    """A plain format of lines."""

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline: ...

    def open(self, file: DataFile, outline: Outline, options: Options) -> LineShard: ...

    def schema(self, outline: Outline, options: Options) -> Any: ...


@final
@dataclass(frozen=True, slots=True)
class Codec:
    """How a file is packed. texts: yields the text of a file and surveys it. open_at: the text from a point on.

    remedy: what to do with a file that has few points.
    """

    texts: Callable[[DataFile, Survey, int, Progress | None], Iterator[bytes]]
    open_at: OpenAt
    remedy: str


_GZIP = Codec(gzip_text, open_gzip, "pack it anew: gzip as it is by default gives them")
_ZST = Codec(zst_text, open_zst, "write it in frames of some 256 KiB, as docs/formats/compressed.md shows")


@final
@dataclass(frozen=True, slots=True)
class Packed:
    """A format of lines in packed files. plain: the format of their text.

    blank_rows: whether blank lines are rows; None for a plain format that finds its rows itself, in a second pass.

    >>> jsonl_gz().name
    'jsonl.gz'
    """

    name: str
    endings: tuple[str, ...]
    plain: _Plain
    blank_rows: bool | None
    codec: Codec
    options: tuple[str, ...]
    outline_options: tuple[str, ...]

    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = True

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return the outline of the text, its blocks cut at points, and with the points of `Points.arrays`."""
        spacing = as_int(options.get("spacing", _SPACING), "spacing", low=1 << 12, high=1 << 30)
        survey = Survey(spacing)
        texts = self.codec.texts(file, survey, spacing, progress)
        if self.blank_rows is not None:
            base, found = row_starts(texts, file.name, blank_rows=self.blank_rows)
            cuts = _Cuts(survey) if options.rows_per_block is None else Marks(base, options.rows_per_block)
            end = base
            for starts, end in found:
                cuts.add(starts, end)
            outline, points = cuts.outline(end, file.name), survey.points()
        else:
            for _ in texts:
                pass
            points = survey.points()
            text = InflatedFile(file, points, self.codec.open_at)
            outline = self.plain.outline(text, options)
            if options.rows_per_block is None:
                outline = _joined(outline, np.array(survey.edges, np.int64))
        return replace(outline, arrays={**outline.arrays, **points.arrays()})

    def open(self, file: DataFile, outline: Outline, options: Options) -> PackedShard:
        """Open a file for reading. Raises CorpusError."""
        starts = outline.arrays.get("starts")
        if starts is None or starts.dtype != np.int64 or starts.size != outline.block_sizes.size + 1:
            raise CorpusError(file.name, "its index does not say where blocks begin; delete the index")
        text = InflatedFile(file, Points.of(outline, file.name), self.codec.open_at)
        return PackedShard(self.plain.open(text, outline, options))

    def schema(self, outline: Outline, options: Options) -> Any:
        """Return what the plain format does."""
        return self.plain.schema(outline, options)

    def random_cost(self, outlines: Sequence[Outline]) -> Cost | None:
        """Return what a row costs: unpacking the text between two points, up to it. None where that is little."""
        longest = max((Points.of(outline, "").longest for outline in outlines), default=0)
        if longest <= _NEAR:
            return None
        size = f"{longest / 2**20:.1f} MiB" if longest >= 1 << 20 else f"{longest >> 10} KiB"
        text = f"a row costs unpacking all text from the place before it where that can begin, up to {size}"
        if longest < _FAR:
            return Cost(text)
        return Cost(f"{text}; so does a block out of order. For more such places, {self.codec.remedy}", local=False)


@final
class PackedShard:
    """A packed file, open for reading. plain: reads its text."""

    def __init__(self, plain: LineShard) -> None:
        self._plain = plain

    def load(self, block: int) -> Buffer:
        """Return the text of a block."""
        try:
            return self._plain.load(block)
        except CorpusError as error:
            raise type(error)(error.file, error.reason, block=block) from error

    def view(self, block: int, buffer: Buffer) -> Rows:
        """Return the rows of a block's text."""
        return self._plain.view(block, buffer)


@final
class _Cuts:
    """Takes the place of every row, in order, and keeps those at which blocks begin: the first behind each edge."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._rows = 0
        self._cell = 0  # edges at or before the row that was last
        self._starts: list[Int64Array] = [np.empty(0, np.int64)]
        self._firsts: list[Int64Array] = [np.empty(0, np.int64)]

    def add(self, starts: Int64Array, upto: int) -> None:
        """Take the bytes at which the next rows begin, int64[n]."""
        if not starts.size:
            return
        edges = np.array(self._survey.edges[self._cell :], np.int64)
        cells = edges.searchsorted(starts, side="right") + self._cell
        first = np.flatnonzero(np.diff(cells, prepend=self._cell if self._rows else -1))
        self._starts.append(starts[first])
        self._firsts.append(first + self._rows)
        self._rows += starts.size
        self._cell = int(cells[-1])

    def outline(self, end: int, name: str) -> Outline:
        """Return block_sizes and array "starts", int64[blocks + 1], of a text that ends at byte `end`."""
        firsts = np.concatenate([*self._firsts, [self._rows]]).astype(np.int64)
        starts = np.concatenate([*self._starts, [end]]).astype(np.int64)
        return Outline(block_sizes=np.diff(firsts), arrays={"starts": starts})


def _joined(outline: Outline, edges: Int64Array) -> Outline:
    """Return an outline with those blocks made one that begin between the same two edges."""
    starts = outline.arrays["starts"]
    first = np.flatnonzero(np.diff(edges.searchsorted(starts[:-1], side="right"), prepend=-1))
    sizes = np.add.reduceat(outline.block_sizes, first) if first.size else outline.block_sizes
    return replace(outline, block_sizes=sizes, arrays={"starts": np.append(starts[first], starts[-1])})


def jsonl_gz() -> Packed:
    """Return the format of JSON lines packed by gzip."""
    endings = (".jsonl.gz", ".ndjson.gz", ".jsonlines.gz", ".json.gz")
    return Packed("jsonl.gz", endings, JsonLines(), False, _GZIP, _OWN, _OWN)


def jsonl_zst() -> Packed:
    """Return the format of JSON lines packed by Zstandard."""
    endings = (".jsonl.zst", ".ndjson.zst", ".jsonlines.zst")
    return Packed("jsonl.zst", endings, JsonLines(), False, _ZST, _OWN, _OWN)


def text_gz() -> Packed:
    """Return the format of plain text packed by gzip."""
    return Packed("text.gz", (".txt.gz", ".text.gz"), Text(), True, _GZIP, (*_OWN, *Text.options), _OWN)


def text_zst() -> Packed:
    """Return the format of plain text packed by Zstandard."""
    return Packed("text.zst", (".txt.zst", ".text.zst"), Text(), True, _ZST, (*_OWN, *Text.options), _OWN)


def csv_gz() -> Packed:
    """Return the format of CSV packed by gzip."""
    known = (*_OWN, *Csv.outline_options)
    return Packed("csv.gz", (".csv.gz", ".tsv.gz"), Csv(), None, _GZIP, (*_OWN, *Csv.options), known)


def csv_zst() -> Packed:
    """Return the format of CSV packed by Zstandard."""
    known = (*_OWN, *Csv.outline_options)
    return Packed("csv.zst", (".csv.zst", ".tsv.zst"), Csv(), None, _ZST, (*_OWN, *Csv.options), known)
