"""Manifest files on disk: read in bounded pieces, written whole or not at all."""

# What a crash leaves behind is decided by single system calls; they stand here under their own names.
# ruff: noqa: PTH101, PTH105, PTH108, PTH116, PTH120, PTH123

from __future__ import annotations

import codecs
import contextlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from detdata.disk import sync_folder
from detdata.errors import UnknownFormat
from detdata.versions.errors import DatasetError
from detdata.versions.manifest_file import check_start
from detdata.versions.own_files import MANIFEST_ENDINGS, remove_leftovers, temporary_beside
from detdata.versions.places import check_current_folder

MAX_TEXT = 8 << 30  # bytes: some 100 million files
# Gzip can turn 1 MB into 1 GB; a manifest, whose lines all differ, shrinks to a fiftieth at the very most.
BOMB_SIZE = 64 << 20
BOMB_RATIO = 200

_PIECE = 1 << 16
_START = 4096
_MAGIC = b"\x1f\x8b"
# Deflate, no name, no time, no system: the same text gives the same bytes on every machine.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def read_text(path: str) -> str:
    """Return the text of a manifest file, plain or gzip.

    Raises DatasetError (an OSError) if it cannot be read, UnknownFormat if it is no text of a manifest.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DatasetError(path, "is no regular file, so it is no manifest")
            return _join(_unpacked(iter(lambda: file.read(_PIECE), b"")), status.st_size)
    except DatasetError:
        raise
    except UnknownFormat as error:
        raise UnknownFormat(f"{path}: {error}") from None
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({error.strerror})") from error


def write_text(path: str, text: str) -> None:
    """Put `text` into the file `path` at once, gzip if its name ends in `.gz`; a link's target is what is written.

    The file is whole or as it was, whenever the process dies. Raises DatasetError (an OSError).
    """
    check_current_folder(path)
    data = text.encode()
    target = os.path.realpath(path)
    try:
        mode = _mode_of(target)
        _replace(target, compress(data) if path.endswith(".gz") else data, ".gz" if path.endswith(".gz") else "", mode)
    except OSError as error:
        why = error.reason if isinstance(error, DatasetError) else f"cannot be written ({error.strerror or error})"
        raise DatasetError(path, f"{why}; what was there before is as it was") from error


def compress(data: bytes) -> bytes:
    """Return `data` in the gzip format, with nothing in it of when, where and under what name it was made."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _mode_of(target: str) -> int | None:
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):  # a device that is replaced is gone for every other program
        raise DatasetError(target, "is a folder, pipe or device, and no file to write a manifest to")
    return stat.S_IMODE(mode)


def _replace(target: str, data: bytes, suffix: str, mode: int | None) -> None:
    folder = os.path.dirname(target)
    temporary = temporary_beside(folder, f".lock.json{suffix}")  # never data, if a SIGKILL leaves it within a dataset
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # not every file system can; the file itself is written
        sync_folder(Path(folder))
    remove_leftovers(folder, MANIFEST_ENDINGS)


def _join(pieces: Iterable[bytes], size_on_disk: int) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts: list[str] = []
    size, started = 0, False
    try:
        for piece in pieces:
            size += len(piece)
            if size > MAX_TEXT:
                raise UnknownFormat(f"no manifest: it has more than {MAX_TEXT} bytes")
            if b"\0" in piece:  # never in JSON; holes in a file are read as such
                raise UnknownFormat("no manifest, or a torn one: there are zero bytes in it")
            texts.append(decoder.decode(piece))
            if not started and size >= _START:
                started = True
                check_start("".join(texts))
                if size_on_disk > MAX_TEXT:
                    raise UnknownFormat(f"no manifest: it has {size_on_disk} bytes, more than {MAX_TEXT}")
        texts.append(decoder.decode(b"", final=True))
    except UnicodeDecodeError as error:
        raise UnknownFormat(f"no manifest, or a torn one: it is not UTF-8 ({error.reason})") from None
    return "".join(texts)


def _unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = next(pieces, b"")
    if not first.startswith(_MAGIC):
        yield first
        yield from pieces
        return
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    packed = unpacked = 0
    try:
        for piece in chain((first,), pieces):
            packed += len(piece)
            rest = piece
            while True:
                data = inflate.decompress(rest, _PIECE)
                unpacked += len(data)
                if unpacked > max(BOMB_SIZE, BOMB_RATIO * packed):
                    raise UnknownFormat(f"no manifest: it unpacks to more than {BOMB_RATIO} times its size")
                if data:
                    yield data
                rest = inflate.unconsumed_tail
                if inflate.eof or (not rest and len(data) < _PIECE):
                    break
            if inflate.unused_data or (inflate.eof and rest):
                raise UnknownFormat("edited or torn: something follows the end of the gzip data")
    except zlib.error as error:
        raise UnknownFormat(f"edited or torn: the gzip data is damaged ({error})") from None
    if not inflate.eof:
        raise UnknownFormat("edited or torn: the gzip data is cut short")
