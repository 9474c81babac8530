"""Chains of plans, against a walk that goes through them step by step."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle, UnknownFormat
from detdata.orders.mixture import Mixture
from detdata.orders.tables import rebuild
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.composite import epochs_begun
from detdata.plans.pack_plan import PackPlan
from detdata.plans.phases import Phases
from detdata.plans.views import EveryEpoch
from tests.plans.schedules import check_counts, check_epochs, check_shards, leaf_plans, rows_of, used

SPAN = 30


@st.composite
def chains(draw, *, packed=False, nested=True):
    """(rows, chain); all plans of one dataset of 2 … 9 samples or documents."""
    n = draw(st.integers(2, 9))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        plan = draw(leaf_plans(n, packed=packed))
        if nested and draw(st.integers(0, 4)) == 0:
            plan = EveryEpoch(plan, draw(st.integers(1, 6)))
        rows.append((plan, draw(st.sampled_from([0, 0, 1, 5])), draw(st.integers(1, 8))))
    if nested and len(rows) > 2 and draw(st.booleans()):
        inner = [*rows[:1], (rows[1][0], rows[1][1], None)]
        rows[:2] = [(Phases(inner), 0, draw(st.integers(1, 12)))]
    rows[-1] = (*rows[-1][:2], None)
    return rows, Phases(rows)


ANY = st.one_of(chains(), chains(packed=True))


def walk(rows):
    """Yield (plan, the plan's step, what to add to its epochs) of the first steps of a chain."""
    shift = 0
    for plan, first, steps in rows:
        newest = 0
        for local in range(first, first + (SPAN if steps is None else steps)):
            newest = max(newest, plan.epoch(local), int(plan.batch(local).epochs.max()))
            yield plan, local, shift
        shift += newest + 1


@given(ANY)
def test_each_step_is_the_one_of_its_phase(case):
    rows, chain = case
    for step, (plan, local, shift) in zip(range(SPAN), walk(rows), strict=False):
        batch, own = chain.batch(step), plan.batch(local)
        assert rows_of(own) == rows_of(batch)
        assert (step, own.epoch + shift, own.start) == (batch.step, batch.epoch, batch.start)
        assert (own.epochs + shift).tolist() == batch.epochs.tolist()
        assert plan.batch_size_at(local) == chain.batch_size_at(step)
        assert (plan, local) == (chain.phases[chain.phase_at(step)[0]].plan, chain.phase_at(step)[1])


@given(ANY)
def test_counts_and_epochs_are_those_of_the_batches(case):
    _, chain = case
    check_counts(chain, 20)
    check_epochs(chain, SPAN)


@given(ANY, st.integers(0, SPAN), st.integers(1, 3))
def test_the_part_of_a_rank_is_the_plans(case, step, world_size):
    check_shards(case[1], step, world_size)


@given(ANY)
def test_no_two_phases_share_an_epoch(case):
    _rows, chain = case
    held = {}
    for step in range(SPAN):
        for epoch in {*chain.batch(step).epochs.tolist(), chain.epoch(step)}:
            assert held.setdefault(epoch, chain.phase_at(step)[0]) == chain.phase_at(step)[0]
    newest = -1
    for step in range(SPAN):
        assert epochs_begun(chain, step) == newest + 1
        newest = max(newest, int(chain.batch(step).epochs.max()))


@given(ANY)
def test_a_sample_is_found_in_the_first_step_that_uses_it(case):
    _, chain = case
    assume(not any(isinstance(part, (EveryEpoch, Phases)) for part in chain.parts))  # their epochs are no rows' epochs
    packed = chain.documents is not None
    first = {}
    for step in range(SPAN):
        for pair in used(chain.batch(step), packed):
            first.setdefault(pair, step)
    for id in range(chain.documents if packed else chain.id_bound):
        for epoch in range(chain.epoch(SPAN)):
            assert first.get((id, epoch)) == chain.when(id, epoch)


@given(chains(nested=False), st.integers(0, 2))
def test_a_nested_chain_finds_what_a_flat_one_does(case, extra):
    rows, chain = case
    nested = Phases([(chain, 4 + extra), (rows[-1][0], 2, None)])
    first = {}
    for step in range(SPAN):
        for pair in used(nested.batch(step), packed=False):
            first.setdefault(pair, step)
    for id in range(chain.id_bound):
        for epoch in range(nested.epoch(SPAN)):
            assert first.get((id, epoch)) == nested.when(id, epoch)


@given(ANY)
def test_specs_pickles_and_digests(case):
    rows, chain = case
    spec = json.loads(json.dumps(chain.spec()))

    for again in (pickle.loads(pickle.dumps(chain)), rebuild(spec, chain._tables()), chain.revived(spec), Phases(rows)):
        assert chain == again
        assert hash(chain) == hash(again)
        assert chain.digest(3, 9) == again.digest(3, 9)
    lengths = [table for table in chain._tables().values() if isinstance(table, np.ndarray)]
    assert chain == Phases.from_spec(spec, *lengths)


@given(ANY, ANY, st.integers(0, SPAN))
def test_plans_that_agree_have_the_same_batches(one, other, step):
    rows, chain = one
    longer = Phases([*rows[:-1], (*rows[-1][:2], 40), (rows[-1][0], None)])
    assert chain.agrees(chain, step)
    if chain.agrees(other[1], step):
        assert chain.digest(0, step) == other[1].digest(0, step)
    kept = sum(row[2] for row in rows[:-1])
    assert chain.agrees(longer, min(step, kept))
    assert chain.digest(0, kept) == longer.digest(0, kept)


def test_a_chain_of_one_plan_is_the_plan():
    plan = Plan(Shuffle(100, 3), 7, "carry").skipping(3, 9)
    chain = Phases([(plan, 5), (plan, 5, 6), (plan, 11, None)], continues=True)

    assert plan.digest(0, 60) == chain.digest(0, 60)
    for step in range(60):
        assert plan.batch(step).epochs.tolist() == chain.batch(step).epochs.tolist()
        assert (plan.epoch(step), plan.consumed(step)) == (chain.epoch(step), chain.consumed(step))
    for id in range(100):
        assert [plan.when(id, epoch) for epoch in range(3)] == [chain.when(id, epoch) for epoch in range(3)]


def test_a_sample_that_comes_again_is_found_behind_the_first_step():
    mixture = Mixture({"a": Sequential(3), "b": Sequential(90)}, {"a": 1, "b": 1}, size=200)
    chain = Phases([(Plan(mixture, 2), 20, 60), (Plan(mixture, 2), None)])
    wanted = next(step for step in range(60) if 1 in chain.batch(step).ids)

    assert wanted == chain.when(1, 0)


def test_a_length_warm_up_with_clipped_buckets():
    lengths = np.arange(1, 400)
    short = BucketPlan(lengths, max_tokens=1024, max_length=64, oversized="clip", num_buckets=4)
    full = BucketPlan(lengths, max_tokens=4096, num_buckets=4)
    chain = Phases([(short, 100), (full, None)])

    assert {chain.batch(step).width <= 64 for step in range(100)} == {True}
    assert max(chain.batch(step).width for step in range(100, 140)) > 64
    assert pickle.loads(pickle.dumps(chain)) == chain


def test_packed_chains_digest_their_segments():
    one, other = (PackPlan([9, 4, 7], 5, 1, seed=seed, tail="keep") for seed in (1, 2))

    assert PackPlan([9, 4, 7], 5, 1, 1, tail="keep").digest(0, 8) == Phases([(one, 9), (one, None)]).digest(0, 8)
    assert Phases([(one, 9), (one, None)]).digest(0, 8) != Phases([(other, 9), (one, None)]).digest(0, 8)


def test_distant_steps_cost_no_walk():
    plan = Plan(Shuffle(10**12), 512)
    chain = Phases([(plan, 10**9), (plan, 10**15, 10**12), (plan, None)])

    for step in (10**9 - 1, 10**9, 10**12, 10**15):
        assert step == chain.step(chain.consumed(step))
        assert chain.when(int(chain.batch(step).ids[0]), chain.epoch(step)) == step


def test_wrong_phases_are_refused_by_name():
    plan = Plan(Sequential(10), 2)
    pack = PackPlan([3, 4], 2, 1)
    for rows in (5, None, [plan], [(plan,)], [(plan, 1, 2, None)], [(3, None)], [(plan, 1.5), (plan, None)], "ab"):
        with pytest.raises(TypeError, match=r"phases|plan"):
            Phases(rows)
    with pytest.raises(TypeError, match="continues"):
        Phases([(plan, None)], continues=1)
    faults = {
        "empty": [],
        r"phases\[1\]: steps must be None": [(plan, 3), (plan, 3)],
        r"phases\[0\]: steps must be an integer": [(plan, None), (plan, None)],
        r"phases\[0\]: steps must be in 1": [(plan, 0), (plan, None)],
        "first_step": [(plan, -1, None)],
        "one dataset.*10 samples and phase 1 of 11": [(plan, 2), (Plan(Sequential(11), 2), None)],
        "2 documents, packed": [(plan, 2), (pack, None)],
        "beyond": [(plan, 2**62), (plan, 2**62, 2**62), (plan, None)],
    }
    for match, rows in faults.items():
        with pytest.raises(ValueError, match=match):
            Phases(rows)
    with pytest.raises(ValueError, match=r"continues=True, but phase 1 begins in epoch 0"):
        Phases([(plan, 6), (plan, None)], continues=True)


def test_what_has_no_one_plan_says_which_to_change():
    chain = Phases([(Plan(Sequential(10), 2), None)])
    for call in (lambda: chain.resized(3, 4), lambda: chain.skipping(3, 4)):
        with pytest.raises(ValueError, match=r"parts that are (resized|skipping)"):
            call()


def test_a_chain_that_continues_is_not_the_one_that_begins_anew():
    plan = Plan(Sequential(10), 2)
    rows = [(plan, 5), (plan, 5, None)]

    assert Phases(rows) != Phases(rows, continues=True)
    assert [Phases(rows, continues=flag).epoch(5) for flag in (False, True)] == [2, 1]


def test_wrong_ids_steps_and_specs_are_refused():
    chain = Phases([(Plan(Sequential(10), 2), 3), (Plan(Sequential(10), 5), None)])
    with pytest.raises(IndexError):
        chain.when(10)
    for step in (-1, 2**63):
        with pytest.raises(ValueError):
            chain.batch(step)
    with pytest.raises(TypeError):
        chain.batch(1.0)
    spec = chain.spec()
    for change in ({"parts": 5}, {"parts": [[1, 2]]}, {"more": 1}, {"format": "detdata.phases/2"}):
        with pytest.raises(UnknownFormat):
            rebuild({**spec, **change}, {})
    with pytest.raises(ValueError, match="spec must be one of"):
        Phases.from_spec({"format": "detdata.plan/1"})
