"""What tells that files are the same as before: five integers a file, side by side, and no object for each.

Without NumPy, whose import takes longer than all of this does for 400,000 files.
"""

from __future__ import annotations

import operator
import struct
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from detdata.versions.columns import little_endian
from detdata.versions.files import FileStat, wait_ns

_COLUMNS = len(FileStat._fields)
_WIDTH = 8 * _COLUMNS  # bytes of a row
_ROW = struct.Struct(f"={_COLUMNS}q")

values_of = operator.attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")  # of an os.stat_result


class Stats:
    """A table of FileStat, int64[n, 5], in the order of a listing's paths.

    values: one row after another; it is kept, not copied. Memory: 40 bytes a file.

    >>> stats = Stats([1, 2, 30, 4, 5, 1, 3, 40, 5, 4])
    >>> len(stats), stats.sizes(), stats[1].inode
    (2, [30, 40], 3)
    """

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._values = values if isinstance(values, array) else array("q", values)

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> Stats:
        """Return the table that `to_bytes` wrote.

        >>> Stats.from_bytes(Stats([1, 2, 3, 4, 5]).to_bytes())[0]
        FileStat(dev=1, inode=2, size=3, mtime_ns=4, ctime_ns=5)
        """
        values = array("q")
        values.frombytes(data)
        return Stats(little_endian(values))

    def to_bytes(self) -> bytes:
        """Return all values as little-endian int64.

        >>> Stats([1, 2, 3, 4, 5]).to_bytes()[:9].hex()
        '010000000000000002'
        """
        return little_endian(self._values).tobytes()

    def __len__(self) -> int:
        return len(self._values) // _COLUMNS

    def __getitem__(self, place: int) -> FileStat:
        if not 0 <= place < len(self):
            raise IndexError(place)
        return FileStat(*self._values[place * _COLUMNS : (place + 1) * _COLUMNS])

    def __iter__(self) -> Iterator[FileStat]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Stats) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def rows(self, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the values of the files at these places, quicker than as FileStat.

        >>> list(Stats([1, 2, 3, 4, 5]).rows([0]))
        [(1, 2, 3, 4, 5)]
        """
        return _ROW.iter_unpack(self.take(places)._values.tobytes())

    def sizes(self) -> list[int]:
        """Return the size of each file, in bytes."""
        return self._values[2::_COLUMNS].tolist()

    def latest(self) -> list[int]:
        """Return the later of mtime_ns and ctime_ns of each file."""
        return list(map(max, self._values[3::_COLUMNS], self._values[4::_COLUMNS]))

    def settle(self) -> None:
        """Return once no file has been written to in the last 20 ms: then no write during its reading is hidden.

        Some 0.1 µs a file. See `wait_ns`.

        >>> Stats([1, 2, 3, 4, 5]).settle()
        """
        now = time.time_ns()
        columns = self._values[3::_COLUMNS], self._values[4::_COLUMNS]
        latest = max(max(column, default=0) for column in columns)
        if latest > now:
            latest = max((value for column in columns for value in column if value <= now), default=0)
        time.sleep(wait_ns(latest) / 1e9)

    def take(self, places: Sequence[int]) -> Stats:
        """Return the table of the files at these places, in their order.

        Some 0.1 µs a file where most places follow one on the other, as those of the files of a folder do; else 0.3 µs.

        >>> Stats([1, 2, 30, 4, 5, 1, 3, 40, 5, 4]).take([1, 0]).sizes()
        [40, 30]
        """
        if not places:
            return Stats()
        starts = [at for at, (one, other) in enumerate(pairwise(places), 1) if other - one != 1]
        data = memoryview(self._values).cast("B")
        runs = zip([0, *starts], [*starts, len(places)], strict=True)
        firsts = [(places[start] * _WIDTH, (stop - start) * _WIDTH) for start, stop in runs]
        return Stats(array("q", b"".join([data[first : first + size] for first, size in firsts])))

    def same(self, other: Stats) -> list[bool]:
        """Return of each place whether both tables, of one length, have the same values there.

        >>> Stats([1, 2, 3, 4, 5]).same(Stats([1, 2, 3, 4, 6]))
        [False]
        """
        if self._values == other._values:
            return [True] * len(self)
        mine, its = self._values.tobytes(), other._values.tobytes()
        return [mine[at : at + _WIDTH] == its[at : at + _WIDTH] for at in range(0, len(mine), _WIDTH)]
