"""Folders that `datasets` made by `Dataset.save_to_disk`: which of the files in them are the data, and in what order.

Other files of Arrow lie there too, such as what `map` keeps: only those that state.json lists are rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from detdata.checks import brief
from detdata.corpora.errors import CorpusError, CorpusUnreadable
from detdata.corpora.files import DataFile

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_MOST_BYTES = 16 << 20  # of a file that lists others
_SHOWN = 10


def saved_files(files: Mapping[str, DataFile]) -> list[DataFile] | None:
    """Return the data files of a saved dataset, in the order of rows; None for a folder that is none.

    files: all that lie below the folder, by their names. Raises CorpusError for several datasets in one folder, for
    rows in another order than that of the files, and for names that are not of files in the folder itself.

    >>> saved_files({}) is None
    True
    """
    folder = _top(list(files))
    if folder is None:
        return None
    splits = _listed(files.get(folder + _SPLITS), "splits")
    if splits is not None:
        shown = ", ".join(brief(name) for name in splits[:_SHOWN])
        raise CorpusError(
            folder, f"holds a dataset for each of its splits ({shown}): open one of them, the folder of its name there"
        )
    state = files.get(folder + _STATE)
    listed = _listed(state, "_data_files")
    if state is None or listed is None:
        return None
    if _listed(state, "_indices_data_files"):
        raise CorpusError(
            state.name,
            "says that rows come in an order of their own (_indices_data_files), as after select() or shuffle(); write "
            "them in that order: datasets.load_from_disk(folder).flatten_indices().save_to_disk(new_folder)",
        )
    if not listed:
        raise CorpusError(state.name, "lists no data file")
    names = [_name(state.name, entry) for entry in listed]
    for name in names:
        if folder + name not in files:
            raise CorpusUnreadable(state.name, f"lists {name!r}, and there is no such file beside it")
    return [files[folder + name] for name in names]


def _top(names: list[str]) -> str | None:
    """Return the folder, with its separator, of a state.json or dataset_dict.json; all files must lie below it."""
    for name in sorted(names, key=len):
        start = max(name.rfind("/"), name.rfind(os.sep)) + 1
        if name[start:] in {_STATE, _SPLITS} and all(other.startswith(name[:start]) for other in names):
            return name[:start]
    return None


def _name(state: str, entry: Any) -> str:
    name = entry.get("filename") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name in {"", ".", ".."} or set(name) & set("/\\:\0"):
        raise CorpusError(state, f"lists {brief(entry)}, which is no name of a file in its folder")
    return name


def _listed(file: DataFile | None, key: str) -> list[Any] | None:
    """Return the list under a key, or None if it is not there."""
    if file is None:
        return None
    size = file.identity().size
    if size > _MOST_BYTES:
        raise CorpusError(file.name, f"has {size} bytes, and {_MOST_BYTES} are read of a file that lists others")
    try:
        found = json.loads(file.read(0, size))
    except (ValueError, RecursionError) as error:
        raise CorpusError(file.name, f"is no JSON: {error}") from error
    listed = found.get(key) if isinstance(found, dict) else None
    if listed is not None and not isinstance(listed, list):
        raise CorpusError(file.name, f"must have a list under {key!r}, and has {brief(listed)}")
    return listed
