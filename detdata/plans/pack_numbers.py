"""The numbered sequences of an epoch, whatever cuts it is made of: what each holds, and what a batch of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xxhash

from detdata.arrays import Int64Array, as_int64
from detdata.errors import ArgumentTypeError
from detdata.plans.batch import Batch
from detdata.plans.pack_cuts import Cut
from detdata.plans.pack_phases import Phase, numbering
from detdata.plans.pack_segments import SEGMENT, Segments


def with_segments(phase: Phase, part: Batch) -> Batch:
    """Return a batch of a phase's own plan as one of the run, and with what its rows hold."""
    found = []
    for epoch in np.unique(part.epochs).tolist():
        rows = np.flatnonzero(part.epochs == epoch)
        found.append(_placed(phase.cut.segments(part.ids[rows], epoch), rows))
    return replace(
        part,
        step=phase.first + part.step,
        start=phase.cut.edge(part.start, part.epoch)[1],
        segments=_joined(found),
        width=phase.cut.seq_len,
    )


def segments_at(phases: Sequence[Phase], ids: Any, epoch: int) -> Segments:
    """Return what the sequences ids[i] of an epoch hold, as row i."""
    parts = [_placed(cut.segments(wanted, epoch), rows) for cut, rows, wanted in _by_cut(phases, ids, epoch)]
    joined = _joined(parts)
    return joined[np.argsort(joined["row"], kind="stable")] if len(parts) > 1 else joined


def widths_at(phases: Sequence[Phase], ids: Any, epoch: int) -> Int64Array:
    """Return the seq_len of the sequences ids[i] of an epoch."""
    widths = np.empty(np.asarray(ids).shape, dtype=np.int64)
    for cut, rows, _ in _by_cut(phases, ids, epoch):
        widths[rows] = cut.seq_len
    return widths


def update_digest(state: xxhash.xxh3_128, batch: Batch) -> None:
    """Put a packed batch into a digest: rows, width, which rows are real, and the segments."""
    segments = np.empty(0, dtype=SEGMENT) if batch.segments is None else batch.segments
    state.update(np.array([len(batch), batch.width or 0, segments.size], dtype="<i8").tobytes())
    state.update(batch.real.tobytes())
    columns = [segments[name] for name in ("row", "document", "start", "stop")]
    state.update(np.stack(columns, axis=1).astype("<i8").tobytes())


def _by_cut(phases: Sequence[Phase], ids: Any, epoch: int) -> Iterator[tuple[Cut, Int64Array, Int64Array]]:
    """Yield (cut, rows, the sequences of these rows) of each cut that has some of the sequences `ids`."""
    cuts = numbering(phases, epoch)
    last = cuts[-1]
    bound = last.base + last.order.size - last.gap if last.epoch == epoch else last.order.size
    wanted = as_int64(ids, "ids", below=bound, what="sequence")
    if wanted.ndim != 1:
        raise ArgumentTypeError(f"ids must have one dimension, got shape {wanted.shape}")
    owner = np.searchsorted([cut.base if cut.epoch == epoch else 0 for cut in cuts], wanted, side="right") - 1
    for index in np.unique(owner).tolist():
        rows = np.flatnonzero(owner == index)
        yield cuts[index], rows, wanted[rows]


def _placed(segments: Segments, rows: Int64Array) -> Segments:
    segments["row"] = rows[segments["row"]]
    return segments


def _joined(parts: list[Segments]) -> Segments:
    return np.concatenate(parts) if parts else np.empty(0, dtype=SEGMENT)
