"""A checkpoint that was read: what its members are called, and their content in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detdata.checkpoint.files import read_bounded
from detdata.checkpoint.manifest import Manifest
from detdata.checkpoint.meta import FORMAT as META_FORMAT
from detdata.checkpoint.tensors import Unreadable, read_tree
from detdata.progress import Progress

PROGRESS_FORMAT = "detdata.progress/1"
DATA_FORMAT = "detdata.data/1"
MAX_JSON_BYTES = 1 << 28
REQUIRED = {
    "model.pt": "the model",
    "progress.json": "where training stood",
    "data.json": "the data order",
    "meta.json": "what the run was",
}


def rng_name(rank: int) -> str:
    """Return the name of the file with the random states of `rank`."""
    return f"rng_rank{rank:05d}.pt"


@dataclass(frozen=True, slots=True)
class Saved:
    """A whole checkpoint in memory (tensors on the CPU): trees by file name, and the three JSON records."""

    path: Path
    manifest: Manifest
    trees: Mapping[str, Any]
    progress: Progress
    data: Mapping[str, Any]
    meta: Mapping[str, Any]


def read(path: Path, manifest: Manifest, rank: int) -> Saved:
    """Load every part that `rank` needs; runs no code from the files. Raises Unreadable, OSError."""
    wanted = [name for name in manifest.files if name.endswith(".pt") and not name.startswith("rng_rank")]
    wanted += [name for name in [rng_name(rank), rng_name(0)] if name in manifest.files][:1]
    trees = {name: read_tree(path / name) for name in wanted}
    records = {}
    for name, format in (("progress", PROGRESS_FORMAT), ("data", DATA_FORMAT), ("meta", META_FORMAT)):
        try:
            record = json.loads(read_bounded(path / f"{name}.json", MAX_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"{name}.json is no JSON: {error}") from error
        if not isinstance(record, dict) or record.pop("format", None) != format:
            raise Unreadable(f"{name}.json is not of the format {format!r}")
        records[name] = record
    try:
        progress = Progress.from_dict(records["progress"])
    except (TypeError, ValueError) as error:
        raise Unreadable(f"progress.json: {error}") from error
    return Saved(path, manifest, trees, progress, records["data"], records["meta"])
