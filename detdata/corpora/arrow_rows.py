"""Rows of a record batch as plain Python values, whatever extension types say, and errors that name the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.corpora.arrow_values import getter
from detdata.corpora.errors import CorpusError

# From this version on `to_pylist` is as quick as a way through NumPy, which imports pandas where that is installed.
_QUICK = int(pa.__version__.partition(".")[0]) >= 26
_FEW = 8  # rows that are rather made value by value
_FAILS = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, OSError, ImportError, RecursionError)


@contextmanager
def arrow_errors(file: str, block: int | None = None, what: str = "Arrow") -> Iterator[None]:
    """Turn what pyarrow raises into a CorpusError. what: the data are not."""
    try:
        yield
    except CorpusError:
        raise
    except _FAILS as error:
        raise CorpusError(file, f"cannot be read as {what}: {error}", block=block) from error


def stored_type(kind: Any) -> Any:
    """Return a type without extension types in it: that of the values as they are stored.

    >>> stored_type(pa.list_(pa.int32()))
    ListType(list<item: int32>)
    """
    return _rebuilt(kind, lambda leaf: leaf)


def loose_type(kind: Any) -> Any:
    """Return a type with bytes for text, so that a check does not read all text.

    >>> loose_type(pa.string())
    DataType(binary)
    """
    return _rebuilt(stored_type(kind), _bytes_for_text)


def _bytes_for_text(leaf: Any) -> Any:
    if pa.types.is_string(leaf):
        return pa.binary()
    return pa.large_binary() if pa.types.is_large_string(leaf) else leaf


def _rebuilt(kind: Any, change: Any) -> Any:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _rebuilt(kind.storage_type, change)
    if types.is_map(kind):
        key, item = (field.with_type(_rebuilt(field.type, change)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_rebuilt(field.type, change)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_rebuilt(kind.value_type, change))
        if types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if types.is_large_list(kind) else pa.list_(item)
    return change(kind)


def stored_column(column: Any) -> Any:
    """Return a column as it is stored, without copying."""
    kind = stored_type(column.type)
    if kind.equals(column.type):
        return column
    outer = isinstance(column.type, pa.BaseExtensionType) and kind.equals(column.type.storage_type)
    return column.storage if outer else column.cast(kind)


def check_columns(columns: Sequence[Any], *, text: bool = False, loose: Sequence[Any] | None = None) -> None:
    """Raise an error of pyarrow for columns that lead outside of their buffers. text: also for text that is no UTF-8.

    Without `text`, no text is read, so it is quick. loose: the `loose_type` of each column, where it is known already.

    >>> check_columns([pa.array(["a", None])])
    """
    kinds = loose or [column.type if text else loose_type(column.type) for column in columns]
    for column, kind in zip(columns, kinds, strict=True):
        column.validate()
        try:
            _check(column, kind)
        except pa.ArrowInvalid:
            if not has_dictionary(column.type):
                raise
            _check_below(column, text)


def _check(column: Any, kind: Any) -> None:
    """Check a column as if it were of another type."""
    try:
        loose = column if kind.equals(column.type) else column.view(kind)
    except (pa.ArrowException, ValueError):  # of types that cannot be seen as another
        loose = column
    try:
        loose.validate(full=True)
    except pa.ArrowInvalid:  # a column of nulls below lists gets another length when it is seen as another type
        if loose is column:
            raise
        column.validate(full=True)


def _check_below(column: Any, text: bool) -> None:
    """Check a column level by level, without what lies below nulls: there pyarrow itself writes indices of no word."""
    kind = column.type
    column.validate()
    if isinstance(kind, pa.BaseExtensionType):
        _check_below(column.storage, text)
    elif not has_dictionary(kind) or pa.types.is_dictionary(kind):
        _check(column, column.type if text else loose_type(column.type))
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            _check_below(child, text)
    elif pa.types.is_fixed_size_list(kind):
        _check_below(column.flatten(), text)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        edges = column.offsets.to_numpy()
        if edges.size and (edges[0] < 0 or (edges[1:] < edges[:-1]).any() or edges[-1] > len(column.values)):
            raise pa.ArrowInvalid("offsets of lists lead outside of their values")
        _check_below(column.flatten(), text)
    else:
        _check(column, column.type if text else loose_type(column.type))


def has_dictionary(kind: Any) -> bool:
    """Return whether a type, or one in it, is a dictionary.

    >>> has_dictionary(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    True
    """
    if isinstance(kind, pa.BaseExtensionType):
        return has_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    return any(has_dictionary(kind.field(number).type) for number in range(kind.num_fields))


@final
class ArrowRows:
    """Rows of one block. names, columns: what they are made of. first: row of the block that they begin with."""

    __slots__ = ("_block", "_columns", "_file", "_first", "_getters", "_names", "_pairs", "_used")

    def __init__(self, file: str, block: int, names: Sequence[str], columns: Sequence[Any], first: int = 0) -> None:
        self._file, self._block, self._first = file, block, first
        self._names, self._columns = names, columns
        self._pairs = list(zip(names, columns, strict=True))
        self._used = False
        self._getters: list[tuple[str, Callable[[int], Any]]] = []

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows as dicts of Python values."""
        try:
            if len(rows) < _FEW or not self._pairs:
                return self._few(rows)
            if isinstance(rows, range) and rows.step == 1:
                parts = [_values(column.slice(rows.start, len(rows))) for column in self._columns]
            else:
                chosen = _numbers(rows)
                parts = [_values(_taken(column, chosen)) for column in self._columns]
            return _dicts(self._names, parts)
        except _FAILS as error:
            raise self._error(rows, error) from error

    def _few(self, rows: Sequence[int]) -> list[Any]:
        """Return rows value by value; from the second time on by getters, whose making costs as much as some rows."""
        if not self._used:
            self._used = True
            pairs = self._pairs
            return [{name: column[row].as_py() for name, column in pairs} for row in rows]
        if not self._getters:
            self._getters = [(name, getter(column)) for name, column in self._pairs]
        getters = self._getters
        return [{name: get(row) for name, get in getters} for row in rows]

    def arrow(self, rows: Int64Array) -> Any:
        """Return rows as a record batch of its own memory."""
        try:
            chosen = _numbers(rows)
            taken = [_taken(column, chosen) for column in self._columns]
            if not taken:
                return None
            batch = pa.RecordBatch.from_arrays(taken, list(self._names))
            check_columns(taken, text=True)
        except _FAILS as error:
            raise self._error(rows.tolist(), error) from error
        return batch

    def _error(self, rows: Sequence[int], error: Exception) -> CorpusError:
        """Return an error that names the first row that is broken."""
        for row in rows:
            for name, column in self._pairs:
                try:
                    column[row].as_py()
                except _FAILS as found:
                    reason = f"column {name!r} cannot be read: {found}"
                    return CorpusError(self._file, reason, block=self._block, row=self._first + int(row))
        return CorpusError(self._file, f"rows cannot be taken: {error}", block=self._block)


def _dicts(names: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
    """Return a dict of each row. Copies of one dict, filled by column, take a third of the time of dict(zip())."""
    empty: dict[str, Any] = dict.fromkeys(names)
    rows = [empty.copy() for _ in columns[0]]
    for name, values in zip(names, columns, strict=True):
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return rows


def _numbers(rows: Sequence[int] | Int64Array) -> Any:
    """Return row numbers as an array of Arrow: `pa.array` would import pandas, which takes a fifth of a second."""
    numbers = np.ascontiguousarray(rows, np.int64)
    return pa.Array.from_buffers(pa.int64(), numbers.size, [None, pa.py_buffer(numbers)])


def _taken(column: Any, rows: Any) -> Any:
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # views of text and of lists
        return pa.array([column[row].as_py() for row in rows.to_pylist()], column.type)


def _values(column: Any) -> list[Any]:
    """Return a column as Python values, as `as_py` makes them, by the quickest way."""
    kind = column.type
    types = pa.types
    if not _QUICK and column.null_count == 0:
        if types.is_integer(kind) or types.is_float64(kind) or types.is_float32(kind):
            return list(column.to_numpy().tolist())
        if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())
