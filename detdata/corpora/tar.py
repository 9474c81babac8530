"""Tar archives of samples, as webdataset writes them: members that follow each other and share a key are one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.corpora.tar_headers import Member, members, split_name, text_of
from detdata.corpora.windows import even_blocks
from detdata.errors import ArgumentTypeError

KEY = "__key__"
_BLOCK_BYTES = 1 << 20
_UNFINISHED = "unfinished"
_GAP = 1 << 16  # bytes that are rather read along than skipped


@final
class Tar:
    """Samples of tar archives: {"__key__": str, extension: bytes, …}, members in the order of the archive."""

    name: ClassVar[str] = "tar"
    endings: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
    scans: ClassVar[bool] = True
    random: ClassVar[str | None] = "a sample costs reading its block of the archive, about 1 MiB"
    keeps: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = (_UNFINISHED,)
    outline_options: ClassVar[tuple[str, ...]] = (_UNFINISHED,)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the samples of an archive and their members are."""
        samples = _Samples(file.name)
        for found in members(file, progress, unfinished=_unfinished(options)):
            samples.add(found)
        return samples.outline(options.rows_per_block)

    def open(self, file: DataFile, outline: Outline, options: Options) -> _Shard:
        """Open an archive for reading."""
        _unfinished(options)
        _check(file, outline)
        return _Shard(file, outline, options.columns)

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: every sample has its own members."""
        return


def _unfinished(options: Options) -> bool:
    asked = options.get(_UNFINISHED, False)
    if not isinstance(asked, bool):
        raise ArgumentTypeError(f"unfinished must be True or False, got {brief(asked)}")
    return asked


class _Samples:
    """Samples that are found member by member. What is known of members goes into arrays, part by part."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._key: str | None = None
        self._seen: set[str] = set()
        self._members = 0
        self._parts: dict[str, list[npt.NDArray[Any]]] = {"names": [], "name_sizes": [], "starts": [], "sizes": []}
        self._firsts: list[npt.NDArray[Any]] = []

    def add(self, found: Sequence[Member]) -> None:
        kept: list[Member] = []
        firsts: list[int] = []
        for member in found:
            name = split_name(text_of(member.name))
            if name is None:
                continue
            key, extension = name
            if key != self._key:
                self._key, self._seen = key, {KEY}
                firsts.append(self._members + len(kept))
            if extension in self._seen:
                raise CorpusError(
                    self._file,
                    f"sample {key!r} has two members {extension!r}; the second is {text_of(member.name)!r}, its data "
                    f"at byte {member.start}",
                )
            self._seen.add(extension)
            kept.append(member)
        if kept:
            names, starts, sizes = zip(*kept, strict=True)
            self._parts["names"].append(np.frombuffer(b"".join(names), np.uint8))
            self._parts["name_sizes"].append(np.array([len(name) for name in names], np.int64))
            self._parts["starts"].append(np.array(starts, np.int64))
            self._parts["sizes"].append(np.array(sizes, np.int64))
        self._firsts.append(np.array(firsts, np.int64))
        self._members += len(kept)

    def outline(self, rows_per_block: int | None) -> Outline:
        whole = {name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in self._parts.items()}
        firsts = np.concatenate([*self._firsts, np.array([self._members], np.int64)])
        arrays = {
            "firsts": firsts,
            "name_ends": np.cumsum(whole["name_sizes"], dtype=np.int64),
            "names": whole["names"].astype(np.uint8),
            "sizes": whole["sizes"],
            "starts": whole["starts"],
        }
        if rows_per_block is not None:
            return Outline(block_sizes=even_blocks(firsts.size - 1, rows_per_block), arrays=arrays)
        mib = whole["starts"][firsts[:-1]] // _BLOCK_BYTES
        return Outline(block_sizes=np.unique(mib, return_counts=True)[1].astype(np.int64), arrays=arrays)


def _check(file: DataFile, outline: Outline) -> None:
    """Raise unless an outline is one that `_Samples` can have made of a file of this size."""
    size = file.identity().size
    if set(outline.arrays) == {"firsts", "name_ends", "names", "sizes", "starts"}:
        firsts, ends, names, sizes, starts = (outline.arrays[name] for name in sorted(outline.arrays))
        ends_at = np.concatenate([np.zeros(1, np.int64), starts + sizes])
        if (
            ends.size == sizes.size == starts.size
            and firsts.size == outline.rows + 1
            and int(firsts[0]) == 0
            and int(firsts[-1]) == starts.size
            and bool((np.diff(firsts) > 0).all())
            and bool((np.diff(ends, prepend=0) >= 0).all())
            and (int(ends[-1]) if ends.size else 0) == names.size
            and bool(((sizes >= 0) & (sizes <= size) & (starts <= size)).all())
            and bool((ends_at[:-1] <= starts).all())
            and int(ends_at[-1]) <= size
        ):
            return
    raise CorpusError(file.name, "has an index that does not fit it; delete the index, and it is made anew")


