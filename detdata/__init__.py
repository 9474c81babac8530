"""Exact data order for training: which samples a global step sees is arithmetic on (seed, epoch, step).

Orders and plans need NumPy and xxhash only; the names that need torch are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from detdata.errors import (
    CheckpointBroken,
    CheckpointMismatch,
    DetdataError,
    Difference,
    StateMismatch,
    UnknownFormat,
)
from detdata.keys import derive_seed, sample_rng
from detdata.orders import BlockShuffle, Concat, Order, Sequential, Shuffle, Subset, TorchShuffle
from detdata.plans import Batch, Plan
from detdata.progress import Progress
from detdata.records import from_spec, register_format
from detdata.topology import Topology

if TYPE_CHECKING:
    from detdata.checkpoint import Checkpointer, SavePolicy, list_checkpoints, verify_checkpoint
    from detdata.loader import Loader
    from detdata.samplers import BatchSampler, DistributedSampler
    from detdata.seeding import current_sample, worker_init_fn

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchSampler",
    "BlockShuffle",
    "CheckpointBroken",
    "CheckpointMismatch",
    "Checkpointer",
    "Concat",
    "DetdataError",
    "Difference",
    "DistributedSampler",
    "Loader",
    "Order",
    "Plan",
    "Progress",
    "SavePolicy",
    "Sequential",
    "Shuffle",
    "StateMismatch",
    "Subset",
    "Topology",
    "TorchShuffle",
    "UnknownFormat",
    "current_sample",
    "derive_seed",
    "from_spec",
    "list_checkpoints",
    "register_format",
    "sample_rng",
    "verify_checkpoint",
    "worker_init_fn",
]

_NEEDS_TORCH = {
    "BatchSampler": "detdata.samplers",
    "Checkpointer": "detdata.checkpoint",
    "DistributedSampler": "detdata.samplers",
    "Loader": "detdata.loader",
    "SavePolicy": "detdata.checkpoint",
    "current_sample": "detdata.seeding",
    "list_checkpoints": "detdata.checkpoint",
    "verify_checkpoint": "detdata.checkpoint",
    "worker_init_fn": "detdata.seeding",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module 'detdata' has no attribute {name!r}")
    try:
        value = getattr(import_module(_NEEDS_TORCH[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torch":
            raise
        raise ImportError(f"detdata.{name} needs torch: pip install 'detdata[torch]'", name="torch") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
