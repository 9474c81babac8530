"""Patterns of paths: gitignore lines and globs, matched in one way on every system and in every release.

Written here and not taken from a package, because what matches decides what a dataset is: another release of another
package must not change a version. A pattern becomes one regular expression over the whole relative path. Its groups are
atomic (the first place where the part between two stars fits is as good as any later one), so a hostile pattern costs
no more than the length of the path times its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from detdata.checks import brief
from detdata.errors import ArgumentValueError

MAGIC = re.compile(r"[*?\[]")
LONGEST = 1 << 14  # characters of a pattern: no path that a system takes needs as many

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\ \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"!-~",
    "lower": "a-z",
    "print": r"\ -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\ \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


@dataclass(frozen=True, slots=True)
class IgnoreLine:
    """One line of gitignore's syntax. negated: it takes back. folders_only: it ended in a slash."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the line is about this very path; what lies below a folder is not asked."""
        return (is_folder or not self.folders_only) and self.regex.fullmatch(path) is not None


def parse_line(line: str) -> IgnoreLine | None:
    """Return what a line of gitignore's syntax means; None for a comment and for a line that can match nothing.

    >>> parse_line("/raw/*.csv").matches("raw/a.csv", is_folder=False)
    True
    """
    text = _without_trailing_spaces(line)
    if text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    anchored = "/" in text
    text = text.removeprefix("/")
    regex = compile_path(text if anchored else f"**/{text}") if text else None
    return None if regex is None else IgnoreLine(regex, negated, folders_only)


def is_ignored(lines: tuple[IgnoreLine, ...], path: str, *, is_folder: bool) -> bool:
    """Return whether the last line that is about `path` ignores it. Its parents must have been asked before.

    >>> lines = (parse_line("*"), parse_line("!*.txt"))
    >>> is_ignored(lines, "a.txt", is_folder=False), is_ignored(lines, "a.csv", is_folder=False)
    (False, True)
    """
    for line in reversed(lines):
        if line.matches(path, is_folder=is_folder):
            return not line.negated
    return False


@dataclass(frozen=True, slots=True)
class Glob:
    """A glob of relative paths: `*`, `?` and `[…]` within a name, hidden ones too, and `**` for any number of folders.

    regex: of the paths that it selects. levels: regexes of the names of folders at depth 1, 2, … that can hold such a
    path; deeper ones: all where it has a `**`, else none.
    """

    regex: re.Pattern[str]
    levels: tuple[re.Pattern[str], ...]
    deep: bool

    def selects(self, path: str) -> bool:
        """Return whether the path itself matches."""
        return self.regex.fullmatch(path) is not None

    def enters(self, folder: str) -> bool:
        """Return whether a path below `folder` can match."""
        names = folder.split("/")
        if len(names) > len(self.levels):
            return self.deep
        return all(level.fullmatch(name) for level, name in zip(self.levels, names, strict=False))


def parse_glob(text: str) -> Glob | None:
    """Return the glob that `text`, relative and without a slash at its end, means; None if it can match nothing.

    Raises ValueError if it has more than 16,384 characters.

    >>> parse_glob("**/*.parquet").selects("a/b/c.parquet")
    True
    """
    if len(text) > LONGEST:
        raise ArgumentValueError(f"a glob has at most {LONGEST} characters, found {len(text)}: {brief(text)}")
    parts = _split(text)
    if parts is None:
        return None
    fixed = parts.index("**") if "**" in parts else len(parts) - 1
    regex = compile_path(text)
    if regex is None:
        return None
    levels = [_name_regex(part) for part in parts[:fixed]]
    return Glob(regex, tuple(re.compile(level or "", re.DOTALL) for level in levels), "**" in parts)


def escape_glob(path: str) -> str:
    """Return the glob that matches just `path`.

    >>> escape_glob("a[1].txt")
    'a[[]1].txt'
    """
    return re.sub(r"[*?\[\\]", lambda match: "[\\\\]" if match[0] == "\\" else f"[{match[0]}]", path)


def unescape_glob(glob: str) -> str | None:
    """Return the path that `escape_glob` made this glob of; None for any other glob.

    >>> unescape_glob("a[[]1].txt"), unescape_glob("*.txt")
    ('a[1].txt', None)
    """
    path = re.sub(r"\[([*?\[]|\\\\)\]", lambda match: match[1][0], glob)
    return path if escape_glob(path) == glob else None


