"""In what two versions of a table's rows differ, as far as the versions alone can tell."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from detdata.checks import visible
from detdata.errors import ArgumentValueError
from detdata.rows.schema import Schema
from detdata.rows.version import MARK, RowsVersion

if TYPE_CHECKING:
    from detdata.rows.differences import RowDifferences
    from detdata.rows.faults import FileFault

_Key: TypeAlias = tuple[str, int]  # name of a column, and how many of that name come before it

_LINES = 20  # of one kind, for people


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block whose values differ.

    row: its first row; rows: how many; old_rows: how many it had before; file, file_row: where it begins in the new
    files; columns: names of those that differ in it. A last block that has another number of rows than before differs
    as a whole: whether the rows that both have do is not known.
    """

    row: int
    rows: int
    old_rows: int
    file: str
    file_row: int
    columns: tuple[str, ...]

    def __str__(self) -> str:
        where = f"rows {self.row:,} … {self.row + self.rows - 1:,} (from row {self.file_row:,} of {self.file} on)"
        if not self.known:
            return visible(f"{where} were {self.old_rows:,} rows; {_UNKNOWN}")
        return visible(f"{where} differ in {_some(self.columns, 8)}")

    @property
    def known(self) -> bool:
        """Whether rows are known to differ in it, and it isn't merely longer or shorter."""
        return self.rows == self.old_rows


@dataclass(frozen=True, slots=True)
class RowsReport:
    """What compare_rows found. Rows count from 0.

    kind: "same", "reordered" (the same rows in another order), "grown" (more rows after the old ones), "longer" (more
    rows, and nothing that contradicts growth, but the last `unproved` old ones cannot be compared by the records
    alone), "changed", or "unreadable" (the new files are not one table; then there is no new digest).
    unchanged: how many first rows are known to be the old ones; unproved: how many of the old ones nobody compared.
    added, removed: columns, (name, type). retyped: (name, old type, new type). renamed: (old, new) of columns with the
    same values under another name. moved: whether columns that both have come in another order. blocks: where values of
    columns that both have differ, block by block. differences: the very rows, where both tables were at hand.
    faults: the files that keep the new ones from being one table.
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
    unchanged: int = 0
    unproved: int = 0
    differences: RowDifferences | None = None
    faults: tuple[FileFault, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether both are the same rows in the same order."""
        return self.kind == "same"

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON.

        `changed` says where values differ, an item a place and column: from `row` of `file` on, among `rows` rows (1
        where the rows themselves were compared, else those of a block). `count`: rows that differ, null where that is
        unknown. `schema`: an item a column that changed; `file` is null where all files have the new columns.
        """
        return {
            "ok": self.ok,
            "kind": self.kind,
            "old_rows": self.old_rows,
            "new_rows": self.new_rows,
            "old_digest": self.old_digest,
            "new_digest": self.new_digest or None,
            "same_rows_other_order": self.kind == "reordered",
            "unchanged": self.unchanged,
            "unproved": self.unproved,
            "changed": [] if self.kind == "reordered" else self._places(),
            "count": None if self.differences is None else self.differences.count,
            "schema": self._columns(),
            "unreadable": [{"file": fault.file, "reason": fault.reason} for fault in self.faults],
            **{
                name: [list(item) for item in getattr(self, name)]
                for name in ("added", "removed", "retyped", "renamed")
            },
            "moved": self.moved,
            "blocks": [_block(block) for block in self.blocks],
            "differences": None if self.differences is None else self.differences.to_dict(),
        }

    def _places(self) -> list[dict[str, Any]]:
        if self.differences is not None:
            found = [(*row.new, 1, row.columns) for row in self.differences.rows]
        else:
            found = [(block.file, block.file_row, block.rows, block.columns) for block in self.blocks if block.known]
        return [
            {"file": file, "row": row, "rows": rows, "column": column}
            for file, row, rows, columns in found
            for column in columns
        ]

    def _columns(self) -> list[dict[str, Any]]:
        changes: list[tuple[str | None, str, str | None, str | None, str | None]] = []
        parts: list[tuple[str | None, RowsReport | FileFault]] = [(None, self)]
        for file, part in (*parts, *((fault.file, fault) for fault in self.faults)):
            changes += [(file, "retyped", name, old, new) for name, old, new in part.retyped]
            changes += [(file, "added", name, None, new) for name, new in part.added]
            changes += [(file, "removed", name, old, None) for name, old in part.removed]
        changes += [(None, "renamed", new, old, new) for old, new in self.renamed]
        changes += [(None, "moved", None, None, None)] if self.moved else []
        return [dict(zip(("file", "change", "column", "old", "new"), change, strict=True)) for change in changes]

    def __str__(self) -> str:
        numbers = {
            "old": self.old_rows,
            "new": self.new_rows,
            "more": self.new_rows - self.old_rows,
            "first": self.unchanged,
            "rest": self.unproved,
        }
        lines = [_SUMMARIES[self.kind].format(**numbers)]
        if self.kind == "longer":
            lines += [_PROVED.format(**numbers)] if self.unchanged else []
            lines.append(_UNPROVED.format(**numbers))
        if self.kind == "changed" and self.old_rows != self.new_rows:
            lines.append(f"number of rows: {self.old_rows:,} -> {self.new_rows:,}")
        lines += _listed(f"column {name} changed type: {old} -> {new}" for name, old, new in self.retyped)
        lines += _listed(f"column {old} is now called {new}" for old, new in self.renamed)
        lines += _listed(f"column {name} was added ({kind})" for name, kind in self.added)
        lines += _listed(f"column {name} was removed ({kind})" for name, kind in self.removed)
        if self.moved:
            lines.append("columns come in another order")
        if self.kind == "changed":
            lines += _listed(str(block) for block in self.blocks if block.known or self.differences is None)
            lines += [] if self.differences is None else self.differences.lines() or [_NO_ROW]
        lines += _listed(map(str, self.faults))
        return "\n  ".join(map(visible, lines))


_LISTS = ("added", "removed", "retyped", "renamed")
_SUMMARIES = {
    "same": "same rows ({new:,})",
    "reordered": "same rows in another order ({new:,})",
    "grown": "{more:,} rows were added after the {old:,} that there were",
    "longer": "{more:,} rows more than the {old:,} that there were",
    "changed": "rows changed",
    "unreadable": "the files cannot be read as one table",
}
_PROVED = "the first {first:,} are as before, by the marks of their blocks"
_UNKNOWN = "whether those that both have differ cannot be told from the record"
_NO_ROW = "no row that both have differs in a column that both have"
_UNPROVED = "of the other {rest:,} old rows two manifests cannot tell: verify the older one against the data"


def compare_rows(old: RowsVersion, new: RowsVersion, prefix: RowsVersion | None = None) -> RowsReport:
    """Return in what `new` differs from `old`.

    prefix: the version of the first `old.rows` rows of the new files, `hash_rows(…, stop=old.rows).prefix`, by which
    growth is told from change; if it is not given, `new.prefix` is taken. Without either the marks in the record (64
    bits) have to do: that of the file with which the old rows end, where one does, else those of whole blocks, which
    prove growth where the old rows fill their blocks; and else the kind is "longer".
    Raises ValueError for versions made by different algorithms. Cost: O(blocks and columns); no file is read.

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
    if old.schema != new.schema:
        return "changed"
    if (old.digest, old.rows) == (new.digest, new.rows):
        return "same"
    if old.rows == new.rows and old.unordered == new.unordered != "":
        return "reordered"
    if old.rows == 0:
        return "grown"
    if prefix is not None and prefix.rows == old.rows:
        return "grown" if prefix.digest == old.digest else "changed"
    end = _end_after(new, old.rows)
    if end:
        return "grown" if end == old.digest[:MARK] else "changed"
    whole = old.rows // old.block_rows
    if new.rows <= old.rows or _same_blocks(old, new) < whole:
        return "changed"
    return "grown" if whole * old.block_rows == old.rows else "longer"


