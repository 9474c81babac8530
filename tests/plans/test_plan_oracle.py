"""The plan against an oracle that builds every batch as a list, over random plans, resizes and skips."""

from __future__ import annotations

import json
from itertools import count, islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Shuffle, from_spec
from tests.reference import Stream

SPAN = 60  # steps that are compared


@st.composite
def histories(draw):
    n = draw(st.integers(1, 40))
    tail = draw(st.sampled_from(["drop", "pad", "keep", "carry"]))
    largest = n if tail == "drop" else 50
    sizes = st.integers(1, largest)
    changes = draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("resize"), st.integers(0, 30), sizes),
                st.tuples(st.just("skip"), st.integers(0, 30), st.integers(0, 25)),
            ),
            max_size=5,
        )
    )
    return n, draw(sizes), tail, draw(st.integers(0, 2**63 - 1)), changes


def build(history):
    n, batch_size, tail, seed, changes = history
    plan, oracle = Plan(Shuffle(n, seed), batch_size, tail), Stream(n, batch_size, tail)
    for kind, step, value in changes:
        if kind == "resize":
            plan, oracle = plan.resized(step, value), oracle.resized(step, value)
        else:
            plan, oracle = plan.skipping(step, step + value), oracle.skipping(step, step + value)
    return plan, oracle


@given(histories())
def test_every_batch_is_what_a_naive_list_gives(history):
    plan, oracle = build(history)
    order = plan.order
    consumed = 0
    for step, rows in enumerate(islice(oracle.batches(), SPAN)):
        batch = plan.batch(step)
        expected = [int(order.take(position, epoch)) for epoch, position, _ in rows]
        assert expected == batch.ids.tolist(), step
        assert [real for _, _, real in rows] == batch.real.tolist()
        assert [epoch for epoch, _, _ in rows] == batch.epochs.tolist()
        assert rows[0][:2] == (batch.epoch, batch.start)
        assert consumed == plan.consumed(step)
        assert step == plan.step(consumed)
        consumed += sum(real for _, _, real in rows)


@given(histories())
def test_steps_and_first_steps_count_the_batches_of_each_epoch(history):
    plan, oracle = build(history)
    begins = [rows[0][0] for rows in islice(oracle.batches(), SPAN)]
    for epoch in range(begins[-1]):
        assert begins.count(epoch) == plan.steps(epoch)
        assert sum(begin < epoch for begin in begins) == plan.first_step(epoch)


@given(histories())
def test_when_finds_the_step_of_every_sample_and_none_for_dropped_and_skipped_ones(history):
    plan, oracle = build(history)
    used = {}
    for step, rows in enumerate(islice(oracle.batches(), SPAN)):
        used |= {(epoch, position): step for epoch, position, real in rows if real}
        last = rows[-1][0]
    for epoch in range(min(last, 4)):
        for position in range(plan.order.size):
            step = plan.when(int(plan.order.take(position, epoch)), epoch)
            assert used.get((epoch, position)) == step, (epoch, position)


@given(histories())
def test_a_plan_survives_json_and_pickle_whole(history):
    import pickle

    plan, _ = build(history)
    assert from_spec(json.loads(json.dumps(plan.spec()))) == plan == pickle.loads(pickle.dumps(plan))
    assert len(pickle.dumps(plan)) < 10_000


@given(histories(), st.integers(0, SPAN))
def test_a_count_that_is_no_edge_is_refused_naming_both_neighbours(history, step):
    import pytest

    plan, _ = build(history)
    low, high = plan.consumed(step), plan.consumed(step + 1)
    for between in range(low + 1, high):
        with pytest.raises(ValueError, match=rf"{low}.*{high}"):
            plan.step(between)


@given(histories(), st.integers(1, 5), st.integers(1, 4), st.integers(0, SPAN))
def test_shards_are_disjoint_and_their_union_is_the_batch(history, world_size, micro_steps, step):
    plan, _ = build(history)
    size = plan.batch_size_at(step)
    plan = plan.resized(step, size * world_size * micro_steps) if plan.tail != "drop" else plan
    if plan.batch_size_at(step) % (world_size * micro_steps):
        return
    whole = plan.batch(step)
    rows = {}
    grid = plan.batch_size_at(step) // micro_steps
    for rank in range(world_size):
        parts = [plan.shard(step, rank, world_size, micro, micro_steps) for micro in range(micro_steps)]
        assert (
            np.concatenate([part.ids for part in parts]).tolist()
            == plan.shard(step, rank, world_size, None, micro_steps).ids.tolist()
        )
        for micro, part in enumerate(parts):
            places = (row for row in count(micro * grid + rank, world_size))
            for row, id in zip(places, part.ids.tolist(), strict=False):
                assert row not in rows
                rows[row] = id
    assert [rows[row] for row in range(len(whole))] == whole.ids.tolist()
