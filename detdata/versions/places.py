"""Where relative paths start from."""

# ruff: noqa: PTH109, PTH117

from __future__ import annotations

import os

from detdata.versions.errors import DatasetError


def check_current_folder(path: str) -> None:
    """Raise DatasetError if `path` is relative and the current folder is gone: every call would only say "not found".

    A folder that somebody removed stays the current one of the processes in it: it looks empty and has no path.

    >>> check_current_folder("data")
    """
    if os.path.isabs(path):
        return
    try:
        os.getcwd()
    except OSError as error:
        raise DatasetError(
            path, "is relative, and the current folder is gone; cd to one that is there, or give an absolute path"
        ) from error