class _Part(NamedTuple):
    """A member of a block. extension: of its name; at: its first byte in the block's buffer; size: in bytes."""

    extension: str
    at: int
    size: int


@final
class _Shard:
    def __init__(self, file: DataFile, outline: Outline, columns: tuple[str, ...] | None) -> None:
        self._file, self._columns = file, columns
        self._arrays: Mapping[str, Int64Array] = outline.arrays
        self._edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(outline.block_sizes)])

    def load(self, block: int) -> Buffer:
        runs = self._plan(block)[1]
        parts = [self._file.read(start, stop - start) for start, stop in runs]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, block: int, buffer: Buffer) -> _Rows:
        samples, runs = self._plan(block)
        expected, found = sum(stop - start for start, stop in runs), memoryview(buffer).nbytes
        if found != expected:
            raise CorpusError(self._file.name, f"has {found} bytes where {expected} were known of", block=block)
        return _Rows(self._file.name, block, samples, buffer, self._columns)

    def _plan(self, block: int) -> tuple[list[tuple[str, list[_Part]]], list[tuple[int, int]]]:
        """Return (key and members of each sample, as they lie in the buffer; parts of the file that make the buffer).

        Only members that are asked for are read, and what lies between two of them, if it is little.
        """
        firsts = self._arrays["firsts"][int(self._edges[block]) : int(self._edges[block + 1]) + 1].tolist()
        begin, end = (firsts[0], firsts[-1]) if firsts else (0, 0)
        ends = self._arrays["name_ends"]
        name_edges = [int(ends[begin - 1]) if begin else 0, *ends[begin:end].tolist()]
        names = self._arrays["names"][name_edges[0] : name_edges[-1]].tobytes()
        starts, sizes = (self._arrays[name][begin:end].tolist() for name in ("starts", "sizes"))
        samples: list[tuple[str, list[_Part]]] = []
        runs: list[tuple[int, int]] = []
        before = 0  # bytes of the buffer before the run at hand
        for first, last in pairwise(firsts):
            parts: list[_Part] = []
            key = ""
            for member in range(first - begin, last - begin):
                name = names[name_edges[member] - name_edges[0] : name_edges[member + 1] - name_edges[0]]
                key, extension = split_name(text_of(name)) or ("", "")
                if self._columns is not None and extension not in self._columns:
                    parts.append(_Part(extension, 0, -1))
                    continue
                start, stop = starts[member], starts[member] + sizes[member]
                if runs and start - runs[-1][1] <= _GAP:
                    runs[-1] = runs[-1][0], stop
                else:
                    before += runs[-1][1] - runs[-1][0] if runs else 0
                    runs.append((start, stop))
                parts.append(_Part(extension, before + start - runs[-1][0], sizes[member]))
            samples.append((key, parts))
        return samples, runs


@final
class _Rows:
    def __init__(
        self,
        file: str,
        block: int,
        samples: Sequence[tuple[str, list[_Part]]],
        buffer: Buffer,
        columns: tuple[str, ...] | None,
    ) -> None:
        self._file, self._block, self._samples, self._columns = file, block, samples, columns
        self._bytes = memoryview(buffer)

    def take(self, rows: Sequence[int]) -> list[Any]:
        return [self._row(row) for row in rows]

    def arrow(self, rows: Int64Array) -> None:
        return

    def _row(self, row: int) -> dict[str, Any]:
        key, parts = self._samples[row]
        found: dict[str, Any] = {KEY: key}
        for extension, at, size in parts:
            if size >= 0:
                found[extension] = bytes(self._bytes[at : at + size])
        if self._columns is None:
            return found
        missing = [name for name in self._columns if name not in found]
        if missing:
            there = [KEY, *(part.extension for part in parts)]
            raise CorpusError(
                self._file,
                f"sample {key!r} has no {', '.join(map(repr, missing))}, only {there}",
                block=self._block,
                row=row,
            )
        return {name: found[name] for name in self._columns}
