"""A checkpoint that was read: what its members are called, and their content in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detdata.checkpoint.files import hash_file
from detdata.checkpoint.manifest import Manifest
from detdata.checkpoint.memory import Held, hold
from detdata.checkpoint.meta import FORMAT as META_FORMAT
from detdata.checkpoint.tensors import Unreadable, load_tree
from detdata.checkpoint.verify import compare_records, find_problems, require
from detdata.progress import Progress

PROGRESS_FORMAT = "detdata.progress/1"
DATA_FORMAT = "detdata.data/1"
RECORDS = {"progress.json": PROGRESS_FORMAT, "data.json": DATA_FORMAT, "meta.json": META_FORMAT}
MAX_JSON_BYTES = 1 << 28
_OF_A_RANK = re.compile(r"_rank[0-9]{5,}\.pt$")
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


class Damaged(Exception):
    """A folder that is not what was written. problems: everything that is wrong with it, one line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read(path: Path, manifest: Manifest, rank: int) -> Saved:
    """Read every file once, verify every byte, and load the parts that `rank` needs; runs no code from the files.

    Nothing is loaded before all is verified, and what was verified is what is loaded. Holds one copy of the parts.
    Raises Damaged, Unreadable, OSError, MemoryError.
    """
    wanted = [name for name in manifest.files if name.endswith(".pt") and not _OF_A_RANK.search(name)]
    wanted += [name for name in manifest.files if name.endswith(f"_rank{rank:05d}.pt")]
    if rng_name(rank) not in wanted and rng_name(0) in manifest.files:
        wanted.append(rng_name(0))  # what this rank's states are derived from
    held = _verified(path, manifest, {*wanted, *RECORDS})
    records = {}
    for name, format in RECORDS.items():
        try:
            record = json.loads(held.pop(name).bytes())
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"{name} is no JSON: {error}") from error
        if not isinstance(record, dict) or record.pop("format", None) != format:
            raise Unreadable(f"{name} is not of the format {format!r}")
        records[name.removesuffix(".json")] = record
    trees = {name: load_tree(name, held.pop(name)) for name in wanted}
    try:
        progress = Progress.from_dict(records["progress"])
    except (TypeError, ValueError) as error:
        raise Unreadable(f"progress.json: {error}") from error
    return Saved(path, manifest, trees, progress, records["data"], records["meta"])


def _verified(path: Path, manifest: Manifest, wanted: Collection[str]) -> dict[str, Held]:
    """Return the `wanted` files in memory, every file of the folder being what was written. Raises Damaged, OSError."""
    problems = require(manifest, REQUIRED) or find_problems(path, manifest, checksums=False)
    held = {}
    for name, expected in manifest.files.items():
        if problems:
            break
        if name in RECORDS and expected.size > MAX_JSON_BYTES:
            problems = [f"{name} has {expected.size} bytes, more than the {MAX_JSON_BYTES} that are read"]
        elif name in wanted:
            held[name] = hold(path / name)
            problems = compare_records(name, held[name].record, expected)
        else:
            problems = compare_records(name, hash_file(path / name), expected)
    if problems:
        held.clear()  # all that is wrong is to be told, and takes no memory
        missing = require(manifest, REQUIRED)
        raise Damaged(tuple((missing + find_problems(path, manifest)) or problems))
    return held
