"""The parts of a checkpoint for who only looks at them: one at a time, verified, tensors whole, no code run."""

from __future__ import annotations

from typing import Any

from detdata.checkpoint.files import hash_file
from detdata.checkpoint.inspection import Opened, read_record
from detdata.checkpoint.members import RECORDS, REQUIRED, rank_of
from detdata.checkpoint.memory import hold
from detdata.checkpoint.sharded import INDEX, Index, pieces_of, place, ranks_needed, shards_name, wanted_boxes
from detdata.checkpoint.tensors import Unreadable, load_tree
from detdata.checkpoint.verify import compare_records, find_problems, require
from detdata.errors import CheckpointBroken, UnknownFormat

_BAD_TREE = (KeyError, TypeError, ValueError, AttributeError, RuntimeError)  # RuntimeError: torch's word for all


class Parts:
    """Reads the files of one checkpoint. names: the files of tensors, in order, without those that hold pieces only.

    A part that lies in pieces on several ranks is put together whole; each file of pieces is read once for each such
    part. Holds one part at a time, and one file of pieces. Every method raises CheckpointBroken, saying all that is
    wrong, and OSError.
    """

    def __init__(self, opened: Opened) -> None:
        self.path, self.manifest = opened.path, opened.manifest
        files = self.manifest.files
        if require(self.manifest, REQUIRED) or find_problems(self.path, self.manifest, checksums=False):
            raise self._broken("it is not whole")
        self._unread = set(files)
        self.index: Index | None = None
        if INDEX in files:
            try:
                self.index = Index.from_record(self.record(INDEX))
            except UnknownFormat as error:
                raise self._broken(str(error)) from error
        self.names = sorted(name for name in files if name.endswith(".pt") and not _is_pieces(name))
        self.others = sorted(set(files) - {*self.names, *RECORDS, INDEX} - {name for name in files if _is_pieces(name)})

    def record(self, name: str) -> dict[str, Any]:
        """Return the JSON object in `name`."""
        record = read_record(self.path, self.manifest, name)
        self._unread.discard(name)
        return record

    def digests(self, name: str) -> tuple[str, ...]:
        """Return digests on which the content of a part depends, and on nothing else."""
        files = self.manifest.files
        pieces = () if self.index is None else tuple(sorted(one for one in files if _is_pieces(one)))
        return (files[name].digest, *(f"{one} {files[one].digest}" for one in pieces))

    def check(self, name: str) -> None:
        """Read a file and compare it with what was written, keeping nothing."""
        problems = compare_records(
            name, hash_file(self.manifest.members_in(self.path) / name), self.manifest.files[name]
        )
        if problems:
            raise self._broken(problems[0])
        self._unread.discard(name)

    def finish(self) -> None:
        """Check what has not been read yet: after this every byte has been."""
        for name in sorted(self._unread):
            self.check(name)

    def tree(self, name: str) -> Any:
        """Return the tree in a part, every tensor whole and on the CPU."""
        tree = self._load(name)
        if self.index is None or rank_of(name) is not None:
            return tree
        try:
            found: list[Any] = []
            for rank in ranks_needed(wanted_boxes({name: tree}, None), self.index):
                pieces = self._load(shards_name(rank))
                found += [pieces | {"pieces": [row for row in pieces["pieces"] if row[0].startswith(f"{name}#")]}]
            return place(name, tree, None, pieces_of(found))
        except UnknownFormat as error:
            raise self._broken(str(error)) from error
        except _BAD_TREE as error:
            raise self._broken(f"{name}: its pieces do not fit: {type(error).__name__}: {error}") from error

    def _load(self, name: str) -> Any:
        if name not in self.manifest.files:
            raise self._broken(f"{name} (pieces of tensors) is not in the manifest")
        held = hold(self.manifest.members_in(self.path) / name)
        problems = compare_records(name, held.record, self.manifest.files[name])
        if problems:
            del held  # the report needs no memory
            raise self._broken(problems[0])
        self._unread.discard(name)
        try:
            return load_tree(name, held)
        except Unreadable as error:
            raise self._broken(str(error)) from error

    def _broken(self, problem: str) -> CheckpointBroken:
        all_of_them = require(self.manifest, REQUIRED) + find_problems(self.path, self.manifest)
        return CheckpointBroken(str(self.path), {str(self.path): all_of_them or [problem]})


def _is_pieces(name: str) -> bool:
    found = rank_of(name)
    return found is not None and found[0] == "shards"
