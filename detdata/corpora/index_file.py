"""An outline on disk: the index of one file, tied to what that file is. Fixed in docs/spec.md, section 9.

    b"detdata.index/1\\n"  ·  u64le: length of the header  ·  header, canonical JSON  ·  zeros up to a multiple of 64
    the arrays, little-endian, each from a multiple of 64 on  ·  xxh3-128 (16 bytes, big-endian) of all that is before

The header names the format and the options that the outline was made with, the size, tag and digest of the file, and of
each array its name, type and length. An index is used if the file's size and tag are those of the header. If the size
is the same and the tag is not (a copy, a move, a `touch`), the file is hashed, which is many times faster than making
an index; if the digest is the same the index holds, else it is stale. A torn or edited index counts as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.corpora.files import DataFile, Identity
from detdata.corpora.protocol import Format, Options, Outline
from detdata.records import canonical_json
from detdata.versions.cache import default_folder
from detdata.versions.own_files import INDEX_ENDING, open_own, remove_leftovers, temporary_beside

_MAGIC = b"detdata.index/1\n"
_ALIGN = 64
_END = 16
_BLOCK = 1 << 22
_DTYPES = frozenset({"<i8", "<i4", "<u4", "<u2", "|u1"})
_SIZES = "block_sizes"
_MOST_ROWS = 2**53
_LARGEST = 1 << 32  # bytes of an index that is read


@dataclass(frozen=True, slots=True)
class Index:
    """An outline, and the file that it is of. digest: xxh3-128 of the file's bytes, as hex."""

    outline: Outline
    identity: Identity
    digest: str


def index_key(form: Format, options: Options) -> dict[str, Any]:
    """Return what an index depends on beside the file: the format and those options that change an outline."""
    asked = {name: options.get(name) for name in form.outline_options if options.get(name) is not None}
    for name in ("seq_len", "dtype"):
        if name in form.outline_options and getattr(options, name) is not None:
            asked[name] = getattr(options, name)
    if options.rows_per_block is not None:
        asked["rows_per_block"] = options.rows_per_block
    return {"name": form.name, "options": asked}


def places(file: DataFile, key: Mapping[str, Any], folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield where the index of a file may be, in the order of looking: beside it, then in the folder of caches.

    folder: the folder of caches instead of the user's own, or None for that one.
    """
    if file.path is not None:
        yield Path(file.path + INDEX_ENDING)
    base = Path(folder) if folder is not None else default_folder()
    if base is not None:
        name = file.name if file.path is None else os.path.realpath(file.path)
        text = canonical_json([name, dict(key)])
        yield base / "indexes" / f"{xxhash.xxh3_128_hexdigest(text)}{INDEX_ENDING}"


def index_parts(index: Index, key: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what an index file holds, in pieces."""
    arrays = {_SIZES: index.outline.block_sizes, **index.outline.arrays}
    little = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    header = canonical_json(
        {
            "arrays": [[name, array.dtype.str, array.size] for name, array in little.items()],
            "file": {"digest": index.digest, "size": index.identity.size, "tag": index.identity.tag},
            "format": dict(key),
            "meta": dict(index.outline.meta),
        }
    )
    hasher, done = xxhash.xxh3_128(), 0
    parts: list[Any] = [_MAGIC + len(header).to_bytes(8, "little") + header, *little.values()]
    for part in parts:
        for piece in (bytes(-done % _ALIGN), memoryview(part).cast("B")):
            yield piece
            hasher.update(piece)
            done += len(piece)
    yield hasher.digest()


def write_index(path: Path, index: Index, key: Mapping[str, Any]) -> None:
    """Write an index, whole or not at all; of one that a power cut tore nothing is read. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(os.fspath(path.parent))
    temporary = temporary_beside(os.fspath(path.parent), INDEX_ENDING)
    try:
        with open(temporary, "wb") as target:
            target.writelines(index_parts(index, key))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@lru_cache(maxsize=4096)
def _sweep(folder: str) -> None:
    """Remove what killed processes left in a folder: once a process, as looking through many thousand names is dear."""
    remove_leftovers(folder, (INDEX_ENDING,))


def read_index(path: Path, key: Mapping[str, Any]) -> Index | None:
    """Return the index at `path`; None if there is none that is whole and made with this format and these options.

    Its arrays are views of what was read. Cost: reading and hashing it, some 0.1 ms for each MB.
    """
    file = open_own(path)
    if file is None:
        return None
    with file, suppress(OSError, MemoryError):
        start = file.read(len(_MAGIC))
        if start == _MAGIC and os.fstat(file.fileno()).st_size <= _LARGEST:
            return parse_index(start + file.read(), key)
    return None


def parse_index(content: bytes, key: Mapping[str, Any]) -> Index | None:
    """Return the index that these bytes are; None if they are none, as `read_index` says."""
    if not content.startswith(_MAGIC) or len(content) < len(_MAGIC) + 8 + _END:
        return None
    if xxhash.xxh3_128_digest(memoryview(content)[:-_END]) != content[-_END:]:
        return None
    try:
        return _parse(content, key)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # whole, and yet not written by us
        return None


def _parse(content: bytes, key: Mapping[str, Any]) -> Index | None:
    start = len(_MAGIC) + 8
    length = int.from_bytes(content[len(_MAGIC) : start], "little")
    header = json.loads(content[start : start + length])
    if header["format"] != dict(key):
        return None
    place, arrays = start + length, {}
    for name, dtype, count in header["arrays"]:
        if type(name) is not str or name in arrays or dtype not in _DTYPES or type(count) is not int or count < 0:
            return None
        place += -place % _ALIGN
        size = count * np.dtype(dtype).itemsize
        if place + size > len(content) - _END:
            return None
        arrays[name] = _native(np.frombuffer(content, dtype, count, place))
        place += size
    sizes = arrays.pop(_SIZES)
    if sizes.dtype != np.int64 or (sizes.size and int(sizes.min()) < 0) or float(sizes.sum(dtype=float)) > _MOST_ROWS:
        return None
    file, meta = header["file"], header["meta"]
    size, tag, digest = file["size"], file["tag"], file["digest"]
    if type(size) is not int or size < 0 or type(tag) is not str or type(digest) is not str or type(meta) is not dict:
        return None
    return Index(Outline(block_sizes=sizes, arrays=arrays, meta=meta), Identity(size, tag), digest)


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class DigestingFile:
    """A file that is hashed while it is read from its start to its end, as a scan does it."""

    __slots__ = ("_done", "_file", "_hasher")

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._hasher = xxhash.xxh3_128()
        self._done = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.name

    @property
    def path(self) -> str | None:
        """The file's path."""
        return self._file.path

    def identity(self) -> Identity:
        """Return what the file is now."""
        return self._file.identity()

    def read(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start` on."""
        data = self._file.read(start, length)
        if start <= self._done < start + length:
            self._hasher.update(memoryview(data)[self._done - start :])
            self._done = start + length
        return data

    def map(self) -> Any:
        """Return the whole file as one read-only buffer."""
        return self._file.map()

    def fresh(self) -> DataFile:
        """Return the same file, not open yet and not hashed."""
        return self._file.fresh()

    def digest(self, size: int) -> str:
        """Return the xxh3-128 of the whole file as hex, reading what was not read yet."""
        while self._done < size:
            self.read(self._done, min(_BLOCK, size - self._done))
        return self._hasher.hexdigest()
