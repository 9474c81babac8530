"""Integers in JSON lines that are too long for the type their column is read as: found, and never rounded.

A reader of JSON makes a double of an integer beyond 64 bits, and of every integer in a column that has a fraction
somewhere; above 2^53 not every integer is a double. A scan of the bytes finds the few lines that can hold such a one;
only those are looked at in Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.errors import ArgumentValueError
from detdata.rows.errors import RowsError
from detdata.rows.lines import Block

_EXACT_DIGITS = 16  # 2^53 has as many; integers of fewer are doubles
_INT64_DIGITS = 19
_MOST_DIGITS = 400  # Python takes long to read many
_BEFORE = np.zeros(256, np.bool_)
_BEFORE[list(b" \t\r\n:,[-")] = True  # what an integer follows
_LINE_END = ord("\n")
_GO_ON = "write such numbers as strings, or hash by content='bytes'"


_Place: TypeAlias = tuple[str | None, ...]  # names of members; None: any item of a list


def with_uint64(block: Block, kind: Any) -> Any:
    """Return the type of a block's objects, with uint64 for doubles that are all integers below 2^64.

    kind: the struct that pyarrow found; it takes an integer for a double if an int64 is too small for it. Cost: some ms
    a block, and some 10 ms a MB of those blocks that may have such an integer.
    """
    if not _has(kind, pa.float64()) or not _long_lines(block, _INT64_DIGITS):
        return kind
    fractions: set[_Place] = set()
    integers: set[_Place] = set()
    for number, line in block.lines():
        for place, value in _numbers(_loaded(line, number), kind, (), pa.float64()):
            whole = isinstance(value, int) and -(2**63) <= value < 2**64
            (integers if whole else fractions).add(place)
    return _replaced(kind, (), integers - fractions)


def check_exact(block: Block, kind: Any, name: str) -> None:
    """Raise RowsError, with line and column, for an integer that is in a column of doubles and is none."""
    if not _has(kind, pa.float64()):
        return
    suspects = _long_lines(block, _EXACT_DIGITS)
    if not suspects:
        return
    lines = block.text.split(b"\n")
    for i in suspects:
        number = block.first + i
        for place, value in _numbers(_loaded(lines[i], number), kind, (), pa.float64()):
            if not _is_double(value):
                raise RowsError(
                    name,
                    f"line {number}: column {_name(place)} holds {_shown(value)}, which is no double, "
                    f"the type of that column over all lines; {_GO_ON}",
                )


def check_signs(block: Block, kind: Any, name: str) -> None:
    """Raise RowsError, with line and column, for a number that is in a column of uint64 and cannot be."""
    if not _has(kind, pa.uint64()):
        return
    for number, line in block.lines():
        for place, value in _numbers(_loaded(line, number), kind, (), pa.uint64()):
            if value < 0:
                raise RowsError(
                    name,
                    f"line {number}: column {_name(place)} holds {_shown(value)}, and elsewhere integers above "
                    f"{2**63 - 1}: no type has both; {_GO_ON}",
                )


def _long_lines(block: Block, digits: int) -> list[int]:
    """Return which lines, from 0, may have an integer of so many digits (16 at least), ascending."""
    data = np.frombuffer(block.text, np.uint8)
    some = _are_digits(data[7::8])  # of 16 digits in a row, two are looked at, or three
    at = 8 * np.flatnonzero(some[1:] & some[:-1]) + 7
    if not at.size:
        return []
    # The first place looked at in a row of digits is at most 7 bytes after its start; others find none there.
    back = _are_digits(data[np.maximum(at[:, None] - np.arange(8), 0)])
    starts = at + 1 - np.where(back.all(axis=1), 8, back.argmin(axis=1))
    starts = starts[_BEFORE[data[starts - 1]] & (starts + digits < data.size)]
    whole = _are_digits(data[starts[:, None] + np.arange(digits)]).all(axis=1)
    line_ends = np.flatnonzero(data == _LINE_END)
    found: list[int] = np.unique(np.searchsorted(line_ends, starts[whole])).tolist()
    return found


def _are_digits(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return data - np.uint8(ord("0")) < 10


def _numbers(value: Any, kind: Any, place: _Place, wanted: Any) -> Iterator[tuple[_Place, float]]:
    """Yield the numbers in a value that are read as the type `wanted`."""
    if kind == wanted:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield place, value
    elif pa.types.is_struct(kind) and isinstance(value, dict):
        for i in range(kind.num_fields):
            field = kind.field(i)
            if field.name in value:
                yield from _numbers(value[field.name], field.type, (*place, field.name), wanted)
    elif pa.types.is_list(kind) and isinstance(value, list):
        for item in value:
            yield from _numbers(item, kind.value_type, (*place, None), wanted)


def _replaced(kind: Any, place: _Place, chosen: set[_Place]) -> Any:
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([(field.name, _replaced(field.type, (*place, field.name), chosen)) for field in fields])
    if pa.types.is_list(kind):
        return pa.list_(_replaced(kind.value_type, (*place, None), chosen))
    return pa.uint64() if place in chosen else kind


def _name(place: _Place) -> str:
    return "".join("[]" if name is None else f".{name}" for name in place).lstrip(".")


def _has(kind: Any, wanted: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_has(kind.field(i).type, wanted) for i in range(kind.num_fields))
    return bool(_has(kind.value_type, wanted) if pa.types.is_list(kind) else kind == wanted)


def _loaded(line: bytes, number: int) -> Any:
    try:
        return json.loads(line, parse_int=_integer, parse_constant=_ignored)
    except (ValueError, RecursionError) as error:
        raise ArgumentValueError(f"cannot be read: line {number}: {error}") from error


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _MOST_DIGITS else math.inf


def _ignored(_name: str) -> None:
    """NaN and the infinities, which are no integers."""


def _is_double(value: float) -> bool:
    try:
        return float(value) == value and math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: float) -> str:
    text = str(value) if math.isfinite(value) else "a number beyond every double"
    return text if len(text) <= 40 else f"{text[:20]}… ({len(text)} digits)"
