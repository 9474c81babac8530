"""In what two versions of a table's rows differ, as far as the versions alone can tell."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any, TypeAlias

from detdata.errors import ArgumentValueError
from detdata.rows.schema import Schema
from detdata.rows.version import RowsVersion

_Key: TypeAlias = tuple[str, int]  # name of a column, and how many of that name come before it

_LINES = 20  # of one kind, for people


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block whose values differ.

    row: its first row; rows: how many; file, file_row: where it begins in the new files; columns: names of those that
    differ in it.
    """

    row: int
    rows: int
    file: str
    file_row: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        where = f"rows {self.row:,} … {self.row + self.rows - 1:,} (from row {self.file_row:,} of {self.file} on)"
        return f"{where} differ in {_some(self.columns, 8)}"


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What compare_rows found. Rows count from 0.

    kind: "same", "reordered" (the same rows in another order), "grown" (more rows after the old ones) or "changed".
    added, removed: columns, (name, type). retyped: (name, old type, new type). renamed: (old, new) of columns with the
    same values under another name. moved: whether columns that both have come in another order. blocks: where values of
    columns that both have differ, block by block.
    """

    kind: str
    old_rows: int
    new_rows: int
    old_digest: str
    new_digest: str
    added: Schema = ()
    removed: Schema = ()
    retyped: tuple[tuple[str, str, str], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    moved: bool = False
    blocks: tuple[BlockChange, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both are the same rows in the same order."""
        return self.kind == "same"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON."""
        record = asdict(self)
        for name in ("added", "removed", "retyped", "renamed"):
            record[name] = [list(item) for item in record[name]]
        record["blocks"] = [{**block, "columns": list(block["columns"])} for block in record["blocks"]]
        return {"ok": self.ok, **record}

    def __str__(self) -> str:
        lines = [_SUMMARIES[self.kind].format(old=self.old_rows, new=self.new_rows, more=self.new_rows - self.old_rows)]
        if self.kind == "changed" and self.old_rows != self.new_rows:
            lines.append(f"number of rows: {self.old_rows:,} -> {self.new_rows:,}")
        lines += _listed(f"column {name} changed type: {old} -> {new}" for name, old, new in self.retyped)
        lines += _listed(f"column {old} is now called {new}" for old, new in self.renamed)
        lines += _listed(f"column {name} was added ({kind})" for name, kind in self.added)
        lines += _listed(f"column {name} was removed ({kind})" for name, kind in self.removed)
        if self.moved:
            lines.append("columns come in another order")
        if self.kind == "changed":
            lines += _listed(map(str, self.blocks))
        return "\n  ".join(lines)


_SUMMARIES = {
    "same": "same rows ({new:,})",
    "reordered": "same rows in another order ({new:,})",
    "grown": "{more:,} rows were added after the {old:,} that there were",
    "changed": "rows changed",
}


def compare_rows(old: RowsVersion, new: RowsVersion, prefix: RowsVersion | None = None) -> RowsReport:
    """Return in what `new` differs from `old`.

    prefix: the version of the first `old.rows` rows of the new files, `hash_rows(…, stop=old.rows).prefix`, by which
    growth is told from change; if it is not given, `new.prefix` is taken. Raises ValueError for versions made by
    different algorithms. Cost: O(blocks and columns); no file is read.

    >>> old = RowsVersion("xxh3-128", (("a", "int8"),), 0, "0" * 32, "0" * 32)
    >>> print(compare_rows(old, old))
    same rows (0)
    """
    if old.algorithm != new.algorithm:
        raise ArgumentValueError(
            f"rows hashed by {old.algorithm} and by {new.algorithm} cannot be compared; hash both by one algorithm"
        )
    return _changes(_kind(old, new, new.prefix if prefix is None else prefix), old, new)


def _kind(old: RowsVersion, new: RowsVersion, prefix: RowsVersion | None) -> str:
    if old.schema == new.schema:
        if (old.digest, old.rows) == (new.digest, new.rows):
            return "same"
        if old.rows == new.rows and old.unordered == new.unordered != "":
            return "reordered"
        if old.rows == 0 or (prefix is not None and (old.digest, old.rows) == (prefix.digest, prefix.rows)):
            return "grown"
    return "changed"


def _changes(kind: str, old: RowsVersion, new: RowsVersion) -> RowsReport:
    before, after = keyed(old.schema), keyed(new.schema)
    was, now = ({key: v.schema[i][1] for key, i in places.items()} for v, places in ((old, before), (new, after)))
    both = [key for key in before if key in after]
    twins = _twins(old, new)
    return RowsReport(
        kind=kind,
        old_rows=old.rows,
        new_rows=new.rows,
        old_digest=old.digest,
        new_digest=new.digest,
        added=tuple((key[0], now[key]) for key in after if key not in before and key not in twins.values()),
        removed=tuple((key[0], was[key]) for key in before if key not in after and key not in twins),
        retyped=tuple((key[0], was[key], now[key]) for key in both if was[key] != now[key]),
        renamed=tuple((one[0], other[0]) for one, other in twins.items()),
        moved=both != [key for key in after if key in before],
        blocks=()
        if kind in {"same", "grown"}
        else _blocks(old, new, [(key[0], before[key], after[key]) for key in both if was[key] == now[key]]),
    )


def _twins(old: RowsVersion, new: RowsVersion) -> dict[_Key, _Key]:
    """Return the columns of `new` that have the type and the values of one of `old` of another name."""
    before, after = keyed(old.schema), keyed(new.schema)
    twins: dict[_Key, _Key] = {}
    if old.rows == new.rows > 0:
        free = {key: _values(new, after[key]) for key in after if key not in before}
        for key in before if free else ():
            if key in after:
                continue
            mine = _values(old, before[key])
            twin = next((other for other, values in free.items() if values == mine), None)
            if twin is not None:
                twins[key] = twin
                del free[twin]
    return twins


def _values(version: RowsVersion, column: int) -> tuple[str, ...]:
    """Return what stands for the type and the values of a column."""
    return (version.schema[column][1], *(marks[column] for marks in version.blocks))


def _blocks(old: RowsVersion, new: RowsVersion, columns: Sequence[tuple[str, int, int]]) -> tuple[BlockChange, ...]:
    changes = []
    ends = list(accumulate(rows for _, rows in new.files))
    for number, (was, now) in enumerate(zip(old.blocks, new.blocks, strict=False)):
        names = tuple(name for name, i, j in columns if was[i] != now[j])
        if names:
            first = number * new.block_rows
            file = bisect_right(ends, first)
            place = (new.files[file][0], first - (ends[file] - new.files[file][1]))
            changes.append(BlockChange(first, min(new.block_rows, new.rows - first), *place, names))
    return tuple(changes)


def keyed(schema: Schema) -> dict[_Key, int]:
    """Return the number of each column by its name, and which one of that name it is: names may repeat.

    >>> keyed((("a", "int8"), ("b", "int8"), ("a", "string")))
    {('a', 0): 0, ('b', 0): 1, ('a', 1): 2}
    """
    seen: Counter[str] = Counter()
    places = {}
    for number, (name, _) in enumerate(schema):
        places[name, seen[name]] = number
        seen[name] += 1
    return places


def _listed(lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    more = len(listed) - _LINES
    return listed if more <= 0 else [*listed[:_LINES], f"… and {more:,} more"]


def _some(names: Sequence[str], most: int) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more columns"
