"""Streams: corpora, and whatever can only be iterated, for those who think in IterableDatasets.

Read from `stream` (what users see), `settings` (what a stream is), `engines` and `assembly` (how it is read), `foreign`
(inside another DataLoader), `state` and `source` (what is saved of it), `replay` (without random access).
"""

from __future__ import annotations

from detdata.streaming.assembly import NothingKept
from detdata.streaming.passes import ForeignWorkers
from detdata.streaming.places import StreamBatch, StreamPosition
from detdata.streaming.replay import Resumable, Resumption
from detdata.streaming.stream import OtherRanks, Stream

__all__ = [
    "ForeignWorkers",
    "NothingKept",
    "OtherRanks",
    "Resumable",
    "Resumption",
    "Stream",
    "StreamBatch",
    "StreamPosition",
]
