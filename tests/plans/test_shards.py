"""What a sampler walks over (plans.shards) is what `Plan.shard` says, step by step."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle
from detdata.plans.shards import count_parts, parts
from tests.plans.test_plan_oracle import build, histories


def fit(plan, unit):
    """The plan with every batch size a multiple of `unit`; None where its epochs are too short for that."""
    sizes = [(0, plan.batch_size), *plan.resizes]
    if plan.tail == "drop" and plan.order.size < max(size for _, size in sizes) * unit:
        return None
    for step, size in sizes:
        plan = plan.resized(step, size * unit)
    return plan


def expected(plan, start, stop, rank, world_size, micro_steps):
    """(step, micro step, ids, epochs) of every part that has a sample."""
    for step in range(start[0], stop):
        for micro in range(start[1] if step == start[0] else 0, micro_steps):
            part = plan.shard(step, rank, world_size, micro, micro_steps)
            if part.ids.size:
                yield step, micro, part.ids.tolist(), part.epochs.tolist()


def listed(found):
    return [(p.step, p.micro_step, p.ids.tolist(), np.broadcast_to(p.epochs, p.ids.shape).tolist()) for p in found]


@settings(max_examples=max(1, settings().max_examples // 2))
@given(histories(), st.integers(0, 40), st.integers(1, 3), st.integers(1, 3), st.data())
def test_the_parts_are_those_of_shard_from_any_start(history, step, world_size, micro_steps, data):
    plan = fit(build(history)[0], world_size * micro_steps)
    if plan is None:
        return
    start = (step, data.draw(st.integers(0, micro_steps - 1)))
    for rank in range(world_size):
        wanted = list(expected(plan, start, step + 12, rank, world_size, micro_steps))
        assert wanted == listed(parts(plan, start, step + 12, rank, world_size, micro_steps))
        endless = parts(plan, start, None, rank, world_size, micro_steps)
        assert wanted == listed(islice(endless, len(wanted)))


@given(histories(), st.integers(0, 6), st.integers(1, 3), st.integers(1, 4), st.data())
def test_the_parts_of_a_stretch_of_one_epoch_are_counted_right(history, epoch, world_size, micro_steps, data):
    plan = fit(build(history)[0], world_size * micro_steps)
    if plan is None or not plan.steps(epoch):
        return
    begin, end = plan.first_step(epoch), plan.first_step(epoch + 1)
    first = data.draw(st.integers(begin, end))
    last = data.draw(st.integers(first, end))
    for rank in range(world_size):
        found = sum(1 for _ in parts(plan, (first, 0), last, rank, world_size, micro_steps))
        assert count_parts(plan, first, last, rank, world_size, micro_steps) == found


def test_long_runs_of_parts_cross_the_chunks():
    plan = Plan(Shuffle(50_000, 3), 6, "keep").resized(4_000, 12)
    for start in ((0, 0), (1, 1), (3_999, 0)):
        found = listed(parts(plan, start, 9_000, 1, 3, 2))
        assert len(found) == 2 * (9_000 - start[0]) - start[1]
        for index in (0, 1, 2, 5_461, 5_462, 8_190, len(found) - 1):
            if index < len(found):
                step, micro, ids, _ = found[index]
                assert ids == plan.shard(step, 1, 3, micro, 2).ids.tolist()


def test_a_walk_at_huge_steps_gives_what_shard_gives():
    plan = Plan(Shuffle(10**12, 3), 8)
    start = (2**55 + 3, 1)

    found = listed(islice(parts(plan, start, None, 1, 2, 2), 5))

    assert found == list(islice(expected(plan, start, 2**55 + 10, 1, 2, 2), 5))


def test_a_batch_size_that_does_not_divide_is_refused_when_the_walk_comes_to_it():
    plan = Plan(Sequential(100), 4).resized(3, 6)
    walk = parts(plan, (0, 0), None, 0, 4, 1)

    assert len(list(islice(walk, 3))) == 3
    with pytest.raises(ValueError, match=r"6.*4.*1"):
        next(walk)


def test_no_steps_have_no_parts():
    plan = Plan(Sequential(100), 4)

    assert list(parts(plan, (3, 0), 3, 0, 2, 1)) == []
    assert count_parts(plan, 3, 3, 0, 1, 1) == 0
