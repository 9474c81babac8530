"""Exact data order for training: which samples a global step sees is arithmetic on (seed, epoch, step).

Each public name is imported when it is first used: `import detdata` takes no time, orders and plans need NumPy and
xxhash only, and nobody who hashes files imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; `_HOME` below does the same at run time
    from detdata.checkpoint import (
        Checkpointer,
        CheckpointNotSaved,
        Preempted,
        SavePolicy,
        SaveReport,
        diff_checkpoints,
        list_checkpoints,
        verify_checkpoint,
    )
    from detdata.corpora import (
        Converted,
        Corpus,
        CorpusError,
        CorpusUnreadable,
        CorpusWarning,
        Indexed,
        IndexProgress,
        convert_corpus,
        index_corpus,
        open_corpus,
        register_corpus_format,
    )
    from detdata.errors import (
        CheckpointBroken,
        CheckpointMismatch,
        DetdataError,
        Difference,
        StateMismatch,
        UnknownFormat,
    )
    from detdata.keys import derive_seed, sample_rng
    from detdata.loader import Loader
    from detdata.orders import (
        BlockShuffle,
        Concat,
        GroupShuffle,
        Mixture,
        Order,
        Sequential,
        Shuffle,
        Subset,
        TorchShuffle,
        Weighted,
        class_balanced,
        split,
        split_of,
    )
    from detdata.packing import Packed, PackedDataset, TokenDocuments, read_packed
    from detdata.plans import (
        Batch,
        BucketPlan,
        EveryEpoch,
        PackPlan,
        Phases,
        Plan,
        PlanMixture,
        from_spec,
        linear_ramp,
        per_source,
        ramped,
    )
    from detdata.progress import Progress
    from detdata.records import register_format
    from detdata.samplers import BatchSampler, DistributedSampler
    from detdata.seeding import current_sample, worker_init_fn
    from detdata.streaming import Resumable, Resumption, Stream, StreamBatch, StreamPosition
    from detdata.topology import Topology
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
    "BucketPlan",
    "CheckpointBroken",
    "CheckpointMismatch",
    "CheckpointNotSaved",
    "Checkpointer",
    "Concat",
    "Converted",
    "Corpus",
    "CorpusError",
    "CorpusUnreadable",
    "CorpusWarning",
    "DatasetError",
    "DatasetWarning",
    "DetdataError",
    "Difference",
    "DistributedSampler",
    "EveryEpoch",
    "GroupShuffle",
    "HashProgress",
    "IndexProgress",
    "Indexed",
    "Loader",
    "Manifest",
    "Mixture",
    "Order",
    "PackPlan",
    "Packed",
    "PackedDataset",
    "Phases",
    "Plan",
    "PlanMixture",
    "Preempted",
    "Progress",
    "Report",
    "Resumable",
    "Resumption",
    "SavePolicy",
    "SaveReport",
    "Sequential",
    "Shuffle",
    "StateMismatch",
    "Stream",
    "StreamBatch",
    "StreamPosition",
    "Subset",
    "TokenDocuments",
    "Topology",
    "TorchShuffle",
    "UnknownFormat",
    "Weighted",
    "class_balanced",
    "convert_corpus",
    "current_sample",
    "derive_seed",
    "diff_checkpoints",
    "from_spec",
    "hash_dataset",
    "index_corpus",
    "linear_ramp",
    "list_checkpoints",
    "merge_manifests",
    "open_corpus",
    "per_source",
    "ramped",
    "read_packed",
    "register_corpus_format",
    "register_format",
    "sample_rng",
    "split",
    "split_of",
    "verify_checkpoint",
    "worker_init_fn",
]

_HOME = {
    "Batch": "detdata.plans",
    "BatchSampler": "detdata.samplers",
    "BlockShuffle": "detdata.orders",
    "BucketPlan": "detdata.plans",
    "CheckpointBroken": "detdata.errors",
    "CheckpointMismatch": "detdata.errors",
    "CheckpointNotSaved": "detdata.checkpoint",
    "Checkpointer": "detdata.checkpoint",
    "Concat": "detdata.orders",
    "Converted": "detdata.corpora",
    "Corpus": "detdata.corpora",
    "CorpusError": "detdata.corpora",
    "CorpusUnreadable": "detdata.corpora",
    "CorpusWarning": "detdata.corpora",
    "DatasetError": "detdata.versions",
    "DatasetWarning": "detdata.versions",
    "DetdataError": "detdata.errors",
    "Difference": "detdata.errors",
    "DistributedSampler": "detdata.samplers",
    "EveryEpoch": "detdata.plans",
    "GroupShuffle": "detdata.orders",
    "HashProgress": "detdata.versions",
    "IndexProgress": "detdata.corpora",
    "Indexed": "detdata.corpora",
    "Loader": "detdata.loader",
    "Manifest": "detdata.versions",
    "Mixture": "detdata.orders",
    "Order": "detdata.orders",
    "PackPlan": "detdata.plans",
    "Packed": "detdata.packing",
    "PackedDataset": "detdata.packing",
    "Phases": "detdata.plans",
    "Plan": "detdata.plans",
    "PlanMixture": "detdata.plans",
    "Preempted": "detdata.checkpoint",
    "Progress": "detdata.progress",
    "Report": "detdata.versions",
    "Resumable": "detdata.streaming",
    "Resumption": "detdata.streaming",
    "SavePolicy": "detdata.checkpoint",
    "SaveReport": "detdata.checkpoint",
    "Sequential": "detdata.orders",
    "Shuffle": "detdata.orders",
    "StateMismatch": "detdata.errors",
    "Stream": "detdata.streaming",
    "StreamBatch": "detdata.streaming",
    "StreamPosition": "detdata.streaming",
    "Subset": "detdata.orders",
    "TokenDocuments": "detdata.packing",
    "Topology": "detdata.topology",
    "TorchShuffle": "detdata.orders",
    "UnknownFormat": "detdata.errors",
    "Weighted": "detdata.orders",
    "class_balanced": "detdata.orders",
    "convert_corpus": "detdata.corpora",
    "current_sample": "detdata.seeding",
    "derive_seed": "detdata.keys",
    "diff_checkpoints": "detdata.checkpoint",
    "from_spec": "detdata.plans",
    "hash_dataset": "detdata.versions",
    "index_corpus": "detdata.corpora",
    "linear_ramp": "detdata.plans",
    "list_checkpoints": "detdata.checkpoint",
    "merge_manifests": "detdata.versions",
    "open_corpus": "detdata.corpora",
    "per_source": "detdata.plans",
    "ramped": "detdata.plans",
    "read_packed": "detdata.packing",
    "register_corpus_format": "detdata.corpora",
    "register_format": "detdata.records",
    "sample_rng": "detdata.keys",
    "split": "detdata.orders",
    "split_of": "detdata.orders",
    "verify_checkpoint": "detdata.checkpoint",
    "worker_init_fn": "detdata.seeding",
}

if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'detdata' has no attribute {name!r}")
        try:
            value = getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "torch":
                raise
            raise ImportError(f"detdata.{name} needs torch: pip install 'detdata[torch]'", name="torch") from error
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
