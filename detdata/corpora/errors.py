"""What goes wrong with a corpus: always with the file, and the block and row where they are known.

CorpusError (DetdataError, ValueError)   data that are broken, incomplete or not what was asked for
└── CorpusUnreadable (OSError)           a file that is missing, cannot be read, or is not the one that it was
"""

from __future__ import annotations

from detdata.checks import visible
from detdata.errors import DetdataError


class CorpusError(DetdataError, ValueError):
    """Data that cannot be given as asked. No row has been left out or guessed.

    file: its name, or None. reason: what is wrong and how to go on. block: of the file, from 0, or None. row: in its
    block, from 0, or None.

    >>> str(CorpusError("a.jsonl", "is no JSON", block=3, row=7))
    'a.jsonl, block 3, row 7 of the block: is no JSON'
    """

    def __init__(self, file: str | None, reason: str, *, block: int | None = None, row: int | None = None) -> None:
        self.file = file
        self.reason = reason
        self.block = block
        self.row = row
        where = [] if file is None else [visible(file)]
        where += [] if block is None else [f"block {block}"]
        where += [] if row is None else [f"row {row}" if block is None else f"row {row} of the block"]
        super().__init__(f"{', '.join(where)}: {visible(reason)}" if where else visible(reason))

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _rebuild, (type(self), self.file, self.reason, self.block, self.row)


class CorpusUnreadable(CorpusError, OSError):
    """A file of a corpus that is missing, that cannot be read, or that has changed since the corpus was opened."""


def _rebuild(kind: type[CorpusError], file: str | None, reason: str, block: int | None, row: int | None) -> CorpusError:
    return kind(file, reason, block=block, row=row)


class CorpusWarning(UserWarning):
    """Something about a corpus that costs time or space, with the ways out."""
