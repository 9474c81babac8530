"""Names of files, the same on every system: relative POSIX paths whose bytes are UTF-8 or stand for themselves.

In memory a path is a `str`; a byte that isn't UTF-8 is a surrogate escape, as in `os.fsdecode` on Linux. The bytes of a
path give the order and enter digests, so neither depends on locale, case rules or the order of listing.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from detdata.checks import brief, visible
from detdata.errors import UnknownFormat

_LONGEST_SHOWN = 200  # characters of a path in a message
_MOST_NOTES = 20
# Where the system's names are decoded in another way (LC_ALL of a Latin-1 locale), they are taken back to bytes first.
SYSTEM_IS_UTF8 = sys.getfilesystemencoding().lower().replace("-", "") == "utf8"
_WINDOWS = os.name == "nt"
_BAD_PARTS = ("", ".", "..")


def path_key(path: str) -> bytes:
    r"""Return the bytes of a path: what paths are ordered by, and what enters a digest.

    >>> path_key("é/\udcff")
    b'\xc3\xa9/\xff'
    """
    return path.encode("utf-8", "surrogateescape")


def sort_order(paths: Sequence[str]) -> list[int]:
    """Return the indexes that put `paths` into byte order. Cost O(n log n), some 0.5 µs a path.

    >>> sort_order(["b", "a/c", "a.txt"])
    [2, 1, 0]
    """
    keys: Sequence[Any] = paths if are_utf8(paths) else [path_key(path) for path in paths]
    return sorted(range(len(keys)), key=keys.__getitem__)


def are_utf8(paths: Sequence[str]) -> bool:
    """Return whether all paths are: then the order of their bytes is that of their text.

    UTF-8 keeps the order of code points; other bytes stand as surrogates, whose code points lie elsewhere.

    >>> are_utf8(["é"]), are_utf8([chr(0xDCFF)])
    (True, False)
    """
    text = "".join(paths)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
    return True


def printable(path: str) -> str:
    r"""Return `path` as it can stand in a message: one line, no control characters, at most 200 characters.

    >>> printable("a\nb\udcff")
    'a\\nb\\xff'
    """
    if len(path) > _LONGEST_SHOWN:
        half = _LONGEST_SHOWN // 2
        path = f"{path[:half]}…{path[-half:]}"
    return visible(path)


def check_relative(path: object) -> str:
    """Return `path` if it is a name that can be in a manifest: it stays below its root on every system.

    Raises UnknownFormat for anything but a relative POSIX path without empty, `.` or `..` parts and NUL characters, for
    surrogates that stand for no byte, and on Windows for a backslash or colon.

    >>> check_relative("train/a.parquet")
    'train/a.parquet'
    """
    if not isinstance(path, str):
        raise UnknownFormat(f"a path must be text, found {brief(path)}")
    reason = _fault(path)
    if reason:
        raise UnknownFormat(f"the path '{printable(path)}' {reason}; paths are relative to the root and stay below it")
    return path


def check_all_relative(paths: Sequence[str]) -> None:
    """Check many paths as `check_relative` does, some 30 times as fast. Cost about 50 ns a path.

    >>> check_all_relative(["a", "a/b"])
    """
    if not paths:
        return
    text = "\0".join(("", *paths, ""))
    sound = (
        text.count("\0") == len(paths) + 1
        and not any(f"{before}{part}{after}" in text for part in _BAD_PARTS for before in "\0/" for after in "\0/")
        and _is_sound_text(text)
        and not (_WINDOWS and ("\\" in text or ":" in text))
    )
    if not sound:
        for path in paths:
            check_relative(path)


def _fault(path: str) -> str:
    if not path:
        return "is empty"
    if "\0" in path:
        return "has a NUL character in it"
    if path.startswith("/"):
        return "is absolute"
    for part in path.split("/"):
        if part in _BAD_PARTS:
            return f"has the part '{part}'"
    if not _is_sound_text(path):
        return "has surrogates in it that stand for no byte of a name"
    if _WINDOWS and ("\\" in path or ":" in path):
        return "has a backslash or colon in it, which Windows takes for something else"
    return ""


def _is_sound_text(text: str) -> bool:
    # There and back: escapes whose bytes are valid UTF-8 would give two texts to one name.
    try:
        return text.isascii() or path_key(text).decode("utf-8", "surrogateescape") == text
    except UnicodeEncodeError:
        return False


def from_system(name: str) -> str:
    """Return a name as Python got it from the system, as a portable name.

    >>> from_system("a")
    'a'
    """
    return name if SYSTEM_IS_UTF8 else os.fsencode(name).decode("utf-8", "surrogateescape")


def to_system(path: str) -> str:
    """Return a portable path as the system's calls take it; undoes `from_system`.

    >>> to_system("a/b")
    'a/b'
    """
    return path if SYSTEM_IS_UTF8 else os.fsdecode(path_key(path))


def clashes(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of paths that a file system without case, or one that composes accents, would hold to be one.

    paths: no two the same.

    >>> clashes(["a", "B", "A"])
    [('a', 'A')]
    """
    text = "\0".join(paths)
    folded_text = unicodedata.normalize("NFC", text.casefold())
    if folded_text == text:  # no capitals, nothing to compose: nearly every tree
        return []
    folded = folded_text.split("\0")
    if len(set(folded)) >= len(paths):
        return []
    first: dict[str, str] = {}
    pairs = []
    for path, key in zip(paths, folded, strict=True):
        if first.setdefault(key, path) is not path:
            pairs.append((first[key], path))
    return pairs


def clash_notes(paths: Sequence[str]) -> tuple[str, ...]:
    """Return a line for people about each of `clashes`, the first 20 of them.

    >>> clash_notes(["a", "B"])
    ()
    """
    pairs = clashes(paths)
    notes = [
        f"{printable(one)} and {printable(other)} differ only in case or in how accents are written: "
        "on macOS and Windows they would be one file"
        for one, other in pairs[:_MOST_NOTES]
    ]
    if len(pairs) > _MOST_NOTES:
        notes.append(f"… and {len(pairs) - _MOST_NOTES} more such pairs")
    return tuple(notes)
