"""A file of tensors read once, into the memory that its tensors will live in, and hashed on the way.

What was verified is what is loaded: nothing can change in between, and no byte is read or kept twice. The memory is
divided by the zip archive's own directory, which is not verified at that time: a wrong one costs a copy, no more.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
import xxhash

from detdata.checkpoint.files import DIGEST, FileRecord, open_regular, read_hashed

LARGE = 1 << 16  # bytes of a tensor that gets memory of its own; smaller ones are copied
_HEADER = struct.Struct("<26xHH")  # a member's local header: the lengths of its name and of what comes after it
_SLIP = struct.Struct("<16sQ")
_BAD_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError, OSError, struct.error)


class Held:
    """A file in memory. record: its size and digest, as read.

    It may be loaded once: the tensors take over its memory.
    """

    def __init__(
        self, blocks: list[tuple[int, torch.Tensor]], records: set[tuple[int, int]], record: FileRecord
    ) -> None:
        self.record = record
        self._starts = [start for start, _ in blocks]
        self._blocks = [block for _, block in blocks]
        self._views = [_view(block) for block in self._blocks]
        self._records = records

    def bytes(self) -> bytes:
        """Return the content."""
        return b"".join(self._views)

    def load(self) -> Any:
        """Return what `torch.load(…, weights_only=True)` makes of the file, on the CPU; raises what that raises."""
        reader = _Reader(self, lend=True)
        try:
            tree = reader.load()
        except Exception:
            if reader.settled:
                raise
        else:
            if reader.settled:
                return tree
        return _Reader(self, lend=False).load()  # this torch reads another way

    def block_of(self, start: int, size: int) -> int | None:
        """Return the number of the block that holds the tensor at `start`, alone; None if there is no such."""
        return bisect_right(self._starts, start) - 1 if (start, size) in self._records else None

    def storage(self, block: int) -> torch.UntypedStorage:
        """Return the memory of a block."""
        return self._blocks[block].untyped_storage()

    def copy(self, start: int, target: memoryview) -> int:
        """Copy the bytes from `start` on to `target`; return how many there were."""
        done = 0
        block = bisect_right(self._starts, start) - 1
        while done < len(target) and 0 <= block < len(self._views):
            source = self._views[block][start + done - self._starts[block] :][: len(target) - done]
            target[done : done + len(source)] = source
            done += len(source)
            block += 1
        return done


class _Reader(io.RawIOBase):
    """The open file that torch.load sees.

    For each tensor torch makes memory, has it filled from here, and asks `place` where the tensor shall live. With
    `lend`, a large one is not filled: a slip in its first bytes says which block holds it already, and `place` answers
    with that. A slip that was not redeemed leaves the load unsettled: it is then done again, with copies.
    """

    def __init__(self, held: Held, *, lend: bool) -> None:
        self._held, self._lend = held, lend
        self._at = 0
        self._mark = os.urandom(16)
        self._lent: list[int] = []
        self._placed: list[int] = []

    def load(self) -> Any:
        place: Any = self.place  # torch's annotation is of older storages
        return torch.load(cast("BinaryIO", self), map_location=place, weights_only=True)

    @property
    def settled(self) -> bool:
        """Whether every slip was redeemed, and no block is lent twice."""
        return self._lent == self._placed and len(set(self._lent)) == len(self._lent)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._held.record.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        block = self._held.block_of(self._at, len(target)) if self._lend else None
        if block is None:
            count = self._held.copy(self._at, target)
        else:
            _SLIP.pack_into(target, 0, self._mark, block)
            self._lent.append(block)
            count = len(target)
        self._at += count
        return count

    def place(self, storage: torch.UntypedStorage, _location: str) -> torch.UntypedStorage:
        """Return the memory for a tensor that torch has read into `storage`; always on the CPU."""
        if storage.nbytes() >= LARGE:
            mark, block = _SLIP.unpack_from(_view(torch.empty(0, dtype=torch.uint8).set_(storage)))
            if mark == self._mark:
                self._placed.append(block)
                return self._held.storage(block)
        return storage


def hold(path: Path) -> Held:
    """Read the regular file `path`. Allocates its size, no more. Raises OSError, MemoryError."""
    hasher = xxhash.xxh3_128()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        records = _large_records(file, size)
        blocks = [(start, _memory(end - start)) for start, end in _divided(records, size)]
        file.seek(0)
        read = sum(read_hashed(file, _view(block), hasher) for _, block in blocks)
        read += len(file.read(1))  # one more, if it grows: not what was written either way
    return Held(blocks, set(records), FileRecord(read, DIGEST + hasher.hexdigest()))


def _large_records(file: BinaryIO, size: int) -> list[tuple[int, int]]:
    """Return (start, size) of each large tensor of the archive, in order; nothing where the archive makes no sense."""
    found = []
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        for member in members:
            if member.file_size >= LARGE:
                if member.compress_type != zipfile.ZIP_STORED:
                    return []
                file.seek(member.header_offset)
                start = member.header_offset + _HEADER.size + sum(_HEADER.unpack(file.read(_HEADER.size)))
                found.append((start, member.file_size, "/data/" in member.filename))
    except _BAD_ZIP:
        return []
    found.sort()
    ends = [start + length for start, length, _ in found]
    if any(end > start for end, (start, _, _) in zip(ends, found[1:], strict=False)) or (ends and ends[-1] > size):
        return []
    return [(start, length) for start, length, tensor in found if tensor]


def _divided(records: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """Return (start, end) of stretches that make up the file, each large tensor one of them."""
    cuts = {0, size, *(start for start, _ in records), *(start + length for start, length in records)}
    return list(pairwise(sorted(cuts)))


def _memory(size: int) -> torch.Tensor:
    """Return `size` bytes, as torch would allocate them for a tensor."""
    try:
        storage = torch.UntypedStorage(size)  # type: ignore[no-untyped-call]
        return torch.empty(0, dtype=torch.uint8).set_(storage)  # torch.empty(size) may take the time to fill it
    except RuntimeError as error:
        raise MemoryError(f"no {size} bytes of memory for a tensor of the checkpoint: {error}") from error


def _view(block: torch.Tensor) -> memoryview:
    return memoryview(cast("Any", block.numpy()))
