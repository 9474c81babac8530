"""What goes wrong between a dataset and its version, apart from wrong arguments and unknown formats.

DatasetError (a DetdataError and OSError) is for data that cannot be listed or read as it lies there. Wrong arguments
and missing packages raise the errors of detdata.errors, as everywhere.
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
