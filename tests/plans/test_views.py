"""EveryEpoch: the plan's own batches, cut into epochs of so many steps."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle
from detdata.orders.tables import rebuild
from detdata.plans.phases import Phases
from detdata.plans.views import EveryEpoch
from tests.plans.schedules import check_counts, check_epochs, check_shards, leaf_plans, rows_of, used

SPAN = 30


@st.composite
def views(draw):
    n = draw(st.integers(2, 9))
    plan = draw(st.one_of(leaf_plans(n), leaf_plans(n, packed=True)))
    return EveryEpoch(plan, draw(st.one_of(st.integers(1, 4), st.integers(1, 12))))


@given(views())
def test_batches_are_the_plans_and_epochs_are_even(view):
    for step in range(SPAN):
        batch, own = view.batch(step), view.plan.batch(step)
        assert rows_of(own) == rows_of(batch)
        assert (own.epochs.tolist(), own.start) == (batch.epochs.tolist(), batch.start)
        assert step // view.epoch_steps == batch.epoch == view.epoch(step)
        assert view.plan.consumed(step) == view.consumed(step)
    assert {view.epoch_steps} == {view.steps(epoch) for epoch in range(5)}


@given(views(), st.integers(1, 3))
def test_counts_epochs_and_parts_are_those_of_the_batches(view, world_size):
    check_counts(view, SPAN)
    check_epochs(view, SPAN)
    check_shards(view, 7, world_size)


@given(views())
def test_a_sample_is_found_in_the_first_step_of_an_epoch_that_uses_it(view):
    packed = view.documents is not None
    for epoch in range(SPAN // view.epoch_steps):
        first = {}
        for step in range(view.first_step(epoch), view.first_step(epoch + 1)):
            for id, _ in used(view.batch(step), packed):
                first.setdefault(id, step)
        for id in range(view.documents if packed else view.id_bound):
            assert first.get(id) == view.when(id, epoch)


@given(views())
def test_specs_pickles_and_digests(view):
    spec = json.loads(json.dumps(view.spec()))
    for again in (pickle.loads(pickle.dumps(view)), rebuild(spec, view._tables()), view.revived(spec)):
        assert (view, hash(view)) == (again, hash(again))
    assert view == EveryEpoch.from_spec(spec, *view._tables().values())
    assert view != EveryEpoch(view.plan, view.epoch_steps + 1)
    assert view.plan.digest(2, 9) == view.digest(2, 9)


def test_changes_are_made_in_the_plan():
    plan = Plan(Shuffle(100, 4), 8)
    view = EveryEpoch(plan, 5)

    assert EveryEpoch(plan.resized(3, 4), 5) == view.resized(3, 4)
    assert EveryEpoch(plan.skipping(3, 7), 5) == view.skipping(3, 7)
    with pytest.raises(ValueError, match="parts"):
        EveryEpoch(Phases([(plan, None)]), 5).resized(3, 4)


def test_plans_that_agree():
    plan = Plan(Sequential(10), 2)
    one, other = (EveryEpoch(Phases([(plan, 9), (Plan(Sequential(10), size), None)]), 4) for size in (5, 10))

    assert one.agrees(other, 9)
    assert not one.agrees(other, 10)
    assert not one.agrees(EveryEpoch(one.plan, 3), 0)
    assert EveryEpoch(plan, 3).agrees(EveryEpoch(plan, 3), 10**6)


def test_wrong_arguments_are_refused_by_name():
    plan = Plan(Sequential(10), 2)
    for steps in (0, -1, 2**63):
        with pytest.raises(ValueError, match="steps"):
            EveryEpoch(plan, steps)
    for steps in (1.0, True, "3", None):
        with pytest.raises(TypeError, match="steps"):
            EveryEpoch(plan, steps)
    with pytest.raises(TypeError, match="plan must be a plan"):
        EveryEpoch(Sequential(10), 3)
    with pytest.raises(IndexError):
        EveryEpoch(plan, 3).when(10)
