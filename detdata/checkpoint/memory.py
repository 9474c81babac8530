"""A file of tensors read once, into the memory that its tensors will live in, and hashed on the way.

What was verified is what is loaded: nothing can change in between, and no byte is read or kept twice. The memory is
divided by the zip archive's own directory, which is not verified at that time: a wrong one costs a copy, no more.
"""

from __future__ import annotations

import os
import struct
import zipfile
from bisect import bisect_right
from typing import Any, BinaryIO, cast

import torch

from detdata.checkpoint.files import DIGEST, FileRecord, open_regular, read_hashed, size_of
from detdata.checkpoint.hashing_behind import PIECE, HashingBehind
from detdata.checkpoint.placed import Placed
from detdata.checkpoint.remote_path import AnyPath

LARGE = 1 << 16  # bytes of a tensor that gets memory of its own; smaller ones are copied
_HEADER = struct.Struct("<26xHH")  # a member's local header: the lengths of its name and of what comes after it
_MAGIC = b"PK\x03\x04"
_SLIP = struct.Struct("<16sQ")
_BAD_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError, OSError, struct.error)


class Held:
    """A file in memory. record: its size and digest, as read. is_archive: whether it is a zip archive, nothing packed.

    It may be loaded once: the tensors take over its memory.
    """

    def __init__(
        self,
        blocks: list[tuple[int, torch.Tensor]],
        records: set[tuple[int, int]],
        record: FileRecord,
        *,
        is_archive: bool,
    ) -> None:
        self.record = record
        self.is_archive = is_archive
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


class _Reader(Placed):
    """The open file that torch.load sees.

    For each tensor torch makes memory, has it filled from here, and asks `place` where the tensor shall live. With
    `lend`, a large one is not filled: a slip in its first bytes says which block holds it already, and `place` answers
    with that. A slip that was not redeemed leaves the load unsettled: it is then done again, with copies.
    """

    def __init__(self, held: Held, *, lend: bool) -> None:
        super().__init__(held.record.size)
        self._held, self._lend = held, lend
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
            mark, block = _SLIP.unpack_from(_view(torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)))
            if mark == self._mark:
                self._placed.append(block)
                return self._held.storage(block)
        return storage


def hold(path: AnyPath) -> Held:
    """Read the regular file `path`. Allocates its size, no more. Raises OSError, MemoryError."""
    with open_regular(path) as file, HashingBehind() as hasher:
        size = size_of(file)
        members = _large_members(file, size)
        file.seek(0)
        filling = _Filling(file, hasher)
        records = filling.members(members or [], size)
        filling.to(size)
        read = filling.read + len(file.read(1))  # one more, if it grows: not what was written either way
        record = FileRecord(read, DIGEST + hasher.hexdigest())
        return Held(filling.blocks, records, record, is_archive=members is not None)


class _Filling:
    """Reads a file from its start on, into blocks that it makes on the way. read: the bytes that came."""

    def __init__(self, file: BinaryIO, hasher: HashingBehind) -> None:
        self._file, self._hasher = file, hasher
        self.blocks: list[tuple[int, torch.Tensor]] = []
        self._at = self.read = 0

    def to(self, end: int) -> memoryview:
        """Read up to `end`, into a block of its own; return that."""
        if end == self._at:
            return memoryview(b"")
        block = _memory(end - self._at)
        self.read += read_hashed(self._file, _view(block), self._hasher, PIECE)
        self.blocks.append((self._at, block))
        self._at = end
        return _view(block)

    def members(self, members: list[tuple[int, int, bool]], size: int) -> set[tuple[int, int]]:
        """Read these members of an archive of `size` bytes; return (start, size) of the large tensors.

        The first that makes no sense is the last that is looked at: its bytes are read like any others.
        """
        records = set()
        ends = [header for header, _, _ in members[1:]] + [size]
        for (header, length, is_tensor), end in zip(members, ends, strict=False):
            fields = self.to(header + _HEADER.size)[-_HEADER.size :]
            start = self._at + sum(_HEADER.unpack(fields))
            if start + length > end:
                break
            self.to(start)
            self.to(start + length)
            if is_tensor:
                records.add((start, length))
        return records


def _large_members(file: BinaryIO, size: int) -> list[tuple[int, int, bool]] | None:
    """Return (offset of the header, length, whether it is a tensor) of the large members of an archive, in order.

    Nothing where their places make no sense; None for what torch would not read as a plain archive of tensors: packed,
    of compiled code, or not an archive from its first byte on.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        return None
    try:
        with zipfile.ZipFile(file) as archive:
            listed = archive.infolist()
    except _BAD_ZIP:
        return None
    if any(one.compress_type != zipfile.ZIP_STORED or one.filename.endswith("/constants.pkl") for one in listed):
        return None
    members = [member for member in listed if member.file_size >= LARGE]
    found = sorted((member.header_offset, member.file_size, "/data/" in member.filename) for member in members)
    ends = [header + _HEADER.size + length for header, length, _ in found]
    starts = [header for header, _, _ in found[1:]] + [size]
    if any(end > start for end, start in zip(ends, starts, strict=False)) or any(header < 0 for header, _, _ in found):
        return []
    return found


def _memory(size: int) -> torch.Tensor:
    """Return `size` bytes, as torch would allocate them for a tensor."""
    try:
        storage = torch.UntypedStorage(size)  # type: ignore[no-untyped-call]
        # torch.empty(size) may take the time to fill it
        return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
    except RuntimeError as error:
        raise MemoryError(f"no {size} bytes of memory for a tensor of the checkpoint: {error}") from error


def _view(block: torch.Tensor) -> memoryview:
    return memoryview(cast("Any", block.numpy()))
