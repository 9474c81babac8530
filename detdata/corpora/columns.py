"""Rows of several blocks as columns: of Arrow, NumPy or torch."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.protocol import Rows
from detdata.errors import ArgumentValueError

Kind = Literal["arrow", "numpy", "torch"]


class Columns(NamedTuple):
    """What is asked for. rows: how many."""

    kind: Kind
    rows: int


def columns_of(asked: Columns, groups: Iterable[tuple[Rows, Int64Array, Int64Array]], name: str | None) -> Any:
    """Return the rows of all groups as columns, in the order of their places. groups: (rows, places, rows of a block).

    name: of a file, for messages. Raises ValueError for a kind that does not exist or that cannot hold a column.
    """
    if asked.kind not in get_args(Kind):
        raise ArgumentValueError(f"kind must be one of {', '.join(get_args(Kind))}; got {asked.kind!r}")
    every = iter(groups)
    first = next(every, None)
    groups = every if first is None else chain((first,), every)
    if asked.kind != "arrow" and first is not None and getattr(first[0], "arrays", None) is not None:
        arrays = _gathered(asked.rows, groups)
        return arrays if asked.kind == "numpy" else _tensors(arrays, name)
    table = _table(asked.rows, groups, name)
    if asked.kind == "arrow":
        return table
    arrays = {column: _array(table.column(column)) for column in table.column_names}
    return arrays if asked.kind == "numpy" else _tensors(arrays, name)


def _table(count: int, groups: Iterable[tuple[Rows, Int64Array, Int64Array]], name: str | None) -> Any:
    parts: list[tuple[Any, Int64Array]] = []
    plain: list[Any] = [None] * count
    without = 0
    for rows, places, local in groups:
        part = rows.arrow(local)
        if part is None:
            without += 1
            for place, row in zip(places.tolist(), rows.take(local.tolist()), strict=True):
                plain[place] = row
        else:
            parts.append((pa.table(part), places))
    if parts and not without:
        return _joined(parts, name)
    for part, places in parts:  # some blocks have columns of their own, and some have not
        for place, row in zip(places.tolist(), part.to_pylist(), strict=True):
            plain[place] = row
    return _from_rows(plain, name)


def _gathered(count: int, groups: Iterable[tuple[Any, Int64Array, Int64Array]]) -> dict[str, Any]:
    """Return the arrays of rows that are arrays already, each copied once to its place."""
    columns: dict[str, Any] = {}
    for rows, places, local in groups:
        for column, part in rows.arrays(local).items():
            if column not in columns:
                columns[column] = np.empty((count, *part.shape[1:]), part.dtype)
            columns[column][places] = part
    return columns


def _joined(parts: list[tuple[Any, Int64Array]], name: str | None) -> Any:
    places = np.concatenate([where for _, where in parts])
    try:
        table = pa.concat_tables([part for part, _ in parts])
        if np.array_equal(places, np.arange(places.size)):
            return table
        back = np.empty_like(places)
        back[places] = np.arange(places.size)
        return table.combine_chunks().take(pa.array(back))
    except (pa.ArrowException, ValueError) as error:  # columns of other types; text of more than 2 GiB
        raise CorpusError(name, f"these rows cannot be one table: {error}; ask for fewer at once") from error


def _from_rows(rows: list[Any], name: str | None) -> Any:
    if rows and not isinstance(rows[0], dict):
        rows = [{"value": row.tolist() if isinstance(row, np.ndarray) else row} for row in rows]
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    try:
        return pa.table({column: pa.array([row.get(column) for row in rows]) for column in names})
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:  # of text: no UTF-8
        raise CorpusError(name, f"these rows cannot be columns of one type each: {error}") from error


def _array(column: Any) -> Any:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        flat = column.combine_chunks()
        flat = flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
        lengths = flat.value_lengths() if not pa.types.is_fixed_size_list(kind) else None
        wide = kind.list_size if lengths is None else (lengths[0].as_py() if len(flat) else 0)
        even = lengths is None or (lengths.null_count == 0 and bool((lengths.to_numpy() == wide).all()))
        values = flat.flatten()
        if even and flat.null_count == 0 and values.null_count == 0 and pa.types.is_primitive(values.type):
            return values.to_numpy(zero_copy_only=False).reshape(len(flat), wide)
    if _rounds(column):
        array = np.empty(len(column), object)
        array[:] = column.to_pylist()
        return array
    return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()


def _rounds(column: Any) -> bool:
    """Whether Arrow would make floats of whole numbers, as some are missing, and so might round them."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _rounds(pc.list_flatten(column))
    return bool(pa.types.is_integer(kind) and column.null_count)


def _tensors(arrays: dict[str, Any], name: str | None) -> dict[str, Any]:
    import torch

    tensors = {}
    for column, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise CorpusError(
                name,
                f"column {column!r} holds {array.dtype}, which no tensor does (missing values, text, rows of several "
                "lengths …); choose columns=",
            )
        tensors[column] = torch.from_numpy(array if array.flags.owndata and array.flags.writeable else np.array(array))
    return tensors
