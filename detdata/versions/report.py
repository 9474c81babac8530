"""What differs between two versions of a dataset: for people, for machines, and for a page of a CI run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from detdata.versions.names import path_key, printable

if TYPE_CHECKING:
    from detdata.rows import RowsReport

MOST = 20  # lines of one kind for people
_MOST_ON_A_PAGE = 10
_MOST_NAMES = 1000  # in the JSON of files that were read, before stretches of the listing stand for them
_NO_DIGEST = "none: the files are not one table"


@dataclass(frozen=True, slots=True)
class Change:
    """One file that is in both versions, and is another one.

    kind: "content" (same size), "size" or "kind" (a link became a file, or the other way round). Sizes are in bytes
    (rows, where the content is rows). Digests are hexadecimal, without the algorithm. offset: of the first byte that
    differs, where that is known.
    """

    path: str
    old_size: int
    new_size: int
    old_digest: str
    new_digest: str
    kind: str
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The difference of two versions of a dataset; what `Manifest.diff` and `Manifest.verify` return.

    ok: whether both are the same version. added, removed: paths, in byte order. renamed: (old path, new path) of files
    with the same content. later: nothing but added files, all of which come after every old one. files, bytes: of the
    new version (rows instead of bytes, where the content is rows). read, trusted: how many files were read, and how
    many were taken from the cache; None where nothing was. read_files, trusted_files: their paths. quick: whether
    digests in the cache were to be trusted; unproved: what that leaves unproved, or "". notes: what a person should
    know besides. rows: the difference of the rows, where the content is rows; new_digest is "" where they cannot be
    read as one table.

    `str(report)` is for people (`to_text(verbose=True)` names the files that were read and trusted), `to_dict()` for
    machines, `to_markdown()` for the summary of a CI run.

    >>> report = Report(old_digest="xxh3-128:1f", new_digest="xxh3-128:2e", files=3, bytes=70, added=("b", "c"))
    >>> print(report)
    different: 2 added; 3 files, 70 bytes
      old  xxh3-128:1f
      new  xxh3-128:2e
    added
      b
      c
    """

    old_digest: str
    new_digest: str
    files: int
    bytes: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[Change, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    later: bool = False
    read: int | None = None
    trusted: int | None = None
    notes: tuple[str, ...] = ()
    rows: RowsReport | None = None
    read_files: tuple[str, ...] = ()
    trusted_files: tuple[str, ...] = ()
    quick: bool = False
    unproved: str = ""

    @property
    def ok(self) -> bool:
        """Whether both are the same version: the same digest and, where the content is bytes, the same files."""
        same_files = not (self.added or self.removed or self.changed or self.renamed)
        same_rows = self.rows is not None and self.rows.ok
        return self.old_digest == self.new_digest and (same_files or same_rows)

    @property
    def grown(self) -> bool:
        """Whether nothing but an end was added, so that old sample ids still hold: files, or rows where these count."""
        return self.later if self.rows is None else self.rows.kind == "grown"

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, verbose: bool = False) -> str:
        """Return the report for people, at most twenty lines of a kind.

        verbose: name all files that were read, and all that were trusted.
        """
        lines = [self._summary()]
        if not self.ok:
            lines += [f"  old  {self.old_digest}", f"  new  {self.new_digest or _NO_DIGEST}"]
        for title, items in self._findings():
            lines += [title, *(f"  {item}" for item in _cut(items, MOST))]
        if self.rows is not None:
            lines.append(str(self.rows))
        lines += [f"note: {printable(note)}" for note in _cut(self.notes, MOST)]
        for title, paths in (("read", self.read_files), ("taken from the cache", self.trusted_files)):
            if verbose and paths:
                lines += [title, *(f"  {printable(path)}" for path in paths)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON, nothing left out. A path's byte that is no UTF-8 stands as U+DC80 … DCFF.

        `read_files` and `trusted_files` are lists of paths or, where there are over a thousand, of stretches of the
        listing: `[first path, last path, how many]`, with none of the other kind between. `new_digest` is null where
        there is none.
        """
        return {
            "ok": self.ok,
            "grown": self.grown,
            "old_digest": self.old_digest,
            "new_digest": self.new_digest or None,
            "files": self.files,
            "bytes": self.bytes,
            "read": self.read,
            "trusted": self.trusted,
            "read_files": _stretches(self.read_files, self.trusted_files),
            "trusted_files": _stretches(self.trusted_files, self.read_files),
            "quick": self.quick,
            "unproved": self.unproved,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": [asdict(change) for change in self.changed],
            "renamed": [{"old": old, "new": new} for old, new in self.renamed],
            "notes": list(self.notes),
            "rows": None if self.rows is None else self.rows.to_dict(),
        }

    def to_markdown(self) -> str:
        """Return a short page in Markdown, at most ten lines of a kind; it ends in a newline."""
        lines = [f"**Dataset {self._summary()}**", ""]
        if self.ok:
            lines.append(f"`{self.new_digest}`")
        else:
            lines.append(f"`{self.old_digest}` → `{self.new_digest or _NO_DIGEST}`")
        for title, items in self._findings():
            lines += ["", f"{title} ({len(items)})", ""]
            lines += [item if item.startswith("…") else f"- {_code(item)}" for item in _cut(items, _MOST_ON_A_PAGE)]
        if self.rows is not None:
            lines += ["", "```text", *str(self.rows).replace("`", "'").splitlines(), "```"]
        if self.notes:
            lines += ["", *(f"- {_code(note)}" for note in self.notes[:_MOST_ON_A_PAGE])]
        return "\n".join(lines) + "\n"

    def _summary(self) -> str:
        unit = "bytes" if self.rows is None else "rows"
        counts = [f"{len(items):,} {title}" for title, items in self._findings()]
        verdict = "same" if self.ok else "different"
        if self.grown:
            counts.append("grown at the end only")
        told = f"{verdict}: {', '.join(counts)}; " if counts else f"{verdict}: "
        told += f"{self.files:,} {'file' if self.files == 1 else 'files'}, {self.bytes:,} {unit}"
        if self.read is not None:
            told += f" ({self.read:,} read, {self.trusted or 0:,} taken from the cache)"
        return told

    def _findings(self) -> list[tuple[str, list[str]]]:
        """Each kind of difference that there is, with a line for each file."""
        unit = "bytes" if self.rows is None else "rows"
        kinds = {
            "added": [printable(path) for path in self.added],
            "removed": [printable(path) for path in self.removed],
            "changed": [f"{printable(change.path)}: {_told(change, unit)}" for change in self.changed],
            "renamed": [f"{printable(old)} -> {printable(new)}" for old, new in self.renamed],
        }
        return [(kind, lines) for kind, lines in kinds.items() if lines]


def _told(change: Change, unit: str) -> str:
    if change.kind == "kind":
        return "a symbolic link became a file, or a file a link"
    at = "" if change.offset is None else f", from byte {change.offset:,} on"
    if change.kind == "size":
        return f"{change.old_size:,} -> {change.new_size:,} {unit}{at}"
    return f"other content, {change.new_size:,} {unit} as before{at}"


def _stretches(paths: tuple[str, ...], others: tuple[str, ...]) -> list[str] | list[list[Any]]:
    """Return paths as they are or, if there are many, as stretches; both are in the order of the listing."""
    if len(paths) <= _MOST_NAMES:
        return list(paths)
    keys = [path_key(path) for path in others]
    found: list[list[Any]] = []
    start = 0
    while start < len(paths):
        place = bisect_right(keys, path_key(paths[start]))
        stop = len(paths) if place == len(keys) else bisect_right(paths, keys[place], start, key=path_key)
        found.append([paths[start], paths[stop - 1], stop - start])
        start = stop
    return found


def _cut(lines: Sequence[str], most: int) -> list[str]:
    more = len(lines) - most
    return [*lines] if more <= 0 else [*lines[:most], f"… and {more:,} more"]


def _code(text: str) -> str:
    """Return `text` as a code span of Markdown, whatever is in it."""
    fence = "`"
    while fence in text:
        fence += "`"
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"
