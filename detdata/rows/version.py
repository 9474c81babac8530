"""What a table's rows are, in a record that fits into a manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from detdata.algorithms import ALGORITHMS, digest_size
from detdata.checks import brief
from detdata.errors import UnknownFormat
from detdata.rows.schema import Schema

FORMAT = "detdata.rows/1"
BLOCK_ROWS = 65_536
MARK = 16  # hex digits kept of the digest of a column in a block: enough to find where tables differ

_KEYS = {"algorithm", "block_rows", "blocks", "digest", "ends", "files", "format", "rows", "schema", "unordered"}
_HEX = re.compile(r"[0-9a-f]*")
_LONGEST = 65_536  # characters of a name, a type or a path
_MOST_ROWS = 2**62


@dataclass(frozen=True, slots=True)
class RowsVersion:
    """The version of a table's rows.

    algorithm: that of the digests. schema: (name, logical type) of each column. rows: their number. digest: hex, of all
    values in their order. unordered: 32 hex digits, of all rows in any order, or "" if it was not asked for.
    blocks: for each block of `block_rows` rows, the first 16 hex digits of each column's digest in it. files: (name,
    rows) of each file. ends: for each file, the first 16 hex digits of the digest that all rows up to its end have, by
    which rows in further files are told from changed ones; () if unknown. prefix: the version of the first rows alone,
    if that was asked for; neither compared nor kept.

    >>> RowsVersion("xxh3-128", (("a", "int8"),), 0, "0" * 32, "0" * 32).rows
    0
    """

    algorithm: str
    schema: Schema
    rows: int
    digest: str
    unordered: str
    blocks: tuple[tuple[str, ...], ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    block_rows: int = BLOCK_ROWS
    ends: tuple[str, ...] = ()
    prefix: RowsVersion | None = field(default=None, compare=False, repr=False)

    def to_record(self) -> dict[str, Any]:
        """Return the version as plain JSON; the marks of a block are one string.

        >>> sorted(RowsVersion("xxh3-128", (), 0, "0" * 32, "").to_record())[:3]
        ['algorithm', 'block_rows', 'blocks']
        """
        return {
            "format": FORMAT,
            "algorithm": self.algorithm,
            "digest": self.digest,
            "unordered": self.unordered,
            "rows": self.rows,
            "schema": [list(column) for column in self.schema],
            "files": [list(file) for file in self.files],
            "ends": list(self.ends),
            "block_rows": self.block_rows,
            "blocks": ["".join(marks) for marks in self.blocks],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RowsVersion:
        """Rebuild what `to_record` returned, from anywhere. Raises UnknownFormat naming what is wrong with it.

        >>> version = RowsVersion("xxh3-128", (("a", "int8"),), 0, "0" * 32, "0" * 32)
        >>> RowsVersion.from_record(version.to_record()) == version
        True
        """
        if not isinstance(record, Mapping) or record.get("format") != FORMAT:
            found = record.get("format") if isinstance(record, Mapping) else record
            raise UnknownFormat(
                f"rows are recorded as {brief(found)}; this release reads {FORMAT!r}: update detdata or hash again"
            )
        _require(set(record) == _KEYS, f"the keys must be {sorted(_KEYS)}, found {brief(sorted(map(str, record)))}")
        algorithm, rows = record["algorithm"], record["rows"]
        _require(
            isinstance(algorithm, str) and algorithm in ALGORITHMS,
            f"algorithm {brief(algorithm)} is none of {list(ALGORITHMS)}",
        )
        _require(_is_count(rows), f"rows must be a number from 0 on, found {brief(rows)}")
        _require(
            record["block_rows"] == BLOCK_ROWS, f"block_rows must be {BLOCK_ROWS}, found {brief(record['block_rows'])}"
        )
        _require(
            _is_hex(record["digest"], 2 * digest_size(algorithm)), f"digest {brief(record['digest'])} is no {algorithm}"
        )
        unordered = record["unordered"]
        _require(unordered == "" or _is_hex(unordered, 32), f"unordered {brief(unordered)} is no xxh3-128")
        schema, files, blocks, ends = (_list(record, key) for key in ("schema", "files", "blocks", "ends"))
        for column in schema:
            _require(_is_pair(column) and _is_text(column[1]), f"a column must be [name, type], found {brief(column)}")
        for file in files:
            _require(_is_pair(file) and _is_count(file[1]), f"a file must be [path, rows], found {brief(file)}")
        _require(sum(file[1] for file in files) == rows, f"the files do not have {rows} rows in all")
        _require(len(blocks) == -(-rows // BLOCK_ROWS), f"{len(blocks)} blocks do not hold {rows} rows")
        for marks in blocks:
            _require(_is_hex(marks, MARK * len(schema)), f"a block must have a mark a column, found {brief(marks)}")
        for end in ends:
            _require(_is_hex(end, MARK), f"the end of a file must have {MARK} hex digits, found {brief(end)}")
        _require(not ends or len(ends) == len(files), f"{len(ends)} ends are not those of {len(files)} files")
        _require(not ends or ends[-1] == record["digest"][:MARK], "the end of the last file is not that of the digest")
        return cls(
            algorithm=algorithm,
            schema=tuple((name, kind) for name, kind in schema),
            rows=rows,
            digest=record["digest"],
            unordered=unordered,
            blocks=tuple(tuple(marks[i : i + MARK] for i in range(0, len(marks), MARK)) for marks in blocks),
            files=tuple((name, count) for name, count in files),
            ends=tuple(ends),
        )


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UnknownFormat(f"a record of rows is altered or torn: {otherwise}")


def _list(record: Mapping[str, Any], key: str) -> list[Any]:
    value = record[key]
    _require(isinstance(value, list), f"{key} must be a list, found {brief(value)}")
    return value  # type: ignore[no-any-return]  # a list, as just found


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0])


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_ROWS


def _is_hex(value: object, digits: int) -> bool:
    return isinstance(value, str) and len(value) == digits and _HEX.fullmatch(value) is not None
