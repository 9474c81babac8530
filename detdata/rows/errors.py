"""The one error of this package: a table that cannot be read, or not as rows of one kind."""

from __future__ import annotations

from detdata.checks import visible
from detdata.errors import DetdataError


class RowsError(DetdataError, ValueError):
    """A table whose rows cannot be hashed.

    path: the file, by the name it was given under, or None. reason: what is wrong with it and how to go on.

    >>> str(RowsError("a.csv", "has no header line"))
    'a.csv: has no header line'
    """

    def __init__(self, path: str | None, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(visible(reason if path is None else f"{path}: {reason}"))

    def __reduce__(self) -> tuple[type[RowsError], tuple[str | None, str]]:
        return (RowsError, (self.path, self.reason))
