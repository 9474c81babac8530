"""NumPy's .npy files: rows along the first axis, or windows of tokens of one long row of integers."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.corpora.windows import (
    BLOCK_BYTES,
    NEXT_TOKEN,
    Windows,
    WindowShard,
    even_blocks,
    next_token_of,
    no_columns,
    outline_windows,
    part_of,
    windows_of,
)

COLUMN = "value"  # what rows are called as a column
_MAGIC = b"\x93NUMPY"
_HEADER = 1 << 14  # bytes of a header at most; that of a plain array has 118
_KINDS = "biufc"
_ROWS = 1 << 62


@final
class Npy:
    """Rows of a .npy file along its first axis, as `array[i].copy()`; with `seq_len`, windows as int64[seq_len]."""

    name: ClassVar[str] = "npy"
    endings: ClassVar[tuple[str, ...]] = (".npy",)
    scans: ClassVar[bool] = False
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)
    outline_options: ClassVar[tuple[str, ...]] = ("seq_len", NEXT_TOKEN)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are, from its header."""
        start, dtype, shape = _header(file)
        if options.seq_len is not None:
            sizes = outline_windows(_windows(file, start, dtype, shape, options)).block_sizes
        else:
            no_columns(options)
            next_token_of(options)
            sizes = even_blocks(shape[0], _rows_per_block(dtype, shape, options))
        return Outline(block_sizes=sizes, meta={"start": start, "dtype": dtype.str, "shape": list(shape)})

    def open(self, file: DataFile, outline: Outline, options: Options) -> WindowShard | _Shard:
        """Open a file for reading."""
        start, shape = int(outline.meta["start"]), tuple(map(int, outline.meta["shape"]))
        dtype = np.dtype(str(outline.meta["dtype"]))
        if options.seq_len is not None:
            return WindowShard(file, _windows(file, start, dtype, shape, options))
        no_columns(options)
        return _Shard(file, start, dtype, shape, _rows_per_block(dtype, shape, options))

    def schema(self, outline: Outline, options: Options) -> str | None:
        """Return type and shape of a row, or None for windows, which are int64 whatever the file's type."""
        if options.seq_len is not None:
            return None
        row = ", ".join(str(size) for size in outline.meta["shape"][1:])
        return f"{np.dtype(outline.meta['dtype']).newbyteorder('=').name}[{row}]"


def _rows_per_block(dtype: np.dtype[Any], shape: tuple[int, ...], options: Options) -> int:
    if options.rows_per_block is not None:
        return options.rows_per_block
    return max(1, BLOCK_BYTES // max(1, math.prod(shape[1:]) * dtype.itemsize))


def _windows(file: DataFile, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], options: Options) -> Windows:
    if len(shape) != 1 or dtype.kind not in "iu" or (dtype.kind == "u" and dtype.itemsize == 8):
        raise CorpusError(
            file.name,
            f"holds {dtype.name}{list(shape)}, and windows of tokens (seq_len=) are cut of one axis of integers that "
            "int64 can hold; without seq_len= its rows along the first axis are given",
        )
    return windows_of(start, shape[0], dtype, options)


def _header(file: DataFile) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    """Return (first byte of the data, type, shape) of a file that is as long as they say. Evaluates nothing."""
    size = file.identity().size
    head = file.read(0, min(size, 12))
    if not head.startswith(_MAGIC) or len(head) < 12:
        raise CorpusError(file.name, "does not begin like a .npy file" if size else "is empty, and no .npy file is")
    major, minor = head[6], head[7]
    wide = 2 if major == 1 else 4
    length = int.from_bytes(head[8 : 8 + wide], "little")
    start = 8 + wide + length
    if major not in (1, 2, 3) or minor or length > _HEADER:
        raise CorpusError(file.name, f"has a header of version {major}.{minor} and {length} bytes, which none has here")
    if start > size:
        raise CorpusError(file.name, f"is cut off: its header ends at byte {start}, the file at {size}")
    dtype, shape = _parse(file.name, file.read(8 + wide, length))
    expected = start + math.prod(shape) * dtype.itemsize
    if expected != size:
        what = "is cut off" if size < expected else "has something behind its array"
        raise CorpusError(
            file.name, f"{what}: {dtype.name}{list(shape)} from byte {start} on ends at {expected}, the file at {size}"
        )
    return start, dtype, shape


