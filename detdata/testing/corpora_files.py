"""Laws of corpora: what is known of a file holds for that file as it is, and for no other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from detdata.corpora import CorpusError
from detdata.corpora.index_file import Index, index_key, read_index, write_index
from detdata.testing.corpora_cases import (
    COUNT,
    CorpusCases,
    FileOf,
    Watched,
    alike,
    data_files,
    quiet_folder,
    with_file,
)

_MOST_OPEN = 64 * 4 + 20  # 64 files at a time, some of them pairs, each read and mapped
_DTYPES = frozenset({"<i8", "<i4", "<u4", "<u2", "|u1"})


class FileLaws(CorpusCases):
    """Outlines, their indexes, and files that change."""

    def test_the_format_says_what_it_is(self) -> None:
        """Name, endings and flags are there, and of their types."""
        form = self.form()
        kinds = {"name": str, "endings": tuple, "scans": bool, "keeps": bool, "outline_options": tuple}
        for name, kind in kinds.items():
            if not isinstance(getattr(form, name, None), kind):
                self.broken("format", f"{name} must be a {kind.__name__}, got {getattr(form, name, None)!r}")
        if not isinstance(getattr(form, "random", ""), str | None):
            self.broken("format", "random must be half a sentence, or None")
        for ending in form.endings:
            if ending != ending.lower() or not ending.startswith("."):
                self.broken("format", f"the ending {ending!r} must be in lower case and begin with a dot")

    def test_outlines_are_numbers_and_json(self) -> None:
        """An outline that was stored as an index and read back finds the same rows; making it again gives the same."""
        law = "outline"
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths)
            (entry,) = corpus.entries
            sizes = entry.outline.block_sizes
            if sizes.dtype != np.int64 or sizes.ndim != 1 or (sizes < 0).any():
                self.broken(law, f"block_sizes must be int64[blocks], none negative; got {sizes!r}")
            for name, array in entry.outline.arrays.items():
                if array.dtype.newbyteorder("<").str not in _DTYPES or array.ndim != 1:
                    self.broken(law, f"array {name!r} must be one row of {sorted(_DTYPES)}, got {array.dtype}")
            key = index_key(corpus._form, corpus._options)
            path = paths[0].parent / "stored"
            write_index(path, Index(entry.outline, entry.identity, ""), key)
            index = read_index(path, key)
            if index is None:
                self.broken(law, "an outline that was stored as an index cannot be read back")
            stored = with_file(corpus, entry.file, index.outline)
            self.expect(law, "by an outline that was stored", rows, stored.take(range(len(rows))))
            again = self.form().outline(entry.file.fresh(), corpus._options)
            if again.block_sizes.tolist() != sizes.tolist() or dict(again.meta) != dict(index.outline.meta):
                self.broken(law, "made again of the same file, it is another one")

    def test_a_file_need_not_lie_on_this_machine(self) -> None:
        """Where there is no path and nothing to map, `read` is enough."""
        if not self.remote:
            return
        with self.files(COUNT) as (paths, rows):
            corpus = self.opened(paths)
            file = FileOf(corpus.entries[0].file)
            outline = self.form().outline(file, corpus._options)
            self.expect("read only", "rows", rows, with_file(corpus, file, outline).take(range(len(rows))))

    def test_an_index_is_made_once(self) -> None:
        """A format that reads the whole file for its outline does so once: not for a copy, not after touch."""
        if not self.form().scans:
            return
        watched = Watched(self.form())
        with self.files(COUNT) as (paths, rows):
            path = paths[0]

            def look(path: Path, what: str) -> None:
                corpus = self.opened(path, format=watched.as_format())
                self.expect("index", what, rows, corpus.take(range(len(rows))))
                if watched.outlines != 1:
                    self.broken("index", f"{what}: the outline was made {watched.outlines} times in all, not once")

            look(path, "at first")
            look(path, "the second time")
            os.utime(path, ns=(1, 1))
            look(path, "after the file's times were changed")
            shutil.copytree(path.parent, path.parent.parent / "copy")
            look(path.parent.parent / "copy" / path.name, "of a copy with its index")

    def test_a_stale_index_is_not_used(self) -> None:
        """Whatever was done to a file, opening it anew gives what it gives without an index."""
        for kind, number, paths, _ in self._edits():
            path = paths[0]
            corpus = self.opened(path)
            corpus.take([0])
            self._edit(kind, data_files(path.parent)[number], path.parent.parent)
            found = _outcome(lambda path=path: list(self.opened(path)))  # type: ignore[misc]
            bare = _outcome(lambda path=path: list(self.opened(path, index="no")))  # type: ignore[misc]
            if isinstance(found, CorpusError) != isinstance(bare, CorpusError):
                self.broken("stale index", f"{kind}: with an index {found!r:.500}, without {bare!r:.500}")
            if not isinstance(found, CorpusError):
                self.expect("stale index", f"{kind}, opened anew", bare, found)

    def test_the_index_of_another_file_is_not_used(self) -> None:
        """An index that lies beside a file of other rows is none."""
        with self.files(COUNT, COUNT) as (paths, rows):
            corpus = self.opened(paths)
            corpus.take([0])
            for index in paths[0].parent.glob("*.detdata-index"):
                shutil.copy(index, f"{paths[1]}.detdata-index")
            self.expect("stale index", "beside another file", rows[COUNT:], list(self.opened(paths[1])))

    def test_a_file_that_changes_gives_no_mixture(self) -> None:
        """After a change each row is the one that was there when the corpus was opened, or an error naming the file."""
        for used in (False, True):
            for kind, number, paths, rows in self._edits():
                corpus = self.opened(paths[0], cache_bytes=0)
                if used:
                    corpus.take([0])
                self._edit(kind, data_files(paths[0].parent)[number], paths[0].parent.parent)
                for row, expected in enumerate(rows):
                    found = _outcome(lambda corpus=corpus, row=row: [corpus[row]])  # type: ignore[misc]
                    if isinstance(found, CorpusError):
                        self._names_a_file("changed file", f"{kind}, row {row}", found, paths[0].parent)
                    else:
                        self.expect("changed file", f"{kind}, row {row}", [expected], found)

    def test_files_are_closed_again(self) -> None:
        """Of many files a bounded number is open, whatever is held of their blocks, and none when nobody reads."""
        descriptors = Path("/proc/self/fd")
        if not descriptors.is_dir():
            return  # there is no other way to count
        with self.files(*[1] * 400) as (paths, rows):
            before = len(list(descriptors.iterdir()))
            for _ in range(2):
                corpus = self.opened(paths)
                self.expect("open files", "of many files", rows, corpus.take(range(len(rows))))
                here = len(list(descriptors.iterdir())) - before
                if here > _MOST_OPEN:
                    self.broken(
                        "open files", f"{here} are open after reading {len(paths)} files; blocks must not hold them"
                    )

    def test_the_version_is_that_of_the_content(self) -> None:
        """A copy has the same version; a change of any file that `write` made is one of the version, or of no row."""
        with self.files(COUNT) as (paths, _):
            path = paths[0]
            version = self.opened(path).version()
            shutil.copytree(path.parent, path.parent.parent / "copy")
            if self.opened(path.parent.parent / "copy" / path.name).version() != version:
                self.broken("version", "a copy has another one")
        for kind, number, paths, rows in self._edits(("appended to",)):
            corpus = self.opened(paths[0])
            version = corpus.version()
            file = data_files(paths[0].parent)[number]
            self._edit(kind, file, paths[0].parent.parent)
            found = _outcome(corpus.version)
            if found == version and not self._reads(paths[0], rows):
                self.broken("version", f"it is the same after {file.name} was {kind}")

    def test_a_missing_file_is_named(self) -> None:
        """A file that is not there, or is a folder, is an error that names it."""
        with quiet_folder() as folder:
            for name in ("none", "folder"):
                path = folder / f"{name}{self.form().endings[0] if self.form().endings else ''}"
                if name == "folder":
                    path.mkdir()
                found = _outcome(lambda path=path: list(self.opened(path)))  # type: ignore[misc]
                if not isinstance(found, CorpusError) or path.name not in str(found):
                    self.broken("missing file", f"{name}: expected a CorpusError that names {path.name}, got {found!r}")

    def _reads(self, path: Path, rows: list[Any]) -> bool:
        found = _outcome(lambda: list(self.opened(path)))
        return not isinstance(found, CorpusError) and alike(rows, found)

    def _names_a_file(self, law: str, what: str, error: CorpusError, folder: Path) -> None:
        names = {path.name for path in folder.rglob("*")} | set(self._gone(folder))
        if error.file is None or os.path.basename(error.file) not in names:  # noqa: PTH119  as the error has it
            self.broken(law, f"{what}: the error names no file: {error!r}")

    @staticmethod
    def _gone(folder: Path) -> Iterator[str]:
        note = folder.parent / "gone"
        if note.exists():
            yield from note.read_text().splitlines()

    def _edits(self, kinds: Iterable[str] = ()) -> Iterator[tuple[str, int, list[Path], list[Any]]]:
        """Give for each kind of edit, and each file that `write` makes, fresh ones: (kind, number of file, …)."""
        with self.files(COUNT) as (paths, _):
            count = len(data_files(paths[0].parent))
        for kind in kinds or _EDITS:
            for number in range(count):
                with self.files(COUNT) as (paths, rows):
                    yield kind, number, paths, rows

    def _edit(self, kind: str, file: Path, beside: Path) -> None:
        """Do something to a file. beside: a folder for what is needed to do it."""
        other = self.made(beside / "other", [*self.rows(COUNT, 1)[1:], *self.rows(1, 1)])  # the same rows, turned
        twin = other.parent / file.name
        if not twin.exists():  # names may hang on what is in the files
            twin = data_files(other.parent)[0]
        (beside / "gone").write_text(file.name)
        _EDITS[kind](file, twin)


def _in_place(file: Path, twin: Path) -> None:
    times = file.stat()
    with file.open("r+b") as target:
        target.write(twin.read_bytes())
        target.truncate()
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _append(file: Path, twin: Path) -> None:
    with file.open("ab") as target:
        target.write(twin.read_bytes())


def _cut(file: Path, _: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _replace(file: Path, twin: Path) -> None:
    os.replace(twin, file)  # noqa: PTH105  the call itself


def _delete(file: Path, _: Path) -> None:
    file.unlink()


def _touch(file: Path, _: Path) -> None:
    os.utime(file, ns=(1, 1))


_EDITS: dict[str, Callable[[Path, Path], None]] = {
    "overwritten in place with its old times": _in_place,
    "appended to": _append,
    "cut in half": _cut,
    "replaced": _replace,
    "deleted": _delete,
    "touched": _touch,
}


def _outcome(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or the CorpusError that it raised."""
    try:
        return call()
    except CorpusError as error:
        return error
