"""The folder that a demonstration fills: its own and known by a marker, so that nobody else's is ever emptied."""

from __future__ import annotations

import shutil
from pathlib import Path

from detdata.errors import DetdataError

MARKER = ".detdata-demo"
CORPUS = "corpus"  # where the passages lie as files, if they are asked for
_OURS = ("settings.json", "table.json", "curves.png", "curves.svg", "runs", CORPUS)


class ForeignFolder(DetdataError, FileExistsError):
    """The folder to write into holds something that no demonstration wrote."""


def prepare(path: Path) -> Path:
    """Make `path` a folder without results in it and return it as an absolute path.

    What an earlier demonstration left is removed, file by file that it names; anything else there stays.
    Raises ForeignFolder where something is there that is no folder, or a folder that is neither empty nor marked.
    """
    path = path.absolute()
    if path.exists() and not path.is_dir():
        raise ForeignFolder(f"{path} is not a folder; name another one with --out")
    path.mkdir(parents=True, exist_ok=True)
    marker = path / MARKER
    if not marker.is_file() and any(path.iterdir()):
        raise ForeignFolder(
            f"{path} is not empty and has no file {MARKER}, so no demo wrote it and nothing was touched; "
            "name an empty or new folder with --out"
        )
    marker.write_text("Written by `detdata demo`; the next one may replace what this one wrote.\n", encoding="utf-8")
    for name in _OURS:
        old = path / name
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink(missing_ok=True)
    return path
