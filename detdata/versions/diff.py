"""The difference of two manifests, by their columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.names import path_key, printable
from detdata.versions.report import Change, Report

if TYPE_CHECKING:
    from detdata.rows import RowsReport
    from detdata.versions.manifest import Manifest

Paths: TypeAlias = tuple[str, ...]

_STRIDE = 64  # paths that are compared at once


def diff(old: Manifest, new: Manifest) -> Report:
    """Return what differs between two versions of a dataset.

    Raises ValueError if they were not made in the same way, so that their digests cannot be compared. Costs some
    0.4 µs a file, less where the lists of files are the same.
    """
    if not isinstance(new, type(old)):
        raise ArgumentTypeError(
            f"other must be a Manifest, got {brief(new)} of type {type(new).__name__}; Manifest.load(path) reads one"
        )
    check_comparable(old, new)
    runs, gone, came = _align(old.paths, new.paths)
    changed = [change for run in runs for change in _changes(old, new, *run)]
    pairs: list[tuple[int, int]] = []
    later = False
    if old.content == "bytes":  # else there are no digests of files to judge by
        pairs = _renames(old, new, gone, came)
        later = bool(came) and not gone and not changed and came[0] == len(old)
    moved_from, moved_to = {i for i, _ in pairs}, {j for _, j in pairs}
    return Report(
        old_digest=old.digest,
        new_digest=new.digest,
        files=len(new),
        bytes=sum(new.sizes),
        added=tuple(new.paths[j] for j in came if j not in moved_to),
        removed=tuple(old.paths[i] for i in gone if i not in moved_from),
        changed=tuple(changed),
        renamed=tuple((old.paths[i], new.paths[j]) for i, j in pairs),
        later=later,
        notes=_notes(old, new),
        rows=_compare_rows(old, new),
    )


def check_comparable(old: Manifest, new: Manifest) -> None:
    """Raise ValueError, saying in what, if two manifests were made in ways that give different digests of one file."""
    for name in ("algorithm", "content", "piece_size"):
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise ArgumentValueError(
                f"cannot compare the versions: {name} is {before!r} in the old one and {after!r} in the new one; "
                f"hash one of them again with {name}={after!r} or {before!r}"
            )
    before, after = _part(old), _part(new)
    if before != after:
        raise ArgumentValueError(
            f"cannot compare the versions: the old one is {before}, the new one {after}; merge the parts first"
        )


def _part(manifest: Manifest) -> str:
    return "the whole" if manifest.part is None else f"part {manifest.part[0]} of {manifest.part[1]}"


def _align(old: Paths, new: Paths) -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
    """Return the stretches of paths that both have, as (place in old, place in new, length), and what only one has.

    Both are sorted, so one walk side by side is enough; it touches memory in order, which sets of paths would not.
    """
    runs: list[tuple[int, int, int]] = []
    gone: list[int] = []
    came: list[int] = []
    i = j = 0
    while i < len(old) and j < len(new):
        length = _same(old, new, i, j)
        if length:
            runs.append((i, j, length))
            i, j = i + length, j + length
        elif path_key(old[i]) < path_key(new[j]):
            gone.append(i)
            i += 1
        else:
            came.append(j)
            j += 1
    return runs, [*gone, *range(i, len(old))], [*came, *range(j, len(new))]


def _same(old: Paths, new: Paths, i: int, j: int) -> int:
    """How many paths are the same from old[i] and new[j] on."""
    start = i
    while i < len(old) and j < len(new) and old[i] == new[j]:
        i, j = i + 1, j + 1
        while i + _STRIDE <= len(old) and old[i : i + _STRIDE] == new[j : j + _STRIDE]:
            i, j = i + _STRIDE, j + _STRIDE
    return i - start


def _changes(old: Manifest, new: Manifest, i: int, j: int, length: int) -> Iterator[Change]:
    """What differs in the files that both have, from old[i] and new[j] on."""
    before = old.sizes[i : i + length], old.hexes[i : i + length], old.kinds[i : i + length]
    after = new.sizes[j : j + length], new.hexes[j : j + length], new.kinds[j : j + length]
    if before == after:
        return
    for path, one, other in zip(
        old.paths[i : i + length], zip(*before, strict=True), zip(*after, strict=True), strict=True
    ):
        if one != other:
            kind = "kind" if one[2] != other[2] else "size" if one[0] != other[0] else "content"
            yield Change(path, one[0], other[0], one[1], other[1], kind)


def _renames(old: Manifest, new: Manifest, gone: list[int], came: list[int]) -> list[tuple[int, int]]:
    """Pairs of a removed and an added file that are the same but for the path: first with first, in byte order."""
    if not gone or not came:
        return []
    waiting: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for j in reversed(came):  # so that pop() gives the first
        waiting[new.sizes[j], new.hexes[j], new.kinds[j]].append(j)
    pairs = []
    for i in gone:
        free = waiting.get((old.sizes[i], old.hexes[i], old.kinds[i]))
        if free:
            pairs.append((i, free.pop()))
    return pairs


def _notes(old: Manifest, new: Manifest) -> tuple[str, ...]:
    notes = []
    if old.select != new.select:
        notes.append(f"other paths were asked for: {_listed(old.select)} before, {_listed(new.select)} now")
    if old.rules != new.rules:
        notes.append(
            "other rules (ignore, include, exclude, symlinks) said what is data; differences may come from them"
        )
    return tuple(notes)


def _listed(select: tuple[str, ...]) -> str:
    shown = ", ".join(printable(path) for path in select[:3])
    return shown if len(select) <= 3 else f"{shown} and {len(select) - 3} more"


def _compare_rows(old: Manifest, new: Manifest) -> RowsReport | None:
    if old.rows is None or new.rows is None:
        return None
    from detdata.rows import compare_rows  # with pyarrow: not for those who compare bytes

    return compare_rows(old.rows, new.rows)