def compile_path(pattern: str) -> re.Pattern[str] | None:
    """Return the regex of the relative paths that `pattern` matches whole; None if there are none.

    >>> bool(compile_path("a/**/b").fullmatch("a/x/y/b"))
    True
    """
    runs: list[list[str]] = [[]]  # of names between one `**` and the next
    for part in _split(pattern) or ["["]:
        if part == "**":
            runs.append([])
            continue
        name = _name_regex(part)
        if name is None:
            return None
        runs[-1].append(name)
    first, *rest = runs
    if not rest:
        return re.compile("/".join(first), re.DOTALL)
    text = "".join(f"{name}/" for name in first)
    *middle, last = rest
    for run in middle:
        if run:
            text += "(?>(?:[^/]+/)*?" + "".join(f"{name}/" for name in run) + ")"
    text += "(?:[^/]+/)*" + "/".join(last) if last else ".+"
    return re.compile(text, re.DOTALL)


def _split(pattern: str) -> list[str] | None:
    """Return the names of a pattern: what lies between the slashes that are in no `[…]`; None if one isn't closed."""
    parts = [""]
    i = 0
    while i < len(pattern):
        end = i + 1
        if pattern[i] == "[":
            found = _bracket(pattern, end)
            if found is None:
                return None
            end = found[1]
        elif pattern[i] == "\\" and pattern[end : end + 1] != "/":
            end += 1
        elif pattern[i] == "\\":
            i, end = end, end + 1  # an escaped slash is a slash
        if pattern[i] == "/":
            parts.append("")
        else:
            parts[-1] += pattern[i:end]
        i = end
    return parts


def _name_regex(part: str) -> str | None:
    """Return the regex of one name in a path."""
    chunks = [""]  # what stands between the stars
    i = 0
    while i < len(part):
        character = part[i]
        i += 1
        if character == "*":
            chunks.append("")
        elif character == "?":
            chunks[-1] += "[^/]"
        elif character == "[":
            found = _bracket(part, i)
            if found is None:
                return None
            chunk, i = found
            chunks[-1] += chunk
        elif character == "\\":
            if i == len(part):
                return None
            chunks[-1] += re.escape(part[i])
            i += 1
        else:
            chunks[-1] += re.escape(character)
    first, *rest = chunks
    if not rest:
        return first
    *middle, last = rest
    return first + "".join(f"(?>[^/]*?{chunk})" for chunk in middle if chunk) + f"[^/]*{last}"


def _bracket(part: str, i: int) -> tuple[str, int] | None:
    """Return the regex of a `[…]` that begins before index i, and the index after it; None if it isn't closed."""
    negated = i < len(part) and part[i] in "!^"
    i += negated
    pieces = []
    begin = i
    while i < len(part) and (part[i] != "]" or i == begin):
        end = part.find("]", i + 2) if part.startswith("[:", i) else -1
        if end > i + 2 and part[end - 1] == ":":  # else the bracket stands for itself, as in git
            if part[i + 2 : end - 1] not in _CLASSES:
                return None
            pieces.append(_CLASSES[part[i + 2 : end - 1]])
            i = end + 1
            continue
        low, i = _member(part, i)
        pieces.append(re.escape(low))
        if i + 1 < len(part) and part[i] == "-" and part[i + 1] != "]":
            high, i = _member(part, i + 1)
            if low <= high:  # a range backwards holds its first character only, as in git
                pieces.append(f"{re.escape(low)}-{re.escape(high)}")
    if i >= len(part):
        return None
    inside = "".join(pieces)
    if not inside:
        return ("[^/]" if negated else "(?!)"), i + 1
    return f"(?!/)[{'^' if negated else ''}{inside}]", i + 1


def _member(part: str, i: int) -> tuple[str, int]:
    if part[i] == "\\":
        i += 1
    return part[i : i + 1], i + 1


def _without_trailing_spaces(line: str) -> str:
    end = i = 0
    while i < len(line):
        step = 2 if line[i] == "\\" else 1
        if line[i] != " ":
            end = i + step
        i += step
    return line[:end]
