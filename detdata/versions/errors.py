"""What goes wrong between a dataset and its version, apart from wrong arguments and unknown formats.

DetdataError
├── DatasetError (OSError)      data that cannot be listed or read as it lies there; names the file and the reason
└── MissingExtra (ImportError)  an optional package that is needed for what was asked

Wrong arguments raise the errors of detdata.errors, as everywhere.
"""

from __future__ import annotations

from detdata.errors import DetdataError
from detdata.versions.names import printable


class DatasetError(DetdataError, OSError):
    """Data that cannot be listed or read. Nothing has been left out in silence: there is no result.

    path: the file or folder, as listed or as given. reason: what is wrong with it and how to go on.
    others: how many more paths had trouble of their own, of any kind.
    """

    def __init__(self, path: str, reason: str, others: int = 0) -> None:
        self.path = path
        self.reason = reason
        self.others = others
        more = f" (and {others} more with trouble of their own)" if others else ""
        super().__init__(f"{printable(path)}: {reason}{more}")

    def __reduce__(self) -> tuple[type[DatasetError], tuple[str, str, int]]:
        return (DatasetError, (self.path, self.reason, self.others))


class MissingExtra(DetdataError, ImportError):
    """A package that is not installed; the message says what for and how to install it."""

    def __init__(self, what: str, extra: str) -> None:
        self.what = what
        self.extra = extra
        super().__init__(f"{what}: pip install 'detdata[{extra}]'")

    def __reduce__(self) -> tuple[type[MissingExtra], tuple[str, str]]:
        return (MissingExtra, (self.what, self.extra))
