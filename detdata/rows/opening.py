"""Files opened for reading, whatever bytes their names are made of, and unpacked where their names say so."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def open_file(path: str) -> Any:
    """Return a file to read at any place. pyarrow takes a name that is no UTF-8 as bytes alone."""
    return pa.OSFile(os.fsencode(path))


def open_input(path: str, name: str) -> Any:
    """Return a file to read from its start to its end, unpacked if its name ends in .gz or .zst."""
    ending = next((ending for ending in _COMPRESSIONS if name.lower().endswith(ending)), None)
    source = open_file(path)
    return source if ending is None else pa.CompressedInputStream(source, _COMPRESSIONS[ending])
