"""What the laws of corpora share: the files that a format's suite writes, opened; and when two rows are the same."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, cast

import numpy as np

from detdata.checks import brief
from detdata.corpora import Corpus, CorpusError, CorpusWarning, open_corpus
from detdata.corpora.files import DataFile
from detdata.corpora.formats import format_named
from detdata.corpora.opened import Entry
from detdata.corpora.protocol import Format, Options, Outline, Progress
from detdata.keys import sample_rng
from detdata.versions.own_files import INDEX_ENDING

COUNT = 60  # rows of an example: few enough to try every edge, if they make some blocks
_LETTERS = "abc xyz\"\\,\t\n\r'äß→日本😀\u2028"


class CorpusCases:
    """What a format's suite says of it. The fields are those of `CorpusSuite`, where they are told."""

    format: ClassVar[str | Format] = ""
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    columns: ClassVar[Sequence[str]] = ("text", "id")
    sees_cuts: ClassVar[bool] = True
    holds_empty: ClassVar[bool] = True
    remote: ClassVar[bool] = True

    def write(self, folder: Path, rows: Sequence[Any]) -> Path:
        """Write these rows as a file into an empty folder, in several blocks, and return its path."""
        raise AssertionError(f"{type(self).__name__} needs a method write(folder, rows) that returns the path")

    def rows(self, count: int, seed: int) -> list[Any]:
        """Return rows to write, the same for the same seed. Overridden where a format holds other things."""
        return [_row(seed, number) for number in range(count)]

    def opened(self, paths: Path | Sequence[Path], **more: Any) -> Corpus:
        """Return a corpus of files that `write` made."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorpusWarning)
            folder = (paths if isinstance(paths, Path) else paths[0]).parent / "cache"
            arguments: dict[str, Any] = {"format": self.format, "index_folder": folder, **self.options, **more}
            return open_corpus(paths, **arguments)

    def form(self) -> Format:
        """Return the format itself."""
        return format_named(self.format) if isinstance(self.format, str) else self.format

    @contextmanager
    def files(self, *counts: int, seed: int = 1) -> Iterator[tuple[list[Path], list[Any]]]:
        """Give files of so many rows, each in a folder of its own, and all of their rows; removed at the end."""
        with quiet_folder() as folder:
            paths, rows = [], []
            for number, count in enumerate(counts, seed):
                rows.append(self.rows(count, number))
                paths.append(self.made(folder / str(number), rows[-1]))
            yield paths, [row for part in rows for row in part]

    def made(self, folder: Path, rows: Sequence[Any]) -> Path:
        """Write rows into a new folder."""
        folder.mkdir()
        path = Path(self.write(folder, rows))
        if folder not in path.parents or not path.exists():
            raise AssertionError(f"{type(self).__name__}.write must write below {folder}; it returned {path}")
        return path

    def broken(self, law: str, text: str) -> NoReturn:
        """Say which law is broken, and how."""
        name = self.format if isinstance(self.format, str) else self.format.name
        raise AssertionError(f"law '{law}' is broken by the format {name!r}: {text}")

    def expect(self, law: str, what: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
        """Raise unless these rows are those."""
        if len(expected) != len(found):
            self.broken(law, f"{what}: {len(found)} rows where {len(expected)} were written")
        for place, (one, other) in enumerate(zip(expected, found, strict=True)):
            if not alike(one, other):
                self.broken(law, f"{what}: row {place} of them is {brief(other)}, and {brief(one)} was written")


@contextmanager
def quiet_folder() -> Iterator[Path]:
    """Give a folder, and no warnings of what random access costs or of a fork beside threads, which are meant here."""
    with tempfile.TemporaryDirectory(prefix="detdata-suite-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", CorpusWarning)
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield Path(name).resolve()


def data_files(folder: Path) -> list[Path]:
    """Return the files below a folder that are data, and no indexes."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != INDEX_ENDING)


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, types too; NaN is NaN.

    >>> alike({"a": [1, float("nan")]}, {"a": [1, float("nan")]}), alike(1, 1.0), alike([1], (1,))
    (True, False, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))
    return bool(one == other) or bool(one != one and other != other)  # noqa: PLR0124  NaN


def plain(value: Any) -> Any:
    """Return a value with lists instead of arrays and tuples, for comparing what comes as columns."""
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def with_file(corpus: Corpus, file: DataFile, outline: Outline | None = None) -> Corpus:
    """Return a corpus of one file read by way of `file` instead, and of another outline if one is given."""
    (entry,) = corpus.entries
    outline = entry.outline if outline is None else outline
    return Corpus(corpus._form, [Entry(file, outline, file.identity())], corpus._options, cache_bytes=0)


class FileOf:
    """A file that is read by way of another one."""

    def __init__(self, file: DataFile) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """Its name."""
        return self._file.name

    @property
    def path(self) -> str | None:
        """None: it can only be read."""
        return None

    def identity(self) -> Any:
        """Return what it is now."""
        return self._file.identity()

    def read(self, start: int, length: int) -> bytes:
        """Return bytes."""
        return self._file.read(start, length)

    def map(self) -> Any:
        """Refuse."""
        raise CorpusError(self.name, "cannot be mapped: it does not lie on this machine")

    def fresh(self) -> Any:
        """Return the same: it has nothing open of its own."""
        return self


class Watched:
    """A format that counts how often outlines are made."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self.outlines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._form, name)

    def outline(self, file: DataFile, options: Options, progress: Progress | None = None) -> Outline:
        """Count and go on."""
        self.outlines += 1
        return self._form.outline(file, options, progress)

    def as_format(self) -> Format:
        """Return itself, as the type that it is like."""
        return cast("Format", self)


def some_ids(rows: int, count: int, seed: int) -> list[int]:
    """Return random row numbers with repeats."""
    return [int(number) for number in sample_rng(seed, 0, rows).integers(0, rows, count)]


def with_edges(edges: Iterable[int], rows: int) -> list[int]:
    """Return each edge and its neighbours, within 0 … rows."""
    return sorted({place for edge in edges for place in (edge - 1, edge, edge + 1) if 0 <= place <= rows})


def _row(seed: int, number: int) -> dict[str, Any]:
    rng = sample_rng(seed, 0, number)
    letters = rng.integers(0, len(_LETTERS), int(rng.integers(0, 40)))
    return {
        "id": int(rng.integers(-(2**63), 2**63 - 1)),
        "text": f"{number} " + "".join(_LETTERS[letter] for letter in letters),
        "score": float(rng.standard_normal()),
        "tags": [int(tag) for tag in rng.integers(0, 100, int(rng.integers(1, 4)))],
    }
