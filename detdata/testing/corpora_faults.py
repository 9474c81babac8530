"""Laws of corpora: what is broken is a CorpusError that says where, never another exception, a crash or a wrong row."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from detdata.corpora import CorpusError, CorpusUnreadable
from detdata.corpora.files import DataFile
from detdata.corpora.index_file import Index, index_key, read_index, write_index
from detdata.corpora.protocol import Outline
from detdata.keys import sample_rng
from detdata.testing.corpora_cases import COUNT, CorpusCases, FileOf, alike, data_files, quiet_folder, with_file
from detdata.testing.corpora_children import Child, read_all

_DAMAGED = 60  # files that are tried


class FaultLaws(CorpusCases):
    """Damage, missing columns, reads that fail."""

    def test_a_missing_column_is_named(self) -> None:
        """columns= with a name that is not there is an error that names it; also where there are no columns at all."""
        with self.files(COUNT) as (paths, _):
            try:
                found = self.opened(paths, columns=["no_such_column"]).take([COUNT - 1])
            except (ValueError, TypeError) as error:
                said = f"{type(error).__name__}: {error}"
                named = isinstance(error, CorpusError) and error.file is not None and "no_such_column" in said
                if self.columns and not named:
                    self.broken("missing column", f"expected a CorpusError that names file and column, got {said}")
            else:
                self.broken("missing column", f"columns=['no_such_column'] gave {found!r:.200}")

    def test_a_read_that_fails_is_an_error_once(self) -> None:
        """When reading fails, CorpusUnreadable comes through; asked again, rows are the right ones."""
        law = "failing reads"
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths)
            (entry,) = corpus.entries
            outline = entry.outline
            if self.remote:
                outline = self.form().outline(FileOf(entry.file), corpus._options)
            for nth in range(30):
                file = _Failing(entry.file, nth)
                other = with_file(corpus, file, outline)
                try:
                    found = other.take(range(len(rows)))
                except CorpusUnreadable:
                    found = None
                except Exception as error:  # noqa: BLE001  whatever it is, it is the wrong one, and reported
                    self.broken(law, f"read number {nth} failed, and that became {error!r}")
                if found is None:
                    try:
                        found = other.take(range(len(rows)))
                    except CorpusError as error:
                        self.broken(law, f"read number {nth} failed once, and rows asked for again are {error!r}")
                self.expect(law, f"after read number {nth} failed", rows, found)
                if not file.failed:
                    break  # there are no more reads than that

    def test_damaged_files_are_errors(self) -> None:
        """Files cut short or with bytes changed: a CorpusError that names the file, or rows; nothing else, no crash.

        Of a file cut short the rows that are given are those that were written (the last may be short where
        `sees_cuts` is False).
        """
        law = "damage"
        with self.files(COUNT) as (paths, rows), quiet_folder() as folder:
            path = paths[0]
            originals = {file.relative_to(path.parent): file.read_bytes() for file in data_files(path.parent)}
            cases = []
            for seed in range(_DAMAGED):
                target = folder / str(seed)
                what = _damage(originals, target, seed)
                cases.append((what, target / path.relative_to(path.parent)))
            with Child("spawn", read_all, type(self), [str(path) for _, path in cases], "no") as child:
                for what, damaged in cases:
                    self._judge(law, what, damaged, child.receive(), rows)

    def test_forged_indexes_are_errors(self) -> None:
        """An index that is whole, of this very file, and leads anywhere: a CorpusError that names the file, or rows."""
        if not self.form().scans:
            return
        law = "forged index"
        with self.files(COUNT) as (paths, rows), quiet_folder() as folder:
            cases = []
            for seed in range(_DAMAGED):
                shutil.copytree(paths[0].parent, folder / str(seed))
                path = folder / str(seed) / paths[0].relative_to(paths[0].parent)
                corpus = self.opened(path, index="beside")
                key = index_key(corpus._form, corpus._options)
                (place,) = path.parent.glob("*.detdata-index")
                index = read_index(place, key)
                if index is None:
                    self.broken(law, "the index that was stored cannot be read")
                what, outline = _forged(index.outline, seed)
                write_index(place, Index(outline, index.identity, index.digest), key)
                cases.append((what, path))
            with Child("spawn", read_all, type(self), [str(path) for _, path in cases], "beside") as child:
                for what, path in cases:
                    self._judge(law, what, path, child.receive(), rows)

    def _judge(self, law: str, what: str, path: Path, found: Any, rows: Sequence[Any]) -> None:
        if isinstance(found, Child.Ended):
            self.broken(law, f"{what}: the process that read it {found.how}")
        error, given = found
        if error is not None:
            kind, file, text = error
            if kind != "CorpusError":
                self.broken(law, f"{what}: expected a CorpusError, got {text}")
            if file is None or not (Path(file) == path or path.parent in Path(file).parents):
                self.broken(law, f"{what}: the error does not name the file: {text}")
        if what.startswith("cut"):
            if len(given) > len(rows):
                self.broken(law, f"{what}: {len(given)} rows were read, and only {len(rows)} had been written")
            sure = given if self.sees_cuts else given[:-1]
            for number, row in enumerate(sure):
                if not alike(row, rows[number]):
                    self.broken(law, f"{what}: row {number} is {row!r:.200}, and {rows[number]!r:.200} was written")


class _Failing(FileOf):
    """A file of which one read fails, and no other."""

    def __init__(self, file: DataFile, nth: int) -> None:
        super().__init__(file)
        self._left = nth
        self.failed = False

    @property
    def path(self) -> str | None:
        return self._file.path

    def map(self) -> Any:
        self._count()
        return self._file.map()

    def read(self, start: int, length: int) -> bytes:
        self._count()
        return super().read(start, length)

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            self.failed = True
            raise CorpusUnreadable(self.name, "cannot be read: the cable was pulled")


def _forged(outline: Outline, seed: int) -> tuple[str, Outline]:
    """Return an outline that leads astray, and what was done to it."""
    rng = sample_rng(seed, 2, 0)
    arrays = {
        "block_sizes": outline.block_sizes.copy(),
        **{name: array.copy() for name, array in outline.arrays.items()},
    }
    name = sorted(arrays)[seed // 6 % len(arrays)]
    array, meta = arrays[name], dict(outline.meta)
    kind = ("value", "value", "shorter", "longer", "gone", "meta")[seed % 6]
    if kind == "value" and array.size:
        info = np.iinfo(array.dtype)
        low = 0 if name == "block_sizes" else info.min
        array[int(rng.integers(array.size))] = rng.choice([low, 0, 1, 7, info.max // 2, info.max >> 13, info.max])
    elif kind == "shorter":
        arrays[name] = array[: int(rng.integers(array.size + 1))]
    elif kind == "longer":
        arrays[name] = np.concatenate([array, array[:1], np.ones(1, array.dtype)])
    elif kind == "gone" and name != "block_sizes":
        del arrays[name]
    elif kind == "meta":
        meta = {} if seed % 4 else {key: [None] for key in meta}
    sizes = arrays.pop("block_sizes")
    return f"{kind} of {name} (seed {seed})", Outline(block_sizes=sizes, arrays=arrays, meta=meta)


def _damage(originals: dict[Path, bytes], folder: Path, seed: int) -> str:
    """Write the files into a new folder, one of them damaged, and say how."""
    rng = sample_rng(seed, 1, len(originals))
    names = sorted(originals)
    chosen = names[int(rng.integers(len(names)))]
    data = bytearray(originals[chosen])
    kind = ("cut", "changed", "changed at an end", "without a piece")[seed % 4]
    at = int(rng.integers(len(data)))
    if kind == "cut":
        del data[at:]
        what = f"cut to {at} of {len(originals[chosen])} bytes"
    elif kind == "without a piece":
        del data[at : at + int(rng.integers(1, 100))]
        what = f"without bytes {at} …"
    else:
        if kind == "changed at an end":  # where headers and footers are
            at = int(rng.integers(min(64, len(data))))
            at = at if rng.integers(2) else len(data) - 1 - at
        value = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
        what = f"byte {at} changed from {data[at]} to {value}"
        data[at] = value
    for name, content in originals.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if name == chosen else content)
    return f"{what} ({chosen}, seed {seed})"
