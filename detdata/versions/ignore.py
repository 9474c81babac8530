"""What counts as data: the rules that a manifest records, with patterns in gitignore's syntax.

The rules are part of the record and not of the machine: hashing reads `.detdataignore` at the root once, and verifying
uses what was recorded.
"""

# One path object for each file would cost more than its system call.
# ruff: noqa: PTH114

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.errors import DatasetError
from detdata.versions.patterns import LONGEST, IgnoreLine, is_ignored, parse_line

Symlinks: TypeAlias = Literal["follow", "record", "refuse"]

IGNORE_FILE = ".detdataignore"
SYMLINKS = ("follow", "record", "refuse")

_MAX_BYTES = 1 << 20  # of an ignore file


@dataclass(frozen=True, slots=True)
class Rules:
    """Which files below a root are data, and what becomes of symbolic links.

    ignore: patterns of the root's ignore file. include: if there are any, only files that match one of them, or lie in
    a folder that does, count. exclude: files and folders that match don't count. All three in gitignore's syntax,
    relative to the root; `exclude` and `ignore` win over `include`. symlinks: "follow" (what a link leads to counts as
    if it lay there), "record" (the link's own text counts) or "refuse". Raises TypeError, ValueError.

    >>> Rules(exclude=("*.tmp",)).symlinks
    'follow'
    """

    ignore: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    symlinks: Symlinks = "follow"

    def __post_init__(self) -> None:
        for name in ("ignore", "include", "exclude"):
            patterns = getattr(self, name)
            if not isinstance(patterns, tuple) or not all(isinstance(pattern, str) for pattern in patterns):
                raise ArgumentTypeError(f"{name} must be a tuple of patterns, got {brief(patterns)}")
            bad = next((pattern for pattern in patterns if {"\n", "\0"} & set(pattern)), None)
            if bad is not None:
                raise ArgumentValueError(f"{name}: a pattern is one line, got {brief(bad)}; give an item for each line")
            long = next((pattern for pattern in patterns if len(pattern) > LONGEST), None)
            if long is not None:
                raise ArgumentValueError(f"{name}: a pattern has at most {LONGEST} characters, got {brief(long)}")
        if self.symlinks not in SYMLINKS:
            raise ArgumentValueError(f"symlinks must be one of {', '.join(SYMLINKS)}; got {brief(self.symlinks)}")


@dataclass(frozen=True, slots=True)
class Filter:
    """The patterns of some rules, made ready. `filter_for` gives one only where there are patterns."""

    leave_out: tuple[tuple[IgnoreLine, ...], ...]
    include: tuple[IgnoreLine, ...]
    only_included: bool

    def enters(self, folder: str) -> bool:
        """Return whether there can be data in a folder, whose own parents are entered."""
        return not any(is_ignored(lines, folder, is_folder=True) for lines in self.leave_out)

    def keeps(self, file: str) -> bool:
        """Return whether a file counts, all of whose parents are entered."""
        if any(is_ignored(lines, file, is_folder=False) for lines in self.leave_out):
            return False
        return not self.only_included or self._is_included(file)

    def _is_included(self, file: str) -> bool:
        if is_ignored(self.include, file, is_folder=False):
            return True
        if any(line.negated and line.matches(file, is_folder=False) for line in self.include):
            return False
        parts = file.split("/")
        folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        return any(is_ignored(self.include, folder, is_folder=True) for folder in folders)


def filter_for(rules: Rules) -> Filter | None:
    """Return the filter of `rules`, or None if they have no patterns.

    >>> filter_for(Rules(exclude=("*.tmp",))).keeps("a.tmp")
    False
    """
    if not (rules.ignore or rules.exclude or rules.include):
        return None
    leave_out = tuple(lines for lines in (_lines(rules.ignore), _lines(rules.exclude)) if lines)
    return Filter(leave_out, _lines(rules.include), bool(rules.include))


def _lines(patterns: Iterable[str]) -> tuple[IgnoreLine, ...]:
    return tuple(line for line in map(parse_line, patterns) if line is not None)


def keeps_path(rules_filter: Filter | None, path: str, *, is_folder: bool = False) -> bool:
    """Return whether a file counts by the patterns, its parents considered too; whether anything in a folder can.

    >>> keeps_path(filter_for(Rules(ignore=("raw/",))), "raw/a/b.txt")
    False
    """
    if rules_filter is None:
        return True
    parts = path.split("/")
    folders = ("/".join(parts[:depth]) for depth in range(1, len(parts) + is_folder))
    return all(rules_filter.enters(folder) for folder in folders) and (is_folder or rules_filter.keeps(path))


def read_ignore(root: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the patterns of `.detdataignore` in the folder `root`, without comments; () where there is no such file.

    Raises DatasetError if it is there and cannot be read, is no regular file, over 1 MiB or not UTF-8.

    >>> read_ignore("no/such/folder")
    ()
    """
    path = f"{os.fspath(root)}/{IGNORE_FILE}"
    try:
        # Without O_NONBLOCK a pipe of that name would be waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise DatasetError(path, "is a link that leads nowhere; mend or remove it") from None
        return ()
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({error.strerror}); without it nobody knows what is data") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DatasetError(path, "is no regular file; it holds one pattern a line, or isn't there")
        data = b""
        while len(data) <= _MAX_BYTES and (more := os.read(descriptor, _MAX_BYTES + 1)):
            data += more
    finally:
        os.close(descriptor)
    return parse_ignore(data, path)


def parse_ignore(data: bytes, path: str = IGNORE_FILE) -> tuple[str, ...]:
    r"""Return the patterns of an ignore file's content. Raises DatasetError, naming `path`.

    >>> parse_ignore(b"# caches\n*.tmp\r\n\n!keep.tmp\n")
    ('*.tmp', '!keep.tmp')
    """
    if len(data) > _MAX_BYTES:
        raise DatasetError(path, f"has more than {_MAX_BYTES} bytes; a list of patterns is small")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(path, f"is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    patterns = tuple(line for line in lines if line.strip() and not line.startswith("#"))
    if any("\0" in pattern for pattern in patterns):
        raise DatasetError(path, "has NUL characters in it; it is no list of patterns")
    return patterns
