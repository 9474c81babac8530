"""Formats of corpora that a demonstration can train from; apart, so that `--help` imports nothing else."""

from __future__ import annotations

# What the passages can be written as: every format that files can be of, and the folders of Hugging Face's datasets.
CORPORA = (
    "arrow",
    "csv",
    "csv.gz",
    "csv.zst",
    "jsonl",
    "jsonl.gz",
    "jsonl.zst",
    "megatron",
    "npy",
    "parquet",
    "save_to_disk",
    "tar",
    "text",
    "text.gz",
    "text.zst",
    "tokens",
)