def _parse(name: str, header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        fields = ast.literal_eval(
            re.sub(r"(?<=\d)L\b", "", header.decode("latin-1")).strip(" \n")
        )  # Python 2 wrote 10L
        if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
            raise ValueError("it has not the keys descr, fortran_order and shape")
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
        if not isinstance(shape, tuple) or not isinstance(fortran, bool):
            raise TypeError(f"{brief(shape)} is no shape, or {brief(fortran)} is no order")
        plain = isinstance(descr, str) and re.fullmatch(r"[<>|=]?[?biufc]\d{0,2}", descr)
        dtype = np.dtype(descr) if plain else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, Warning) as error:
        raise CorpusError(name, f"has a header that cannot be read: {brief(str(error))}") from error
    if dtype is None or dtype.kind not in _KINDS:
        how = "; objects are never unpickled" if isinstance(descr, str) and "O" in descr else ""
        raise CorpusError(name, f"holds {brief(descr)}, and rows of numbers are read{how}")
    if not shape:
        raise CorpusError(name, "holds a single value without an axis, so it has no rows")
    if any(type(axis) is not int or not 0 <= axis <= _ROWS for axis in shape):
        raise CorpusError(name, f"has a shape that no array has: {brief(shape)}")
    if shape[0] and 0 in shape:
        raise CorpusError(name, f"has rows without a number in them: its shape is {shape}")
    if fortran and len(shape) > 1:
        raise CorpusError(
            name,
            "is in Fortran order, in which a row lies all over the file; write it anew by "
            "np.save(path, np.ascontiguousarray(array))",
        )
    return dtype, shape


@final
class _Shard:
    def __init__(
        self, file: DataFile, start: int, dtype: np.dtype[Any], shape: tuple[int, ...], rows_per_block: int
    ) -> None:
        self._file, self._start, self._dtype, self._shape = file, start, dtype, shape
        self._rows_per_block = rows_per_block
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize

    def load(self, block: int) -> Buffer:
        first = block * self._rows_per_block
        start = self._start + first * self._row_bytes
        return part_of(self._file, start, start + self._rows_of(block) * self._row_bytes)

    def view(self, block: int, buffer: Buffer) -> _Rows:
        rows, found = self._rows_of(block), memoryview(buffer).nbytes
        if found != rows * self._row_bytes:
            raise CorpusError(
                self._file.name, f"has {found} bytes where {rows * self._row_bytes} were known of", block=block
            )
        return _Rows(self._file.name, np.ndarray((rows, *self._shape[1:]), self._dtype, buffer))

    def _rows_of(self, block: int) -> int:
        return min(self._rows_per_block, self._shape[0] - block * self._rows_per_block)


@final
class _Rows:
    def __init__(self, name: str, rows: npt.NDArray[Any]) -> None:
        self._name, self._rows = name, rows
        self._native = rows.dtype.newbyteorder("=")

    def take(self, rows: Sequence[int]) -> list[Any]:
        return list(self._gather(rows))

    def arrays(self, rows: Int64Array) -> dict[str, npt.NDArray[Any]]:
        return {COLUMN: self._gather(rows)}

    def arrow(self, rows: Int64Array) -> Any:
        taken = self._gather(rows)
        if taken.dtype.kind == "c" or taken.dtype.itemsize > 8:
            raise CorpusError(self._name, f'{taken.dtype.name} has no Arrow type; take kind="numpy" or "torch"')
        column: Any = pa.array(taken.reshape(-1))
        for axis in reversed(taken.shape[1:]):
            column = pa.FixedSizeListArray.from_arrays(column, axis)
        return pa.RecordBatch.from_arrays([column], [COLUMN])

    def _gather(self, rows: Sequence[int] | Int64Array) -> npt.NDArray[Any]:
        if isinstance(rows, range) and rows.step == 1:
            return self._rows[rows.start : rows.stop].astype(self._native)
        return self._rows[np.asarray(rows, np.intp)].astype(self._native, copy=False)
