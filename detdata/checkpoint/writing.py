"""One checkpoint written by all ranks of a run: each its parts, published by rank 0 once all of them are on disk.

    rank 0 opens a temporary folder · every rank writes and syncs its files into it · rank 0 is told names, sizes and
    digests · rank 0 adds meta.json, publishes · every rank is told how it went

Whatever fails, on whichever rank, fails on all: none goes on in the belief that a checkpoint is there. A rank that dies
leaves a temporary folder that nobody looks at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

from detdata.checkpoint import place
from detdata.checkpoint.deepspeed import DeepSpeedModel
from detdata.checkpoint.environment import host
from detdata.checkpoint.errors import CheckpointNotSaved
from detdata.checkpoint.files import FileRecord, write_file
from detdata.checkpoint.group import Group
from detdata.checkpoint.remote import RemoteStage
from detdata.checkpoint.remote_path import AnyPath
from detdata.checkpoint.sharded import INDEX, Index
from detdata.checkpoint.store import Stage
from detdata.checkpoint.tensors import tree_writer

_AnyStage: TypeAlias = Stage | RemoteStage


@dataclass(frozen=True, slots=True)
class Content:
    """What this rank puts into a checkpoint.

    trees: file name -> plain tree. records: file name -> plain JSON, and meta: meta.json; rank 0's count. engine: what
    writes files itself, on every rank. index: where the pieces of sharded tensors lie; None if there are none.
    """

    trees: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]
    meta: Mapping[str, Any]
    engine: DeepSpeedModel | None = None
    index: Index | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A published checkpoint: its folder, and the bytes in it."""

    path: AnyPath
    size_bytes: int


@dataclass(slots=True)
class Writer:
    """Writes checkpoints of a root, one after the other; holds the root's lock from the first one on (rank 0)."""

    root: AnyPath
    group: Group
    locked: bool = field(default=False, init=False)
    _error: Exception | None = field(default=None, init=False, repr=False)  # what went wrong on this rank

    def write(self, content: Content, kind: str, step: int) -> Written:
        """Write and publish; on disk when this returns. Collective: every rank calls it with the same kind and step.

        Raises CheckpointNotSaved, on every rank, saying which rank failed and why; RankMissing.
        """
        doing = f"saving global step {step}"
        self._error = None
        stage: _AnyStage | None = None
        try:
            stage, opened = self._open(kind, step)
            opened = self.group.broadcast(opened, doing)
            self._raise_if(step, [opened["error"]])
            mine = self._write_own(stage, opened["folder"], content)
            replies = self.group.all_gather(mine, doing)
            self._raise_if(step, [reply["error"] for reply in replies])
            done = self.group.broadcast(self._publish(stage, content, replies, kind, step), doing)
            self._raise_if(step, [done["error"]])
        finally:
            if stage is not None:
                stage.abandon()  # nothing is there any more once it is published
        return Written(self.root / done["name"], done["size"])

    def close(self) -> None:
        """Let other processes save to the root."""
        if self.locked:
            place.release(self.root)
            self.locked = False

    def _open(self, kind: str, step: int) -> tuple[_AnyStage | None, dict[str, Any]]:
        if self.group.rank:
            return None, {}
        try:
            if not self.locked:
                place.acquire(self.root)
                self.locked = True
            stage = place.open_stage(self.root, kind, step)
        except Exception as error:  # noqa: BLE001 - as above
            return None, {**self._failed(error), "folder": None}
        return stage, {"error": None, "folder": stage.place}

    def _write_own(self, stage: _AnyStage | None, folder: str, content: Content) -> dict[str, Any]:
        written: dict[str, FileRecord] = {}
        try:
            if content.engine is not None:  # first: its ranks wait for each other
                written |= content.engine.save(self.root / folder, self.group.rank, self.group.size)
            for name, tree in content.trees.items():
                if stage is None:
                    written[name] = write_file(self.root / folder / name, tree_writer(tree))
                else:
                    stage.write(name, tree_writer(tree))
            if stage is not None:
                for name, record in content.records.items():
                    stage.write(name, _json_writer(record))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait for this one
            return self._failed(error)
        files = {name: record.to_dict() for name, record in written.items()}
        return {"error": None, "files": files, "host": host()["host"]}

    def _publish(
        self, stage: _AnyStage | None, content: Content, replies: list[dict[str, Any]], kind: str, step: int
    ) -> dict[str, Any]:
        if stage is None:
            return {}
        try:
            if content.engine is not None:
                known = {name for reply in replies for name in reply["files"]}
                for name, file in content.engine.settle(stage.folder, known).items():
                    stage.add(name, file)
            for rank, reply in enumerate(replies):
                for name, record in reply["files"].items():
                    file = FileRecord(**record)
                    if stage.has(name):
                        return {"error": f"{name} was written by rank {rank} and by another one"}
                    if not stage.holds(name, file.size):
                        return {
                            "error": f"{name}, which rank {rank} wrote on {reply['host']}, is not here on "
                            f"{host()['host']}: the root must be on a file system that all ranks share"
                        }
                    stage.add(name, file)
            if content.index is not None:
                stage.write(INDEX, _json_writer(content.index.to_record(), indent=None))
            stage.write("meta.json", _json_writer(content.meta))
            path = stage.publish(kind, step)
        except Exception as error:  # noqa: BLE001 - as above
            return self._failed(error)
        return {"error": None, "name": path.name, "size": stage.size_bytes}

    def _raise_if(self, step: int, errors: list[str | None]) -> None:
        failed = [(rank, error) for rank, error in enumerate(errors) if error is not None]
        if not failed:
            return
        rank, error = failed[0]
        where = f" (rank {rank})" if self.group.size > 1 else ""
        raise CheckpointNotSaved(
            f"the checkpoint of global step {step} was not saved to {self.root}{where}: {error}. "
            "Checkpoints published before are untouched"
        ) from self._error

    def _failed(self, error: Exception) -> dict[str, Any]:
        self._error = error
        return {"error": str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"}


def _json_writer(record: Mapping[str, Any], indent: int | None = 1) -> Callable[[BinaryIO], object]:
    """Return what writes `record` to an open file as JSON for people to read, or with indent=None for none."""
    text = json.dumps(record, sort_keys=True, indent=indent, allow_nan=False) + "\n"
    return lambda file: file.write(text.encode("ascii"))
