"""Raw token files: integers of one type, one after another, without a header."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from detdata.checks import brief
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.protocol import Options, Outline, Progress
from detdata.corpora.windows import NEXT_TOKEN, Windows, WindowShard, outline_windows, windows_of
from detdata.errors import ArgumentValueError

_TYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "int64")


@final
class Tokens:
    """Windows of `seq_len` tokens of raw token files, int64[seq_len] each."""

    name: ClassVar[str] = "tokens"
    endings: ClassVar[tuple[str, ...]] = (".bin",)
    scans: ClassVar[bool] = False
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)
    outline_options: ClassVar[tuple[str, ...]] = ("seq_len", "dtype", NEXT_TOKEN)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a file are: arithmetic on its size."""
        return outline_windows(_windows(file, options))

    def open(self, file: DataFile, outline: Outline, options: Options) -> WindowShard:
        """Open a file for reading."""
        return WindowShard(file, _windows(file, options))

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: rows are int64[seq_len] whatever the file's type."""
        return


def _windows(file: DataFile, options: Options) -> Windows:
    size = file.identity().size
    if options.dtype is None:
        fit = ", ".join(name for name in _TYPES if size % np.dtype(name).itemsize == 0)
        raise ArgumentValueError(
            f"dtype= is needed: a raw token file does not say its type; the {size} bytes of {file.name} could be {fit}"
        )
    dtype = token_dtype(options.dtype)
    if size % dtype.itemsize:
        fit = ", ".join(name for name in _TYPES if size % np.dtype(name).itemsize == 0)
        raise CorpusError(
            file.name,
            f"has {size} bytes, no multiple of the {dtype.itemsize} bytes of {options.dtype}; it is cut off, or of "
            f"another type ({fit})",
        )
    return windows_of(0, size // dtype.itemsize, dtype, options)


def token_dtype(name: object) -> np.dtype[Any]:
    """Return the type of tokens by its name. Raises ValueError for one that is no integer that int64 can hold.

    >>> token_dtype("uint16").itemsize
    2
    """
    try:
        dtype: np.dtype[Any] = np.dtype(name)  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise ArgumentValueError(f"dtype must be one of {', '.join(_TYPES)}; got {brief(name)}") from error
    if dtype.kind not in "iu" or name is None:
        raise ArgumentValueError(f"dtype must be one of {', '.join(_TYPES)}; got {brief(name)}")
    if dtype.kind == "u" and dtype.itemsize == 8:
        raise ArgumentValueError('rows are int64, which cannot hold every uint64; dtype="int64" reads ids below 2**63')
    return dtype
