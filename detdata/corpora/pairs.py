"""Two files that are one to a corpus: an index and what it speaks of. A change of either is a change of the pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from detdata.corpora.errors import CorpusUnreadable
from detdata.corpora.files import DataFile, Identity, LocalFile

FRONT = 8  # bytes that say where the second part of a pair begins


@final
@dataclass(frozen=True, slots=True)
class FilePair:
    """A file by the name of its first part: the size of that part (u64le), its bytes, those of the second. Picklable.

    So it can be read, and taken apart again, by whoever knows of one file only.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("a.idx", "a.bin"):
    ...     _ = (folder / name).write_text(name)
    >>> pair = FilePair.of(LocalFile(str(folder / "a.bin")), (".idx", ".bin"))
    >>> pair.name.endswith("a.idx"), pair.identity().size, pair.read(FRONT + 3, 4)
    (True, 18, b'dxa.')
    """

    first: DataFile
    second: DataFile

    @staticmethod
    def of(file: DataFile, endings: tuple[str, str]) -> FilePair:
        """Return the pair that a file belongs to: of the files with its name, but for these endings."""
        if isinstance(file, FilePair):
            return file
        stem = len(file.name)
        for ending in endings:
            if file.name.lower().endswith(ending):
                stem -= len(ending)
                break
        cut = len(file.name) - stem
        own = file.name[stem:].lower()
        first, second = (file if own == ending else _beside(file, cut, ending) for ending in endings)
        return FilePair(first, second)

    @property
    def name(self) -> str:
        """The name of the first part."""
        return self.first.name

    @property
    def path(self) -> str | None:
        """The path of the first part, or None if it does not lie on this machine."""
        return self.first.path

    def identity(self) -> Identity:
        """Return what both parts are now."""
        one, other = self.first.identity(), self.second.identity()
        return Identity(FRONT + one.size + other.size, f"{one.size}+{one.tag}+{other.tag}")

    def read(self, start: int, length: int) -> bytes:
        """Return bytes of the pair. Both parts are opened by that: from then on they are one and the same files."""
        edge = FRONT + self.first.identity().size
        front = (edge - FRONT).to_bytes(FRONT, "little")[start : start + length]
        stop = start + length
        begin, end = min(max(start, FRONT), edge), min(max(stop, FRONT), edge)
        one = self.first.read(begin - FRONT, end - begin)
        begin = max(start, edge)
        return front + one + self.second.read(begin - edge, max(stop, begin) - begin)

    def map(self) -> Any:
        """Raise: two files are no one mapping; each part can be mapped by itself."""
        raise CorpusUnreadable(self.name, "and the file beside it cannot be mapped as one")

    def fresh(self) -> FilePair:
        """Return the same files, not open yet."""
        return FilePair(self.first.fresh(), self.second.fresh())


def parts_of(file: DataFile) -> tuple[DataFile, ...]:
    """Return the files that a file is made of: most are made of themselves."""
    return (file.first, file.second) if isinstance(file, FilePair) else (file,)


def second_of(file: DataFile, first_bytes: int) -> DataFile:
    """Return the second part of what is a pair, or reads like one. first_bytes: size of the first part."""
    return file.second if isinstance(file, FilePair) else _Behind(file, FRONT + first_bytes)


@final
@dataclass(frozen=True, slots=True)
class _Behind:
    """What of a file lies behind its first bytes; can only be read."""

    whole: DataFile
    start: int

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def path(self) -> None:
        return None

    def identity(self) -> Identity:
        return self.whole.identity()

    def read(self, start: int, length: int) -> bytes:
        return self.whole.read(self.start + start, length)

    def map(self) -> Any:
        raise CorpusUnreadable(self.name, "cannot be mapped from its middle on")

    def fresh(self) -> _Behind:
        return _Behind(self.whole.fresh(), self.start)


def pairs_of(files: Sequence[DataFile], endings: tuple[str, str]) -> list[DataFile]:
    """Return the pair of each file, once also where both parts are listed, in the order of the first that is."""
    found: dict[str, DataFile] = {}
    for file in files:
        pair = FilePair.of(file, endings)
        found.setdefault(pair.name, pair)
    return list(found.values())


def _beside(file: DataFile, cut: int, ending: str) -> DataFile:
    name = file.name[: len(file.name) - cut] + ending
    if isinstance(file, LocalFile):
        return LocalFile(file.path[: len(file.path) - cut] + ending, name)
    other: DataFile = file.other(name)  # type: ignore[attr-defined]  # of remote files
    return other
