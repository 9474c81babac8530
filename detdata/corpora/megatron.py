"""Megatron-LM's indexed datasets: sequences of tokens in a .bin file, and where each lies in the .idx file beside it.

    "MMIDIDX\\0\\0" · u64: 1 · u8: type of a token · u64: sequences n · u64: document edges m
    i32[n] tokens of each sequence · i64[n] its first byte in the .bin · i64[m] document edges · perhaps i8[n] modes

All little-endian. Nothing of it is believed before it fits the size of both files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.pairs import FRONT, pairs_of, second_of
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.corpora.windows import (
    BLOCK_BYTES,
    COLUMN,
    NEXT_TOKEN,
    WindowShard,
    even_blocks,
    next_token_of,
    no_columns,
    outline_windows,
    part_of,
    windows_of,
)

ENDINGS = (".idx", ".bin")
_MAGIC = b"MMIDIDX\0\0"
_HEAD = 34  # bytes before the first array
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS = {6, 7}
_PART = 1 << 18  # sequences looked at a time


@final
class Megatron:
    """Sequences of an indexed dataset, int64[n] each; with `seq_len`, windows over all of its tokens."""

    name: ClassVar[str] = "megatron"
    endings: ClassVar[tuple[str, ...]] = (".idx",)
    scans: ClassVar[bool] = False
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)
    outline_options: ClassVar[tuple[str, ...]] = ("seq_len", NEXT_TOKEN)

    def whole(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Return the pair that each of these .idx and .bin files belongs to, each pair once."""
        return pairs_of(files, ENDINGS)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows are, by the whole .idx: O(sequences)."""
        head = _head(file)
        next_token_of(options)
        sizes, contiguous, tokens = _survey(file, head, options.rows_per_block)
        if options.seq_len is not None:
            if not contiguous or tokens * head.dtype.itemsize != head.bin_bytes:
                raise CorpusError(
                    file.name,
                    f"its sequences have {tokens} tokens of {head.dtype.itemsize} bytes, and do not lie one behind the "
                    f"other from the first to the last of the {head.bin_bytes} bytes of the .bin file, so windows "
                    "cannot be cut of them; without seq_len= its sequences are given",
                )
            sizes = outline_windows(windows_of(0, tokens, head.dtype, options)).block_sizes
        else:
            no_columns(options)
        return Outline(block_sizes=sizes, meta=head.meta())

    def open(self, file: DataFile, outline: Outline, options: Options) -> WindowShard | _Shard:
        """Open a pair for reading."""
        head = _Head.of(outline.meta)
        data = second_of(file, head.idx_bytes)
        if options.seq_len is not None:
            tokens = head.bin_bytes // head.dtype.itemsize
            return WindowShard(data, windows_of(0, tokens, head.dtype, options))
        no_columns(options)
        return _Shard(file, data, head, outline)

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: rows are int64 whatever the type in the files."""
        return


@dataclass(frozen=True, slots=True)
class _Head:
    """What the head of an .idx file says. dtype: of a token. idx_bytes, bin_bytes: sizes of the two files."""

    dtype: np.dtype[Any]
    sequences: int
    edges: int
    idx_bytes: int
    bin_bytes: int

    def meta(self) -> dict[str, Any]:
        return {
            "bin": self.bin_bytes,
            "dtype": self.dtype.str,
            "edges": self.edges,
            "idx": self.idx_bytes,
            "sequences": self.sequences,
        }

    @staticmethod
    def of(meta: Any) -> _Head:
        sequences, edges, idx, size = (int(meta[name]) for name in ("sequences", "edges", "idx", "bin"))
        return _Head(np.dtype(str(meta["dtype"])), sequences, edges, idx, size)

    def lengths(self, file: DataFile, first: int, count: int) -> Int64Array:
        """Return the tokens of sequences from `first` on."""
        return np.frombuffer(file.read(FRONT + _HEAD + 4 * first, 4 * count), "<i4").astype(np.int64)

    def pointers(self, file: DataFile, first: int, count: int) -> Int64Array:
        """Return the first byte of sequences from `first` on."""
        content = file.read(FRONT + _HEAD + 4 * self.sequences + 8 * first, 8 * count)
        return np.frombuffer(content, "<i8").astype(np.int64, copy=False)

    def documents(self, file: DataFile, first: int, count: int) -> Int64Array:
        """Return document edges from `first` on."""
        content = file.read(FRONT + _HEAD + 12 * self.sequences + 8 * first, 8 * count)
        return np.frombuffer(content, "<i8").astype(np.int64, copy=False)


def _head(file: DataFile) -> _Head:
    size = file.identity().size - FRONT
    idx = int.from_bytes(file.read(0, FRONT), "little") if size >= 0 else size
    if not 0 <= idx <= size:
        raise CorpusError(file.name, "is one file, and an indexed dataset is two: an .idx and a .bin")
    head = file.read(FRONT, min(idx, _HEAD))
    if not head.startswith(_MAGIC) or len(head) < _HEAD:
        raise CorpusError(file.name, "is no index of Megatron-LM: it does not begin like one")
    version, code = int.from_bytes(head[9:17], "little"), head[17]
    if version != 1:
        raise CorpusError(file.name, f"is an index of version {version}, and only version 1 is known")
    if code not in _TYPES:
        what = "floats, and tokens are integers" if code in _FLOATS else f"type {code}, which is not known"
        raise CorpusError(file.name, f"holds {what}")
    sequences, edges = int.from_bytes(head[18:26], "little"), int.from_bytes(head[26:34], "little")
    expected = _HEAD + 12 * sequences + 8 * edges
    if idx not in {expected, expected + sequences}:
        raise CorpusError(
            file.name,
            f"is cut off, or damaged: {sequences} sequences and {edges} document edges take {expected} bytes (or "
            f"{expected + sequences} with modes), and it has {idx}",
        )
    return _Head(np.dtype(_TYPES[code]), sequences, edges, idx, size - idx)


