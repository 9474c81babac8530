"""Single values of an Arrow column, straight from its buffers: a third of what making a scalar of each costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa

_CODES = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
_CODES |= {"uint64": "Q", "float": "f", "double": "d"}


def getter(column: Any) -> Callable[[int], Any]:
    """Return a function from row to what `column[row].as_py()` gives, for a column that has been checked.

    Columns of numbers and of text without nulls are read from their buffers, others as pyarrow reads them.

    >>> get = getter(pa.array(["a", "é"]))
    >>> get(1)
    'é'
    """
    kind, types = column.type, pa.types
    if column.null_count == 0 and len(column):
        if str(kind) in _CODES:
            numbers = _numbers(column.buffers()[1], _CODES[str(kind)], column.offset, len(column))
            return cast("Callable[[int], Any]", numbers.__getitem__)
        if types.is_string(kind) or types.is_large_string(kind):
            _, edges, data = column.buffers()
            code = "i" if types.is_string(kind) else "q"
            return _texts(_numbers(edges, code, column.offset, len(column) + 1), memoryview(data or b""))
    return lambda row: column[row].as_py()


def _numbers(buffer: Any, code: Any, first: int, count: int) -> Any:
    size = 1 if code in "bB" else 2 if code in "hH" else 8 if code in "qQd" else 4
    return memoryview(buffer).cast("B")[first * size : (first + count) * size].cast(code)


def _texts(edges: Any, data: memoryview) -> Callable[[int], str]:
    def text(row: int) -> str:
        return str(data[edges[row] : edges[row + 1]], "utf-8")

    return text
