"""Checkpoints: the whole state of a run, published at once, verified byte for byte, compared, then loaded.

- files, members, manifest, lock, verify, store, listing, inspection: the folder protocol; no torch
- remote_path, remote_file, remote, place: the same in an object store, and which of the two it is
- trees, containers, rng, optimizer, schedulers, extras, gradients: objects <-> plain trees that load without code
- sharded, boxes: tensors that lie on several ranks, in pieces
- tensors, placed, memory, hashing_behind, saved, contents: from a file, hashed on the way, to a checked tree in memory
- run, environment, meta, parts, cursor, probe: what a run consists of, what is recorded of it
- group, agreement, writing, saver, snapshot: all ranks write one checkpoint, at once or behind the training
- deepspeed: an engine that saves and loads itself, inside the same protocol
- policy, pace, signals, schedule, keeping: when, and what stays
- selection, compare, resuming, checkpointer: which one, does it fit, go
- reading, tensor_difference, tree_difference, difference, tensor_table: two checkpoints beside each other

Each public name is imported when it is first used: who lists or verifies checkpoints doesn't wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; `_HOME` below does the same at run time
    from detdata.checkpoint.checkpointer import Checkpointer
    from detdata.checkpoint.deepspeed import DeepSpeedModel, lay_out_deepspeed
    from detdata.checkpoint.difference import CheckpointDiff, diff_checkpoints
    from detdata.checkpoint.errors import (
        CheckpointNotFound,
        CheckpointNotLoaded,
        CheckpointNotSaved,
        Preempted,
        ProbeFailed,
        RankMissing,
    )
    from detdata.checkpoint.listing import CheckpointEntry, list_checkpoints
    from detdata.checkpoint.policy import SavePolicy
    from detdata.checkpoint.saver import SaveReport
    from detdata.checkpoint.verify import Report, verify_checkpoint

__all__ = [
    "CheckpointDiff",
    "CheckpointEntry",
    "CheckpointNotFound",
    "CheckpointNotLoaded",
    "CheckpointNotSaved",
    "Checkpointer",
    "DeepSpeedModel",
    "Preempted",
    "ProbeFailed",
    "RankMissing",
    "Report",
    "SavePolicy",
    "SaveReport",
    "diff_checkpoints",
    "lay_out_deepspeed",
    "list_checkpoints",
    "verify_checkpoint",
]

_HOME = {
    "CheckpointDiff": "difference",
    "CheckpointEntry": "listing",
    "CheckpointNotFound": "errors",
    "CheckpointNotLoaded": "errors",
    "CheckpointNotSaved": "errors",
    "Checkpointer": "checkpointer",
    "DeepSpeedModel": "deepspeed",
    "Preempted": "errors",
    "ProbeFailed": "errors",
    "RankMissing": "errors",
    "Report": "verify",
    "SavePolicy": "policy",
    "SaveReport": "saver",
    "diff_checkpoints": "difference",
    "lay_out_deepspeed": "deepspeed",
    "list_checkpoints": "listing",
    "verify_checkpoint": "verify",
}

if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
