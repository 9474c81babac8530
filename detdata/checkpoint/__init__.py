"""Checkpoints: the whole state of a run, published at once, verified byte for byte, compared, then loaded.

- files, manifest, verify, store: the folder protocol; no torch
- trees, rng, optimizer, schedulers: objects <-> plain trees that load without running code
- run, environment, meta, parts: what a run consists of, what is recorded of it
- selection, compare, checkpointer: which one, does it fit, go
"""

from detdata.checkpoint.checkpointer import Checkpointer
from detdata.checkpoint.errors import CheckpointNotFound, CheckpointNotLoaded, CheckpointNotSaved
from detdata.checkpoint.listing import CheckpointEntry, list_checkpoints
from detdata.checkpoint.policy import SavePolicy
from detdata.checkpoint.verify import Report, verify_checkpoint

__all__ = [
    "CheckpointEntry",
    "CheckpointNotFound",
    "CheckpointNotLoaded",
    "CheckpointNotSaved",
    "Checkpointer",
    "Report",
    "SavePolicy",
    "list_checkpoints",
    "verify_checkpoint",
]
