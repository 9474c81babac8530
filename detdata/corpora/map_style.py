"""Datasets that are objects with rows by number, as a corpus: nothing is read of files, rows pass through.

Of a Hugging Face `Dataset` the blocks are the chunks of its table, the version is its fingerprint, and columns come as
Arrow. Any other dataset has blocks of 1,024 rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np

from detdata.arrays import Int64Array
from detdata.checks import brief
from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.files import DataFile, Identity
from detdata.corpora.protocol import Buffer, Options, Outline, Progress
from detdata.errors import ArgumentTypeError, DetdataError

_BLOCK_ROWS = 1024


def is_dataset(value: object) -> bool:
    """Return whether `value` is a dataset and neither a path nor a list of paths.

    >>> is_dataset("a.jsonl"), is_dataset(["a.jsonl"]), is_dataset(range(3))
    (False, False, True)
    """
    kind = type(value)
    indexed = hasattr(kind, "__getitem__") or hasattr(kind, "__getitems__")
    return hasattr(kind, "__len__") and indexed and not isinstance(value, (str, bytes, bytearray, list, tuple))


@final
class ObjectFile:
    """What stands for the files of a dataset that is an object. Picklable if the dataset is."""

    def __init__(self, dataset: Any) -> None:
        if isinstance(dataset, Mapping):
            names = ", ".join(map(brief, list(dataset)[:10]))
            raise ArgumentTypeError(f"paths is a mapping of {names}: open one of these by itself")
        self.dataset = dataset
        self.rows = len(dataset)

    @property
    def name(self) -> str:
        """The type of the dataset."""
        return f"<{type(self.dataset).__name__}>"

    @property
    def path(self) -> None:
        """None: it is no file."""
        return

    def identity(self) -> Identity:
        """Return its length and, where it has one, its fingerprint: what tells that it is the same as before."""
        return Identity(len(self.dataset), str(getattr(self.dataset, "_fingerprint", "")))

    def read(self, start: int, length: int) -> bytes:
        """Raise CorpusUnreadable: it has no bytes."""
        raise CorpusUnreadable(self.name, f"is no file; bytes {start} … {start + length} were asked for")

    def map(self) -> Any:
        """Raise CorpusUnreadable: it has no bytes."""
        raise CorpusUnreadable(self.name, "is no file and cannot be mapped")

    def fresh(self) -> DataFile:
        """Return the same; what it has open is its own business."""
        return self

    def version(self) -> str:
        """Return the dataset's own version. Raises CorpusError where it has none."""
        found = getattr(self.dataset, "_fingerprint", None)
        if not isinstance(found, str) or not found:
            raise CorpusError(
                self.name,
                "has no version that detdata could know of; say what it is yourself: Loader(…, dataset_version=…)",
            )
        return f"fingerprint:{found}"


@final
class MapStyle:
    """The format of datasets that are objects."""

    name: ClassVar[str] = "map-style"
    endings: ClassVar[tuple[str, ...]] = ()
    scans: ClassVar[bool] = False
    random: ClassVar[str | None] = None
    keeps: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    outline_options: ClassVar[tuple[str, ...]] = ()

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Return where the rows of a dataset are: its chunks, or blocks of the same size."""
        dataset = _dataset(file)
        chunks = None if options.rows_per_block is not None else _chunks(dataset)
        if chunks is None:
            each, rows = options.rows_per_block or _BLOCK_ROWS, len(dataset)
            chunks = np.full(-(-rows // each), each, np.int64)
            if rows % each:
                chunks[-1] = rows % each
        return Outline(block_sizes=chunks)

    def open(self, file: DataFile, outline: Outline, options: Options) -> _Shard:
        """Return the dataset as one that is read by blocks."""
        dataset = _dataset(file)
        if options.columns is not None and hasattr(dataset, "column_names"):
            missing = [name for name in options.columns if name not in dataset.column_names]
            if missing:
                raise CorpusError(file.name, f"has no column {missing[0]!r}, only {', '.join(dataset.column_names)}")
            return _Shard(file.name, dataset.select_columns(list(options.columns)), outline, None)
        return _Shard(file.name, dataset, outline, options.columns)

    def schema(self, outline: Outline, options: Options) -> None:
        """Return None: it is one dataset."""
        return


def _dataset(file: DataFile) -> Any:
    if not isinstance(file, ObjectFile):
        raise CorpusError(file.name, "is a file; the format map-style is for datasets that are objects")
    return file.dataset


def _chunks(dataset: Any) -> Int64Array | None:
    """Return the rows of each chunk of a Hugging Face dataset's table; None where rows do not lie in its order."""
    table: Any = getattr(dataset, "data", None)
    if getattr(dataset, "_indices", 0) is not None or not hasattr(table, "column") or not table.num_columns:
        return None
    sizes = np.array([len(chunk) for chunk in table.column(0).chunks], dtype=np.int64)
    return sizes if int(sizes.sum()) == len(dataset) else None


@final
class _Shard:
    def __init__(self, name: str, dataset: Any, outline: Outline, columns: tuple[str, ...] | None) -> None:
        self._name, self._dataset, self._columns = name, dataset, columns
        self._edges = np.concatenate([[0], np.cumsum(outline.block_sizes)]).astype(np.int64)

    def load(self, block: int) -> Buffer:
        return b""  # rows come from the dataset when they are asked for

    def view(self, block: int, buffer: Buffer) -> _Rows:
        return _Rows(self._name, block, self._dataset, int(self._edges[block]), self._columns)


@final
class _Rows:
    def __init__(self, name: str, block: int, dataset: Any, first: int, columns: tuple[str, ...] | None) -> None:
        self._name, self._block, self._dataset, self._first, self._columns = name, block, dataset, first, columns

    def take(self, rows: Sequence[int]) -> list[Any]:
        ids = [self._first + row for row in rows]
        if callable(getattr(self._dataset, "__getitems__", None)):
            try:
                found = list(self._dataset.__getitems__(ids))
            except DetdataError:
                raise
            except Exception as error:
                raise self._broken(error, ids, None) from error
            if len(found) != len(ids):
                raise CorpusError(
                    self._name, f"gave {len(found)} rows where {len(ids)} were asked for", block=self._block
                )
        else:
            found = []
            for row, id in zip(rows, ids, strict=True):
                try:
                    found.append(self._dataset[id])
                except DetdataError:
                    raise
                except Exception as error:
                    raise self._broken(error, [id], row) from error
        return (
            found
            if self._columns is None
            else [self._chosen(value, row) for value, row in zip(found, rows, strict=True)]
        )

    def arrow(self, rows: Int64Array) -> Any:
        with_format = getattr(self._dataset, "with_format", None)
        if not callable(with_format) or not hasattr(self._dataset, "column_names"):
            return None
        return with_format("arrow")[(rows + self._first).tolist()]

    def _chosen(self, value: Any, row: int) -> Any:
        names = self._columns or ()
        if not isinstance(value, Mapping) or any(name not in value for name in names):
            there = ", ".join(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise CorpusError(
                self._name, f"columns {list(names)} were asked for, and it has {there}", row=row, block=self._block
            )
        return {name: value[name] for name in names}

    def _broken(self, error: Exception, ids: list[int], row: int | None) -> CorpusError:
        which = str(ids[0]) if len(ids) == 1 else f"{min(ids)} … {max(ids)}"
        text = f"fails at row {which} of the dataset: {type(error).__name__}: {error}"
        return CorpusError(self._name, text, block=self._block, row=row)
