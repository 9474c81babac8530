"""The entries of a manifest as columns: checked and digested in bulk.

A dataset may have millions of files, and a manifest is read at each start of a job. So there is no object for a file
here: a check runs over a whole column, or over all paths joined into one text, and only a column that fails is looked
at entry by entry, to name the culprit. Without NumPy: importing it takes as long as a manifest of 400,000 files.
"""

from __future__ import annotations

import contextlib
import operator
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import xxhash

from detdata.algorithms import join_digest, new_hasher
from detdata.checks import brief
from detdata.errors import UnknownFormat
from detdata.versions.names import are_utf8, check_all_relative, printable

FILE, LINK = "file", "link"
MAX_PATH = 1 << 16  # bytes
MAX_FILE = 2**63 - 1  # bytes

_DIGITS = frozenset("0123456789abcdef")
_WALL = "/\0/"
_HEAD = b"detdata.dataset/1\0bytes"


class Checked(NamedTuple):
    """Columns found to be right, in the form in which they are digested."""

    paths: bytes  # each followed by a zero byte
    sizes: Sequence[int]
    links: bytes  # 1 for a link, 0 for a file
    digests: bytes  # one after another; empty for content="rows"


def check_columns(
    paths: Sequence[str], sizes: Sequence[int], hexes: Sequence[str], kinds: Sequence[str], hex_length: int
) -> Checked:
    """Return the columns of one manifest's entries, checked.

    paths: relative, in strictly rising byte order. sizes: 0 … 2**63 - 1. hexes: each of `hex_length` lower-case
    digits. kinds: "file" or "link". Raises UnknownFormat naming the first entry that is wrong. Some 0.5 µs an entry.
    """
    if not len(paths) == len(sizes) == len(hexes) == len(kinds):
        raise UnknownFormat(
            f"{len(paths)} paths, {len(sizes)} sizes, {len(hexes)} digests and {len(kinds)} kinds; each file has one"
        )
    joined = encode_paths(paths)
    keys: Sequence[Any] = paths if are_utf8(paths) else joined.split(b"\0")[:-1]
    if 4 * max(map(len, paths), default=0) > MAX_PATH:
        _refuse_long(paths, joined.split(b"\0")[:-1])
    if not all(map(operator.lt, keys, islice(keys, 1, None))):
        at = next(at for at in range(1, len(keys)) if keys[at] <= keys[at - 1])
        why = "is listed twice" if keys[at] == keys[at - 1] else "is out of order: paths are sorted by their bytes"
        raise UnknownFormat(f"the path '{printable(paths[at])}' {why}")
    return Checked(joined, _as_sizes(paths, sizes), _as_flags(paths, kinds), _as_digests(paths, hexes, hex_length))


def encode_paths(paths: Sequence[str]) -> bytes:
    """Return the bytes of all paths, each followed by a zero byte.

    Raises UnknownFormat for one that is not relative, or could leave its root.
    """
    if not paths:
        return b""
    if set(map(type, paths)) != {str}:
        _refuse(paths, paths, lambda path: type(path) is str, "a path must be text")
    # One text, each path between slashes: an empty, "." or ".." part shows as "//" or "/.".
    text = f"/{_WALL.join(paths)}/"
    plain = text.isascii() and text.count("\0") == len(paths) - 1 and "//" not in text and "/." not in text
    if not plain or "\\" in text or ":" in text:
        check_all_relative(paths)
    return "\0".join((*paths, "")).encode("utf-8", "surrogateescape")


def _refuse_long(paths: Sequence[str], keys: Sequence[bytes]) -> None:
    """Raise for the first path that is too long, if there is one."""
    if max(map(len, keys)) > MAX_PATH:
        _refuse(paths, keys, lambda key: len(key) <= MAX_PATH, f"a path has at most {MAX_PATH} bytes")


def digest_columns(algorithm: str, piece_size: int, columns: Checked) -> str:
    """Return the digest of a dataset whose content is bytes. Fixed in docs/spec.md, section 7. Some 0.1 µs an entry."""
    hasher = new_hasher(algorithm)
    hasher.update(_HEAD + struct.pack("<QQ", piece_size, len(columns.sizes)))
    sizes = little_endian(array("q", columns.sizes)).tobytes()
    for column in (columns.paths, sizes, columns.links, columns.digests):
        hasher.update(column)
    return join_digest(algorithm, hasher.digest().hex())


def listing_digest(paths: bytes, sizes: Sequence[int]) -> str:
    """Return the digest of a listing, the names and sizes of all its files: parts of one listing agree in it.

    paths: what `encode_paths` returned. sizes: one a path, 0 … 2**63 - 1. Returns 32 hexadecimal digits.
    """
    state = xxhash.xxh3_128()
    state.update(paths)
    state.update(little_endian(array("q", sizes)).tobytes())
    return str(state.hexdigest())


def little_endian(values: array[int]) -> array[int]:
    """Return integers of this machine as little-endian ones, and the other way round.

    >>> little_endian(array("q", [1])).tobytes()[:2].hex()
    '0100'
    """
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values


def _as_sizes(paths: Sequence[str], sizes: Sequence[int]) -> Sequence[int]:
    if not (set(map(type, sizes)) <= {int} and min(sizes, default=0) >= 0 and max(sizes, default=0) <= MAX_FILE):
        _refuse(paths, sizes, lambda size: type(size) is int and 0 <= size <= MAX_FILE, "a size is 0 … 2**63 - 1")
    return sizes


def _as_flags(paths: Sequence[str], kinds: Sequence[str]) -> bytes:
    if len(kinds) == kinds.count(FILE):
        return bytes(len(kinds))
    if not set(map(type, kinds)) <= {str} or not set(kinds) <= {FILE, LINK}:
        _refuse(paths, kinds, lambda kind: type(kind) is str and kind in {FILE, LINK}, 'a kind is "file" or "link"')
    return bytes([kind == LINK for kind in kinds])


def _as_digests(paths: Sequence[str], hexes: Sequence[str], length: int) -> bytes:
    with contextlib.suppress(TypeError, ValueError):
        joined = "".join(hexes)
        data = bytes.fromhex(joined)  # lenient about spaces and case, so compare
        if data.hex() == joined and set(map(len, hexes)) <= {length}:
            return data
    rule = f"a digest has {length} lower-case hexadecimal digits" if length else 'content "rows" has no digest a file'
    return _refuse(paths, hexes, lambda text: type(text) is str and len(text) == length and set(text) <= _DIGITS, rule)


def _refuse(paths: Sequence[str], values: Sequence[Any], is_right: Callable[[Any], bool], rule: str) -> NoReturn:
    """Raise for the first value that is not right."""
    at = next((at for at, value in enumerate(values) if not is_right(value)), 0)
    of = "" if values is paths else f" for '{printable(paths[at])}'"
    raise UnknownFormat(f"entry {at}: {rule}; found {brief(values[at])}{of}")
