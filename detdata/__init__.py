"""Exact data order for training: which samples a global step sees is arithmetic on (seed, epoch, step).

Orders and plans need NumPy and xxhash only; the names that need torch, and those of dataset versions, are imported when
they are first used.
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
    from detdata.versions import (
        DatasetError,
        DatasetWarning,
        HashProgress,
        Manifest,
        Report,
        hash_dataset,
        merge_manifests,
    )

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BatchSampler",
    "BlockShuffle",
    "CheckpointBroken",
    "CheckpointMismatch",
    "Checkpointer",
    "Concat",
    "DatasetError",
    "DatasetWarning",
    "DetdataError",
    "Difference",
    "DistributedSampler",
    "HashProgress",
    "Loader",
    "Manifest",
    "Order",
    "Plan",
    "Progress",
    "Report",
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
    "hash_dataset",
    "list_checkpoints",
    "merge_manifests",
    "register_format",
    "sample_rng",
    "verify_checkpoint",
    "worker_init_fn",
]

_LATER = {
    "BatchSampler": "detdata.samplers",
    "Checkpointer": "detdata.checkpoint",
    "DatasetError": "detdata.versions",
    "DatasetWarning": "detdata.versions",
    "DistributedSampler": "detdata.samplers",
    "HashProgress": "detdata.versions",
    "Loader": "detdata.loader",
    "Manifest": "detdata.versions",
    "Report": "detdata.versions",
    "SavePolicy": "detdata.checkpoint",
    "current_sample": "detdata.seeding",
    "hash_dataset": "detdata.versions",
    "list_checkpoints": "detdata.checkpoint",
    "merge_manifests": "detdata.versions",
    "verify_checkpoint": "detdata.checkpoint",
    "worker_init_fn": "detdata.seeding",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'detdata' has no attribute {name!r}")
    try:
        value = getattr(import_module(_LATER[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "torch":
            raise
        raise ImportError(f"detdata.{name} needs torch: pip install 'detdata[torch]'", name="torch") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
