"""A checkpoint that was read: what its members are called, and their content in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detdata.checkpoint.files import hash_file
from detdata.checkpoint.gradients import gradients_name
from detdata.checkpoint.manifest import Manifest
from detdata.checkpoint.members import MAX_JSON_BYTES, RECORDS, REQUIRED, rng_name
from detdata.checkpoint.memory import Held, hold
from detdata.checkpoint.remote_path import AnyPath
from detdata.checkpoint.sharded import (
    INDEX,
    Index,
    Like,
    Piece,
    any_sharded,
    narrowed,
    pieces_of,
    place,
    ranks_needed,
    shards_name,
    wanted_boxes,
)
from detdata.checkpoint.tensors import Unreadable, load_tree
from detdata.checkpoint.verify import compare_records, find_problems, require
from detdata.errors import UnknownFormat
from detdata.progress import Progress

_OF_A_RANK = re.compile(r"_rank[0-9]{5,}\.pt$")


@dataclass(frozen=True, slots=True)
class Saved:
    """A whole checkpoint in memory (tensors on the CPU): trees by file name, and the three JSON records."""

    path: AnyPath
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


def read(path: AnyPath, manifest: Manifest, rank: int = 0, *, size: int = 1, like: Like | None = None) -> Saved:
    """Read and verify every file, load the parts that `rank` of `size` needs; runs no code from the files.

    like: says how present tensors are sharded; by default all come whole. Nothing is loaded before it is verified, and
    what was verified is what is loaded. Of the files that only other ranks need, this rank verifies its share.
    Holds one copy of the parts. Raises Damaged, Unreadable, OSError, MemoryError.
    """
    missing = require(manifest, REQUIRED) or find_problems(path, manifest, checksums=False)
    if missing:
        raise Damaged(tuple(require(manifest, REQUIRED) + find_problems(path, manifest)))
    wanted = [name for name in manifest.files if name.endswith(".pt") and not _OF_A_RANK.search(name)]
    wanted += [name for name in (rng_name(rank), gradients_name(rank)) if name in manifest.files]
    if rng_name(rank) not in wanted and rng_name(0) in manifest.files:
        wanted.append(rng_name(0))  # what this rank's states are derived from
    records_here = [name for name in (*RECORDS, INDEX) if name in manifest.files]
    held = _verified(path, manifest, [*wanted, *records_here])
    records = {name: _record(name, held.pop(name)) for name in records_here}
    trees = {name: load_tree(name, held.pop(name)) for name in wanted}
    others = set(manifest.files) - {*wanted, *records_here}
    if INDEX in records or (like is not None and any_sharded(_leaves(trees, like))):
        try:
            trees, used = _placed(path, manifest, trees, records.get(INDEX), like)
        except UnknownFormat as error:
            raise Unreadable(str(error)) from error
        others -= used
    for number, name in enumerate(sorted(others)):
        if number % size == rank:
            problems = compare_records(name, hash_file(manifest.members_in(path) / name), manifest.files[name])
            if problems:
                raise Damaged(tuple(find_problems(path, manifest)) or tuple(problems))
    try:
        progress = Progress.from_dict(records["progress.json"])
    except (TypeError, ValueError) as error:
        raise Unreadable(f"progress.json: {error}") from error
    return Saved(path, manifest, trees, progress, records["data.json"], records["meta.json"])


def _placed(
    path: AnyPath, manifest: Manifest, trees: dict[str, Any], record: Any, like: Like | None
) -> tuple[dict[str, Any], set[str]]:
    """Return the trees with every tensor in its present layout, and the names of the files of pieces that were read."""
    index = Index({}) if record is None else Index.from_record(record)
    wanted = wanted_boxes(trees, like)
    names = [shards_name(rank) for rank in ranks_needed(wanted, index)]
    absent = [f"{name} (pieces of tensors) is not in the manifest" for name in names if name not in manifest.files]
    if absent:
        raise Damaged(tuple(absent))
    pieces: dict[str, list[Piece]] = {}
    for name in names:  # one at a time: another layout needs a little of each of many
        [file] = _verified(path, manifest, [name]).values()
        for key, some in narrowed(pieces_of([load_tree(name, file)]), wanted).items():
            pieces.setdefault(key, []).extend(some)
        del file
    placed = {
        name: tree if _OF_A_RANK.search(name) else place(name, tree, like, pieces) for name, tree in trees.items()
    }
    return placed, set(names)


def _record(name: str, held: Held) -> dict[str, Any]:
    """Return the JSON object in a file, without its format where that is checked here."""
    try:
        record = json.loads(held.bytes())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{name} is no JSON: {error}") from error
    if name == INDEX:
        return record  # type: ignore[no-any-return]  # checked by who reads it
    if not isinstance(record, dict) or record.pop("format", None) != RECORDS[name]:
        raise Unreadable(f"{name} is not of the format {RECORDS[name]!r}")
    return record


def _leaves(trees: Mapping[str, Any], like: Like) -> Iterator[object]:
    """Yield the present tensors that those of the model are to become."""
    for name in trees.get("model.pt", ()):
        yield like("model.pt", (name,))


def _verified(path: AnyPath, manifest: Manifest, names: Sequence[str]) -> dict[str, Held]:
    """Return the files in memory, each being what was written. Raises Damaged with all that is wrong, OSError."""
    held: dict[str, Held] = {}
    for name in names:
        expected = manifest.files[name]
        if name.endswith(".json") and expected.size > MAX_JSON_BYTES:
            raise Damaged((f"{name} has {expected.size} bytes, more than the {MAX_JSON_BYTES} that are read",))
        held[name] = hold(manifest.members_in(path) / name)
        problems = compare_records(name, held[name].record, expected)
        if problems:
            held.clear()  # all that is wrong is to be told, and takes no memory
            raise Damaged(tuple(find_problems(path, manifest)) or tuple(problems))
    return held