def _survey(file: DataFile, head: _Head, rows_per_block: int | None) -> tuple[Int64Array, bool, int]:
    """Return (rows of each block, whether sequences lie one behind the other from the first byte on, tokens in all).

    By default a block is the sequences that begin in one MiB of all sequences' bytes.
    """
    done, contiguous = 0, True  # bytes of the sequences so far
    known: list[Int64Array] = [np.empty(0, np.int64)]
    counts: list[Int64Array] = [np.empty(0, np.int64)]
    for first in range(0, head.sequences, _PART):
        count = min(_PART, head.sequences - first)
        sizes = head.lengths(file, first, count) * head.dtype.itemsize
        pointers = head.pointers(file, first, count)
        bad = np.flatnonzero((sizes < 0) | (pointers < 0) | (pointers > head.bin_bytes - sizes))
        if bad.size:
            at = int(bad[0])
            raise CorpusError(
                file.name,
                f"sequence {first + at} has {int(sizes[at]) // head.dtype.itemsize} tokens from byte "
                f"{int(pointers[at])} of the .bin file on, which has {head.bin_bytes} bytes: that is cut off, or the "
                "files are not of one dataset",
            )
        begins = done + np.cumsum(sizes) - sizes
        contiguous = contiguous and bool((begins == pointers).all())
        done += int(sizes.sum())
        ids, found = np.unique(begins // BLOCK_BYTES, return_counts=True)
        known.append(ids)
        counts.append(found.astype(np.int64))
    _check_documents(file, head)
    tokens = done // head.dtype.itemsize
    if rows_per_block is not None:
        return even_blocks(head.sequences, rows_per_block), contiguous, tokens
    _, block = np.unique(np.concatenate(known), return_inverse=True)  # one may go on from one part to the next
    return np.bincount(block, weights=np.concatenate(counts)).astype(np.int64), contiguous, tokens


def _check_documents(file: DataFile, head: _Head) -> None:
    last = 0
    for first in range(0, head.edges, _PART):
        edges = head.documents(file, first, min(_PART, head.edges - first))
        if int(edges[0]) < last or bool((np.diff(edges) < 0).any()):
            raise CorpusError(file.name, "is damaged: its document edges do not ascend")
        last = int(edges[-1])
    if head.edges and last != head.sequences:
        raise CorpusError(
            file.name, f"is damaged: its documents end at sequence {last}, and it has {head.sequences} sequences"
        )


@final
class _Shard:
    def __init__(self, file: DataFile, data: DataFile, head: _Head, outline: Outline) -> None:
        self._file, self._data, self._head = file, data, head
        self._edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(outline.block_sizes)])

    def load(self, block: int) -> Buffer:
        first, count = self._sequences(block)
        if not count:
            return b""
        starts = self._head.pointers(self._file, first, count)
        stops = starts + self._head.lengths(self._file, first, count) * self._head.dtype.itemsize
        if bool((starts[1:] == stops[:-1]).all()):
            return part_of(self._data, int(starts[0]), int(stops[-1]))
        parts = zip(starts.tolist(), stops.tolist(), strict=True)
        return b"".join(part_of(self._data, start, stop) for start, stop in parts)

    def view(self, block: int, buffer: Buffer) -> _Rows:
        lengths = self._head.lengths(self._file, *self._sequences(block))
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        found, expected = memoryview(buffer).nbytes, int(edges[-1]) * self._head.dtype.itemsize
        if found != expected:
            raise CorpusError(self._file.name, f"has {found} bytes where {expected} were known of", block=block)
        return _Rows(np.frombuffer(buffer, self._head.dtype), edges)

    def _sequences(self, block: int) -> tuple[int, int]:
        first, stop = int(self._edges[block]), int(self._edges[block + 1])
        return first, stop - first


@final
class _Rows:
    def __init__(self, tokens: npt.NDArray[Any], edges: Int64Array) -> None:
        self._tokens, self._edges = tokens, edges

    def take(self, rows: Sequence[int]) -> list[Any]:
        return [self._row(row) for row in rows]

    def arrow(self, rows: Int64Array) -> Any:
        taken = self.take(rows.tolist())
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum([row.size for row in taken], dtype=np.int64)])
        flat = pa.array(np.concatenate([np.empty(0, np.int64), *taken]))
        lists = pa.LargeListArray.from_arrays(pa.array(edges), flat)
        return pa.RecordBatch.from_arrays([lists], [COLUMN])

    def _row(self, row: int) -> Int64Array:
        return self._tokens[self._edges[row] : self._edges[row + 1]].astype(np.int64)
