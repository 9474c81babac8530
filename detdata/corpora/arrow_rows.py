"""Rows of a record batch as plain Python values, whatever extension types say, and errors that name the row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError

_FEW = 8  # rows that are rather made value by value
_FAILS = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, OSError, ImportError, RecursionError)


@contextmanager
def arrow_errors(file: str, block: int | None = None) -> Iterator[None]:
    """Turn what pyarrow raises into a CorpusError."""
    try:
        yield
    except CorpusError:
        raise
    except _FAILS as error:
        raise CorpusError(file, f"cannot be read as Arrow: {error}", block=block) from error


def stored_type(kind: Any) -> Any:
    """Return a type without extension types in it: that of the values as they are stored.

    >>> stored_type(pa.list_(pa.int32()))
    ListType(list<item: int32>)
    """
    return _rebuilt(kind, lambda leaf: leaf)


def _loose_type(kind: Any) -> Any:
    """Return a type with bytes for text, so that a check does not read all text."""
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


def check_columns(columns: Sequence[Any]) -> None:
    """Raise an error of pyarrow for columns that lead outside of their buffers. Does not read text, so it is quick.

    >>> check_columns([pa.array(["a", None])])
    """
    for column in columns:
        column.validate()
        kind = _loose_type(column.type)
        try:
            loose = column if kind.equals(column.type) else column.view(kind)
        except (pa.ArrowException, ValueError):
            loose = column
        loose.validate(full=True)


@final
class ArrowRows:
    """Rows of one block. names, columns: what they are made of; rows: how many there are."""

    __slots__ = ("_block", "_columns", "_file", "_names", "_pairs")

    def __init__(self, file: str, block: int, names: Sequence[str], columns: Sequence[Any]) -> None:
        self._file, self._block = file, block
        self._names, self._columns = names, columns
        self._pairs = list(zip(names, columns, strict=True))

    def take(self, rows: Sequence[int]) -> list[Any]:
        """Return rows as dicts of Python values."""
        try:
            if len(rows) < _FEW or not self._pairs:
                pairs = self._pairs
                return [{name: column[row].as_py() for name, column in pairs} for row in rows]
            names = self._names
            if isinstance(rows, range) and rows.step == 1:
                parts = [_values(column.slice(rows.start, len(rows))) for column in self._columns]
            else:
                chosen = pa.array(rows, pa.int64())
                parts = [_values(_taken(column, chosen)) for column in self._columns]
            return [dict(zip(names, values, strict=True)) for values in zip(*parts, strict=True)]
        except _FAILS as error:
            raise self._error(rows, error) from error

    def arrow(self, rows: Int64Array) -> Any:
        """Return rows as a record batch of its own memory."""
        try:
            chosen = pa.array(rows, pa.int64())
            taken = [_taken(column, chosen) for column in self._columns]
            if not taken:
                return None
            batch = pa.RecordBatch.from_arrays(taken, list(self._names))
            batch.validate(full=True)
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
                    return CorpusError(
                        self._file, f"column {name!r} cannot be read: {found}", block=self._block, row=int(row)
                    )
        return CorpusError(self._file, f"rows cannot be taken: {error}", block=self._block)


def _taken(column: Any, rows: Any) -> Any:
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:  # views of text and of lists
        return pa.array([column[row].as_py() for row in rows.to_pylist()], column.type)


def _values(column: Any) -> list[Any]:
    """Return a column as Python values, as `as_py` makes them, by the quickest way."""
    kind = column.type
    types = pa.types
    whole = column.null_count == 0
    if whole and (types.is_integer(kind) or types.is_float64(kind) or types.is_float32(kind)):
        return list(column.to_numpy().tolist())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())
