"""Checkpoints: the whole state of a run, published at once, verified byte for byte, compared, then loaded.

- files, manifest, verify, store: the folder protocol; no torch
- trees, rng, optimizer, schedulers, gradients: objects <-> plain trees that load without running code
- run, environment, meta, parts, cursor, probe: what a run consists of, what is recorded of it
- group, writing, saver, snapshot: all ranks write one checkpoint, at once or behind the training
- policy, pace, signals, schedule: when
- selection, compare, resuming, checkpointer: which one, does it fit, go
"""

from detdata.checkpoint.checkpointer import Checkpointer
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
    "CheckpointEntry",
    "CheckpointNotFound",
    "CheckpointNotLoaded",
    "CheckpointNotSaved",
    "Checkpointer",
    "Preempted",
    "ProbeFailed",
    "RankMissing",
    "Report",
    "SavePolicy",
    "SaveReport",
    "list_checkpoints",
    "verify_checkpoint",
]
