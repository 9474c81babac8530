"""Random small plans of every kind, and what a walk over their batches says of plans that are made of them."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.pack_plan import PackPlan
from tests.orders.strategies import SEEDS

TAILS = ("drop", "pad", "keep", "carry")


@st.composite
def plain_plans(draw, n):
    order = draw(st.sampled_from([Sequential(n), Shuffle(n, draw(SEEDS))]))
    return Plan(order, draw(st.integers(1, n)), draw(st.sampled_from(TAILS)))


@st.composite
def bucket_plans(draw, n):
    lengths = draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    tail, seed = draw(st.sampled_from(TAILS[:3])), draw(SEEDS)
    if draw(st.booleans()):
        return BucketPlan(lengths, draw(st.integers(1, n)), num_buckets=draw(st.integers(1, 4)), tail=tail, seed=seed)
    return BucketPlan(lengths, max_tokens=draw(st.integers(30, 90)), num_buckets=2, tail="keep", seed=seed)


@st.composite
def pack_plans(draw, n):
    lengths = draw(st.lists(st.integers(0, 12), min_size=n, max_size=n).filter(any))
    tail, method = draw(st.sampled_from(TAILS)), draw(st.sampled_from(["concat", "best_fit"]))
    seq_len = draw(st.integers(1, 9))
    batch_size = draw(st.integers(1, 4)) if tail != "drop" else 1
    return PackPlan(lengths, seq_len, batch_size, draw(SEEDS), method, tail)


@st.composite
def changed(draw, plan):
    """The plan with a batch size or two changed, and steps skipped."""
    for _ in range(draw(st.integers(0, 2))):
        step = draw(st.integers(0, 12))
        with suppress(ValueError):  # too large a batch for tail="drop"
            if draw(st.booleans()):
                plan = plan.skipping(step, step + draw(st.integers(0, 5)))
            elif getattr(plan, "max_tokens", None) is not None:
                plan = plan.resized(step, max_tokens=draw(st.integers(30, 90)))
            else:
                plan = plan.resized(step, draw(st.integers(1, 6)))
    return plan


@st.composite
def leaf_plans(draw, n, *, packed=False):
    kinds = [pack_plans(n)] if packed else [plain_plans(n), bucket_plans(n)]
    return draw(changed(draw(st.one_of(kinds))))


def rows_of(batch):
    """All that a batch says of its rows, as lists."""
    segments = None if batch.segments is None else batch.segments.tolist()
    return batch.ids.tolist(), batch.real.tolist(), segments, batch.width, len(batch)


def used(batch, packed):
    """{(sample or document, its row's epoch)} of the rows that are real."""
    if not packed:
        pairs = zip(batch.ids.tolist(), batch.epochs.tolist(), batch.real.tolist(), strict=True)
        return {(id, epoch) for id, epoch, real in pairs if real}
    rows = [(row, document) for row, document, *_ in batch.segments.tolist() if batch.real[row]]
    return {(document, int(batch.epochs[row])) for row, document in rows}


def check_counts(plan, steps):
    """Counts and their inverses, against a sum over the batches."""
    consumed = 0
    for step in range(steps):
        batch = plan.batch(step)
        assert (step, plan.epoch(step)) == (batch.step, batch.epoch)
        assert (consumed, step) == (plan.consumed(step), plan.step(consumed))
        assert len(batch) <= plan.batch_size_at(step)
        assert plan.batch_size_at(step) in plan.batch_sizes(step, step + 1)
        assert set(plan.batch_sizes(0, steps)) >= {plan.batch_size_at(step)}
        for between in {1} if step % 4 == 0 and batch.real.sum() > 1 else ():
            with pytest.raises(ValueError, match="no step begins there"):
                plan.step(consumed + between)
        consumed += int(batch.real.sum())


def check_epochs(plan, steps):
    """Epochs never go down, and each begins where the first of its steps is."""
    epochs = [plan.epoch(step) for step in range(steps)]
    assert epochs == sorted(epochs)
    for epoch in range(epochs[-1] + 1):
        first = next(step for step, one in enumerate(epochs) if one >= epoch)
        assert first == plan.first_step(epoch)
        if epoch < epochs[-1]:
            assert epochs.count(epoch) == plan.steps(epoch)


def check_shards(plan, step, world_size):
    """The parts of the ranks are rows rank, rank + world_size, … of the batch, with their segments."""
    if plan.batch_size_at(step) % world_size:
        return
    batch = plan.batch(step)
    for rank in range(world_size):
        part, rows = plan.shard(step, rank, world_size), np.arange(rank, len(batch), world_size)
        assert (batch.step, batch.epoch, batch.start, batch.width) == (part.step, part.epoch, part.start, part.width)
        assert batch.ids[rows].tolist() == part.ids.tolist()
        assert batch.epochs[rows].tolist() == part.epochs.tolist()
        if batch.segments is not None:
            mine = [(rows.tolist().index(row), *rest) for row, *rest in batch.segments.tolist() if row in rows]
            assert mine == part.segments.tolist()
