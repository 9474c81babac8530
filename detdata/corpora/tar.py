"""Tar archives of samples, as webdataset writes them: members that follow each other and share a key are one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    shares: ClassVar[bool] = False  # loading only reads
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
            name = split_name(text_of(member[0]))
            if name is None:
                continue
            key, extension = name
            if key != self._key:
                self._key, self._seen = key, {KEY}
                firsts.append(self._members + len(kept))
            if extension in self._seen:
                raise CorpusError(
                    self._file,
                    f"sample {key!r} has two members {extension!r}; the second is {text_of(member[0])!r}, its data "
                    f"at byte {member[1]}",
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


class _Block(NamedTuple):
    """The members of one block. at: int64[members], first byte of each in the block's buffer, -1 for one not read.

    firsts: first member of each sample, and the end. runs: (start, stop) of what is read of the file, in order.
    names, edges: the members' names behind each other, and where each begins.
    """

    firsts: list[int]
    names: bytes
    edges: list[int]
    at: list[int]
    sizes: list[int]
    runs: list[tuple[int, int]]

    def name(self, member: int) -> tuple[str, str]:
        return split_name(text_of(self.names[self.edges[member] : self.edges[member + 1]])) or ("", "")


@final
class _Shard:
    def __init__(self, file: DataFile, outline: Outline, columns: tuple[str, ...] | None) -> None:
        self._file, self._columns = file, columns
        self._arrays: Mapping[str, Int64Array] = outline.arrays
        self._edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(outline.block_sizes)])

    def load(self, block: int) -> Buffer:
        parts = [self._file.read(start, stop - start) for start, stop in self._block(block).runs]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, block: int, buffer: Buffer) -> _Rows:
        members = self._block(block)
        expected, found = sum(stop - start for start, stop in members.runs), memoryview(buffer).nbytes
        if found != expected:
            raise CorpusError(self._file.name, f"has {found} bytes where {expected} were known of", block=block)
        return _Rows(self._file.name, block, members, buffer, self._columns)

    def _block(self, block: int) -> _Block:
        """Return the members of a block, and what of the file is read for them: little more than is asked for."""
        firsts = self._arrays["firsts"][int(self._edges[block]) : int(self._edges[block + 1]) + 1]
        begin, end = (int(firsts[0]), int(firsts[-1])) if firsts.size else (0, 0)
        ends = self._arrays["name_ends"]
        edges = np.concatenate([ends[begin - 1 : begin] if begin else np.zeros(1, np.int64), ends[begin:end]])
        names = self._arrays["names"][int(edges[0]) : int(edges[-1])].tobytes()
        starts, sizes = self._arrays["starts"][begin:end], self._arrays["sizes"][begin:end]
        every = _Block((firsts - begin).tolist(), names, (edges - edges[0]).tolist(), [], sizes.tolist(), [])
        wanted = np.ones(end - begin, bool)
        if self._columns is not None:
            wanted = np.array([every.name(member)[1] in self._columns for member in range(end - begin)], bool)
        starts, stops = starts[wanted], (starts + sizes)[wanted]
        new = np.flatnonzero(starts[1:] - stops[:-1] > _GAP) + 1  # members with which a run begins
        heads = np.concatenate([np.zeros(min(1, starts.size), np.int64), new])
        run_starts, run_stops = starts[heads], stops[np.concatenate([new, [starts.size]])[: heads.size] - 1]
        before = np.cumsum(run_stops - run_starts) - (run_stops - run_starts)  # bytes of the buffer before each run
        run_of = np.searchsorted(heads, np.arange(starts.size), side="right") - 1
        at = np.full(end - begin, -1, np.int64)
        at[wanted] = starts - (run_starts - before)[run_of]
        return every._replace(at=at.tolist(), runs=list(zip(run_starts.tolist(), run_stops.tolist(), strict=True)))


@final
class _Rows:
    def __init__(self, file: str, block: int, members: _Block, buffer: Buffer, columns: tuple[str, ...] | None) -> None:
        self._file, self._block, self._members, self._columns = file, block, members, columns
        self._bytes = memoryview(buffer)

    def take(self, rows: Sequence[int]) -> list[Any]:
        return [self._row(row) for row in rows]

    def arrow(self, rows: Int64Array) -> None:
        return

    def _row(self, row: int) -> dict[str, Any]:
        members = self._members
        found: dict[str, Any] = {KEY: ""}
        for member in range(members.firsts[row], members.firsts[row + 1]):
            found[KEY], extension = members.name(member)
            at = members.at[member]
            found[extension] = bytes(self._bytes[at : at + members.sizes[member]]) if at >= 0 else None
        if self._columns is None:
            return found
        missing = [name for name in self._columns if name not in found]
        if missing:
            raise CorpusError(
                self._file,
                f"sample {found[KEY]!r} has no {', '.join(map(repr, missing))}, only {list(found)}",
                block=self._block,
                row=row,
            )
        return {name: found[name] for name in self._columns}