def _end_after(version: RowsVersion, rows: int) -> str:
    """Return the mark of the first `rows` rows, where a file ends after them; else ""."""
    ends = accumulate(count for _, count in version.files)
    return next((mark for end, mark in zip(ends, version.ends, strict=False) if end == rows), "")


def _same_blocks(old: RowsVersion, new: RowsVersion) -> int:
    """Return how many first blocks, all of them whole in both, have the same marks."""
    most = min(old.rows, new.rows) // old.block_rows
    pairs = zip(old.blocks[:most], new.blocks[:most], strict=True)
    return next((number for number, (was, now) in enumerate(pairs) if was != now), most)


def _unchanged(kind: str, old: RowsVersion, new: RowsVersion) -> int:
    if kind in {"same", "grown"}:
        return old.rows
    return _same_blocks(old, new) * old.block_rows if old.schema == new.schema else 0


def _changes(kind: str, old: RowsVersion, new: RowsVersion) -> RowsReport:
    before, after = keyed(old.schema), keyed(new.schema)
    was, now = ({key: v.schema[i][1] for key, i in places.items()} for v, places in ((old, before), (new, after)))
    both = [key for key in before if key in after]
    twins = _twins(old, new)
    unchanged = _unchanged(kind, old, new)
    blocks: tuple[BlockChange, ...] = ()
    if kind not in {"same", "grown", "longer"}:
        blocks = _blocks(old, new, [(key[0], before[key], after[key]) for key in both if was[key] == now[key]])
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
        unchanged=unchanged,
        unproved=old.rows - unchanged
        if kind == "longer"
        else sum(min(block.rows, block.old_rows) for block in blocks if not block.known),
        blocks=blocks,
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
            rows, old_rows = (min(version.block_rows, version.rows - first) for version in (new, old))
            changes.append(BlockChange(first, rows, old_rows, *place, names))
    return tuple(changes)


def _block(block: BlockChange) -> dict[str, Any]:
    whole = {name: getattr(block, name) for name in ("row", "rows", "old_rows", "file", "file_row")}
    return {**whole, "columns": list(block.columns)}


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
