"""What the columns of a CSV file hold: whole numbers, numbers, truth values or text, by all of its rows.

A type is taken only where nothing is lost by it: a whole number that would be written otherwise ("007", "+1"), or does
not fit, makes its column text, and so do whole numbers of 16 digits or more among others that have a point.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detdata.arrays import Int64Array
from detdata.corpora.csv_grid import QUOTE, Bytes, Grid

Reader: TypeAlias = Callable[[str], Any]  # raises ValueError, KeyError

ARROW_TYPES = {"bool": pa.bool_(), "int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
_ORDER = ("bool", "int64", "float64")  # the first that holds all values is taken
_LONGEST = 64  # bytes of a number
_WIDE = 10**15  # whole numbers of 16 digits and more are not all floats

_WHOLE = r"(?:0|[1-9][0-9]*)"
_EXPONENT = r"[eE][+-]?[0-9]+"
_POINT = rf"(?:{_WHOLE}\.[0-9]*|\.[0-9]+)(?:{_EXPONENT})?"
_FLOAT = rf"^(?:-?(?:0|[1-9][0-9]{{0,14}}|{_POINT}|{_WHOLE}{_EXPONENT}|[iI][nN][fF])|[nN][aA][nN])$"
_BOOL = r"^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"
_IN_WHOLE = np.zeros(256, bool)
_IN_WHOLE[list(b"-0123456789")] = True

_ANY_INT = re.compile(r"[+-]?[0-9]+")
_ANY_FLOAT = re.compile(rf"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:{_EXPONENT})?|(?i:inf|nan))")
_BOOLS = {"true": True, "false": False}


def _bool(text: str) -> bool:
    return _BOOLS[text.lower()]


def _any_int(text: str) -> int:
    value = int(text) if _ANY_INT.fullmatch(text) else 2**63
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def _any_float(text: str) -> float:
    if not _ANY_FLOAT.fullmatch(text):
        raise ValueError(text)
    return float(text)


# How a value that is not empty is read: where all values of the file are known to be of the type, and where not.
READERS: dict[str, Reader] = {"bool": _bool, "int64": int, "float64": float}
STRICT_READERS: dict[str, Reader] = {"bool": _bool, "int64": _any_int, "float64": _any_float}


@final
class TypeFinder:
    """Finds the type of each column by looking at rows, in parts of any size; the parts do not matter.

    >>> from detdata.corpora.csv_grid import find_rows
    >>> text = np.frombuffer(b"1,a,\\n2.5,7,true\\n", np.uint8)
    >>> finder = TypeFinder(3)
    >>> finder.add(Grid(text, find_rows(text, ord(","), columns=3, final=True), ord(",")))
    >>> finder.types()
    ['float64', 'string', 'bool']
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._possible = [set(_ORDER) for _ in range(columns)]
        self._seen = [False] * columns  # whether there is a value that is not empty

    @property
    def done(self) -> bool:
        """Whether every column is known to be text."""
        return not any(self._possible)

    def add(self, grid: Grid) -> None:
        """Look at rows. Those with too few or too many fields, which cannot be read, do not count."""
        rows = np.flatnonzero((grid.counts == self._columns) & ~grid.lone_cr)
        for number, possible in enumerate(self._possible):
            if possible and rows.size:
                begins, ends = _bare(grid.text, *grid.column(rows, number, self._columns))
                full = ends > begins
                if full.any():
                    self._seen[number] = True
                    possible.intersection_update(_possible(grid.text, begins[full], ends[full], possible))

    def types(self) -> list[str]:
        """Return the type of each column, a key of ARROW_TYPES; text for one without any value."""
        return [
            next((name for name in _ORDER if name in possible), "string") if seen else "string"
            for possible, seen in zip(self._possible, self._seen, strict=True)
        ]


def _bare(text: Bytes, begins: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return the places of fields without the quotes around them."""
    quoted = (ends - begins > 1) & (text[np.minimum(begins, text.size - 1)] == QUOTE)
    return begins + quoted, ends - quoted


def _possible(text: Bytes, begins: Int64Array, ends: Int64Array, asked: set[str]) -> set[str]:
    """Return which of the types that are asked about hold all of these values."""
    lengths = ends - begins
    if int(lengths.max()) > _LONGEST:
        return set()
    edges = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(edges[-1]) + np.repeat(begins - edges[:-1], lengths)
    content = text[places]
    if int(content.max()) >= 128:
        return set()
    offsets = edges.astype(np.int32)
    values = pa.StringArray.from_buffers(begins.size, pa.py_buffer(offsets), pa.py_buffer(content))
    if "bool" in asked and bool(content[0] | 32 in b"tf") and _all(values, _BOOL):
        return {"bool"}
    found = set()
    whole = _whole(values) if bool(_IN_WHOLE[content].all()) else None
    if whole is not None:
        found.add("int64")
        bounds = pc.min_max(whole).as_py()
        if bounds["min"] > -_WIDE and bounds["max"] < _WIDE:
            found.add("float64")
    elif "float64" in asked and _all(values, _FLOAT):
        found.add("float64")
    return found


def _whole(values: Any) -> Any:
    """Return values as int64, if each is written as an int64 is; else None."""
    try:
        pc.cast(values[:1], pa.int64())  # first, since a cast makes a message for every value that it fails at
        found = pc.cast(values, pa.int64())
    except pa.ArrowInvalid:
        return None
    return found if pc.cast(found, pa.string()).equals(values) else None


def _all(values: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())
