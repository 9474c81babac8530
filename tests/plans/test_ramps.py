"""Tables of batch sizes: `ramped` is `resized` again and again, and `linear_ramp` is the line that it says."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.pack_plan import PackPlan
from detdata.plans.phases import Phases
from detdata.plans.ramps import MAX_STAGES, linear_ramp, ramped
from detdata.plans.views import EveryEpoch
from tests.plans.schedules import leaf_plans, rows_of

TABLES = st.dictionaries(st.integers(0, 20), st.integers(1, 6), max_size=5)


def one_by_one(plan, table):
    for step in sorted(table):
        tokens = getattr(plan, "max_tokens", None) is not None
        plan = plan.resized(step, max_tokens=30 * table[step]) if tokens else plan.resized(step, table[step])
    return plan


def scaled(plan, table):
    tokens = getattr(plan, "max_tokens", None) is not None
    return {step: 30 * size for step, size in table.items()} if tokens else table


@given(st.one_of(leaf_plans(13), leaf_plans(9, packed=True)), TABLES, st.randoms(use_true_random=False))
def test_a_ramped_plan_is_the_plan_resized_row_by_row(plan, table, shuffler):
    naive = None
    with suppress(ValueError):
        naive = one_by_one(plan, table)
    rows = list(scaled(plan, table).items())
    shuffler.shuffle(rows)
    if naive is None:
        with pytest.raises(ValueError):
            ramped(plan, rows)
        return

    made = ramped(plan, rows)

    assert naive == made == ramped(plan, scaled(plan, table))
    assert [rows_of(naive.batch(step)) for step in range(25)] == [rows_of(made.batch(step)) for step in range(25)]


@given(TABLES.filter(lambda table: table))
def test_each_sample_comes_once_while_the_size_changes(table):
    plan = ramped(Plan(Shuffle(1000, 7), 3), table)
    size, sizes = 3, []
    for step in range(25):
        size = table.get(step, size)
        sizes.append(size)
        assert size == len(plan.batch(step)) == plan.batch_size_at(step)
        assert sum(sizes[:-1]) == plan.consumed(step)

    ids = [id for step in range(25) for id in plan.batch(step).ids.tolist()]
    assert ids == Shuffle(1000, 7).take(range(sum(sizes))).tolist()


def test_a_view_is_ramped_by_its_plan():
    plan = Plan(Sequential(100), 4)

    assert EveryEpoch(ramped(plan, {3: 8}), 5) == ramped(EveryEpoch(plan, 5), {3: 8})


@given(st.integers(1, 40), st.integers(0, 60), st.integers(1, 300), st.integers(1, 9))
def test_a_linear_ramp_is_at_each_step_on_its_line(first, stages, steps, divisor):
    first, last = first * divisor, (first + stages) * divisor
    table = linear_ramp(first, last, steps, divisor)
    sizes = dict(table)

    assert (0, last) == (table[0][0], table[-1][1])
    assert list(table) == sorted(table)
    size = None
    for step in range(steps + 3):
        size = sizes.get(step, size)
        assert first + divisor * (min(step, steps) * stages // steps) == size


def test_a_ramp_far_out_costs_no_walk():
    plan = ramped(Plan(Shuffle(10**12), 256), linear_ramp(256, 65536, 10**9, 256))

    assert plan.batch_size_at(10**12) == 65536
    assert plan.step(plan.consumed(10**12)) == 10**12


def test_wrong_tables_are_refused_by_name():
    plan = Plan(Sequential(100), 4)
    for table in (5, "ab", [1, 2], [(1, 2, 3)], {1: 2.5}, {True: 2}, {1: "2"}, None):
        with pytest.raises(TypeError, match="sizes"):
            ramped(plan, table)
    for table in ({-1: 2}, {1: 0}, [(1, 2), (1, 3)]):
        with pytest.raises(ValueError, match="sizes"):
            ramped(plan, table)
    with pytest.raises(TypeError, match="plan must be"):
        ramped(Sequential(3), {1: 2})
    with pytest.raises(TypeError, match="plan must be"):
        ramped(Phases([(plan, None)]), {1: 2})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((8, 4, 10), "rises"),
        ((4, 10, 10, 4), "last must be a multiple of divisor, 4; got 10"),
        ((5, 8, 10, 4), "first must be a multiple"),
        ((1, 8, 0), "steps"),
        ((1, MAX_STAGES + 1, 10**6), "larger divisor"),
        ((0, 8, 10), "first"),
    ],
)
def test_wrong_ramps_are_refused_by_name(arguments, match):
    with pytest.raises(ValueError, match=match):
        linear_ramp(*arguments)


def test_buckets_and_packs_keep_their_own_rules():
    bucket = BucketPlan([1, 2, 3, 4] * 10, 4, divisor=2)
    with pytest.raises(ValueError, match="divisor"):
        ramped(bucket, {1: 3})
    pack = ramped(PackPlan([40], 2, 2), {1: 4, 3: 8})
    assert pack.resizes == ((1, 4), (3, 8))
