"""What the files of a checkpoint are called, and the formats of its three JSON records; no torch."""

from __future__ import annotations

import re

PROGRESS_FORMAT = "detdata.progress/1"
DATA_FORMAT = "detdata.data/1"
META_FORMAT = "detdata.meta/1"
RECORDS = {"progress.json": PROGRESS_FORMAT, "data.json": DATA_FORMAT, "meta.json": META_FORMAT}
MAX_JSON_BYTES = 1 << 28
REQUIRED = {
    "model.pt": "the model",
    "progress.json": "where training stood",
    "data.json": "the data order",
    "meta.json": "what the run was",
}
_OF_A_RANK = re.compile(r"([a-z]+)_rank([0-9]{5,9})\.pt")


def rng_name(rank: int) -> str:
    """Return the name of the file with the random states of `rank`."""
    return f"rng_rank{rank:05d}.pt"


def rank_of(name: str) -> tuple[str, int] | None:
    """Return what a file that belongs to one rank holds, and the rank; None for files that are the same on all.

    >>> rank_of("rng_rank00012.pt"), rank_of("model.pt")
    (('rng', 12), None)
    """
    found = _OF_A_RANK.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))
