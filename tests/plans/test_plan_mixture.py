"""Mixtures of plans, against a walk that takes one step after another from the plan that the sequence names."""

import json
import pickle
from collections import Counter
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle, UnknownFormat
from detdata.orders.tables import rebuild
from detdata.plans.bucket_plan import BucketPlan
from detdata.plans.composite import epochs_begun
from detdata.plans.pack_plan import PackPlan
from detdata.plans.phases import Phases
from detdata.plans.plan_mixture import PlanMixture
from detdata.plans.views import EveryEpoch
from tests.orders.mixture_strategies import weights_of
from tests.orders.strategies import SEEDS
from tests.plans.schedules import check_counts, check_epochs, check_shards, leaf_plans, rows_of, used
from tests.second import fold
from tests.second_mixture import Walk

SPAN = 40


@st.composite
def mixtures(draw, *, packed=False, nested=True):
    """A mixture of 1 … 4 plans, reweighted up to three times."""
    plans = {}
    for index in range(draw(st.integers(1, 4))):
        plan = draw(leaf_plans(draw(st.integers(2, 9)), packed=packed))
        kind = draw(st.sampled_from(["leaf", "leaf", "leaf", "view", "chain", "mixture"])) if nested else "leaf"
        if kind == "view":
            plan = EveryEpoch(plan, draw(st.integers(1, 6)))
        if kind == "chain":
            plan = Phases([(plan, draw(st.integers(1, 6))), (plan, None)])
        if kind == "mixture":
            plan = PlanMixture({"x": plan, "y": plan}, {"x": 1, "y": 2}, size=draw(st.integers(1, 9)))
        plans[f"s{index}"] = plan
    names = list(plans)
    made = PlanMixture(plans, draw(weights_of(names)), draw(SEEDS), size=draw(st.integers(1, 15)))
    for _ in range(draw(st.integers(0, 3))):
        with suppress(ValueError):  # no weight left
            made = made.reweighted(draw(st.integers(0, SPAN)), draw(weights_of(names)))
    return made


ANY = st.one_of(mixtures(), mixtures(packed=True))


def draws(plan, count):
    """[(source, how often it came before)] by docs/spec.md, sections 3 and 16: a second implementation."""
    spec = plan.spec()
    sources = [[name, {"format": "detdata.sequential/1", "n": 1}] for name, _ in spec["plans"]]
    names = [name for name, _ in spec["plans"]]
    changes = [[step, [list(row) for row in zip(names, weights, strict=True)]] for step, weights in spec["changes"]]
    key = fold("detdata.plan_mixture/1", spec["seed"])
    same = {"sources": sources, "weights": spec["weights"], "seed": key, "size": None, "stop": None, "limits": []}
    return Walk({**same, "changes": changes}, count).draws


@given(ANY)
def test_each_step_is_the_next_one_of_the_plan_that_is_drawn(plan):
    counts = Counter()
    consumed = dict.fromkeys(plan.names, 0)
    for step, (source, rank) in enumerate(draws(plan, SPAN)):
        name = plan.names[source]
        part, batch = plan.plans[name], plan.batch(step)
        own = part.batch(counts[name])
        first_id, first_document = plan.offsets[name]
        ids, real, segments, width, rows = rows_of(own)
        segments = segments and [(row, d + first_document, a, b) for row, d, a, b in segments]
        assert ([id + first_id for id in ids], real, segments, width, rows) == rows_of(batch)
        assert (own.epochs.tolist(), own.start) == (batch.epochs.tolist(), batch.start)
        assert (step, step // plan.size) == (batch.step, batch.epoch)
        assert (name, rank, counts[name]) == (plan.source_at(step), counts[name], plan.step_at(step))
        assert {name: counts[name] for name in plan.names} == plan.counts(step)
        assert consumed == plan.consumed_per_source(step)
        assert part.batch_size_at(rank) == plan.batch_size_at(step)
        counts[name] += 1
        consumed[name] += int(own.real.sum())


@given(ANY)
def test_counts_and_epochs_are_those_of_the_batches(plan):
    check_counts(plan, 12)
    check_epochs(plan, SPAN)


@given(ANY, st.integers(0, SPAN), st.integers(1, 3))
def test_the_part_of_a_rank_is_the_plans(plan, step, world_size):
    check_shards(plan, step, world_size)


@given(st.one_of(mixtures(nested=False), mixtures(nested=False, packed=True)))
def test_a_sample_is_found_in_the_first_step_of_an_epoch_that_uses_it(plan):
    packed = plan.documents is not None
    for epoch in range(SPAN // plan.size):
        first = {}
        for step in range(plan.first_step(epoch), plan.first_step(epoch + 1)):
            for id, _ in used(plan.batch(step), packed):
                first.setdefault(id, step)
        for id in range(plan.documents if packed else plan.id_bound):
            assert first.get(id) == plan.when(id, epoch)


@given(ANY)
def test_a_chain_after_a_mixture_has_epochs_of_its_own(plan):
    last = plan.parts[0] if plan.documents is not None else Plan(Sequential(plan.id_bound), 1)
    with suppress(ValueError):  # of packed plans another number of documents
        chain = Phases([(plan, SPAN), (last, None)])
        newest = max(int(plan.batch(step).epochs.max()) for step in range(SPAN))
        assert int(chain.batch(SPAN).epochs.min()) > newest
        assert epochs_begun(chain, SPAN) == newest + 1 == epochs_begun(plan, SPAN)


@given(ANY, st.data())
def test_reweighting_keeps_what_was_and_each_plan_goes_on(plan, data):
    step = data.draw(st.integers(0, SPAN))
    later = plan.reweighted(step, data.draw(weights_of(list(plan.names))))

    assert plan.counts(step) == later.counts(step)
    assert plan.digest(0, step) == later.digest(0, step)
    assert later.agrees(plan, step)
    assert plan.agrees(later, step)
    last = max(at for at in range(SPAN) if plan.agrees(later, at))
    assert plan.digest(0, last) == later.digest(0, last)
    steps = [later.step_at(at) for at in range(SPAN) if later.source_at(at) == later.names[0]]
    assert steps == list(range(len(steps)))


@given(ANY)
def test_specs_pickles_and_digests(plan):
    spec = json.loads(json.dumps(plan.spec()))
    for again in (pickle.loads(pickle.dumps(plan)), rebuild(spec, plan._tables()), plan.revived(spec)):
        assert (plan, hash(plan)) == (again, hash(again))
        assert plan.digest(5, 12) == again.digest(5, 12)
    lengths = {str(number): table for number, table in enumerate(plan._tables().values())}
    assert plan == PlanMixture.from_spec(spec, lengths)


def bucket(seed=0):
    return BucketPlan(np.arange(1, 200), max_tokens=1000, num_buckets=4, seed=seed)


def test_quotas_are_exact_at_the_edges_of_blocks():
    plans = {"a": Plan(Shuffle(100), 10), "b": bucket(), "c": bucket(1)}
    plan = PlanMixture(plans, {"a": 0.5, "b": Fraction(1, 3), "c": Fraction(1, 6)}, size=1000)

    for block in (1, 7, 10**9):
        counts = plan.counts(256 * block)
        assert 256 * block == sum(counts.values())
        for name, share in (("a", Fraction(1, 2)), ("b", Fraction(1, 3)), ("c", Fraction(1, 6))):
            assert abs(counts[name] - 256 * block * share) < 1


def test_distant_steps_cost_no_walk():
    plan = PlanMixture({"a": Plan(Shuffle(10**12), 512), "b": bucket()}, {"a": 0.999, "b": 0.001}, size=10**6)

    for step in (10**9 + 1, 10**15):
        assert step == plan.step(plan.consumed(step))
        batch = plan.batch(step)
        assert plan.when(int(batch.ids[0]), plan.epoch(step)) <= step
        assert batch.ids.tolist() == plan.batch(step).ids.tolist()


def test_ids_live_behind_each_other():
    plan = PlanMixture({"a": bucket(), "b": Plan(Sequential(10), 5)}, {"a": 1, "b": 1}, size=10)
    assert (plan.offsets, plan.id_bound, plan.documents) == ({"a": (0, 0), "b": (199, 199)}, 209, None)

    packs = PlanMixture({"a": PackPlan([5, 0, 3], 4, 1), "b": PackPlan([9], 4, 1)}, {"a": 1, "b": 1}, size=10)
    assert (packs.offsets, packs.id_bound, packs.documents) == ({"a": (0, 0), "b": (8, 3)}, 17, 4)


def test_numbers_of_sequences_stay_apart_when_they_become_shorter():
    short = PackPlan([40], 8, 1).relengthened(3, 1, batch_size=4)
    plan = PlanMixture({"a": short, "b": PackPlan([9], 4, 1)}, {"a": 1, "b": 1}, size=10)
    first = plan.offsets["b"][0]

    for step in range(60):
        assert (plan.source_at(step) == "b") == (int(plan.batch(step).ids.min()) >= first)


def test_wrong_arguments_are_refused_by_name():
    a, pack = Plan(Sequential(10), 2), PackPlan([3, 4], 2, 1)
    for arguments, match in (
        (({}, {}), "plans is empty"),
        (({"a": a}, {}), "have none"),
        (({"a": a}, {"a": 0}), "all 0"),
        (({"a": a}, {"a": 1, "b": 1}), "no source"),
        (({"a": a}, {"a": -1}), "negative"),
        (({"a": a, "b": pack}, {"a": 1, "b": 1}), "packed all, or none"),
        (({"a": a, "b": a}, {"a": 1, "b": 2.0**-40}), "once in 2"),
        (({"a": a}, {"a": 1}, -1), "seed"),
    ):
        with pytest.raises(ValueError, match=match):
            PlanMixture(*arguments, size=10)
    for arguments, match in (
        (([a], {"a": 1}), "plans"),
        (({"a": 3}, {"a": 1}), "must be a plan"),
        (({1: a}, {1: 1}), "names"),
    ):
        with pytest.raises(TypeError, match=match):
            PlanMixture(*arguments, size=10)
    for size in (0, -1, 2**63):
        with pytest.raises(ValueError, match="size"):
            PlanMixture({"a": a}, {"a": 1}, size=size)
    for changes in (5, [1], [(1, 2)], [(1.5, {"a": 2})]):
        with pytest.raises(TypeError, match="changes"):
            PlanMixture({"a": a}, {"a": 1}, size=10, changes=changes)
    with pytest.raises(ValueError, match="rising"):
        PlanMixture({"a": a}, {"a": 1}, size=10, changes=[(3, {}), (3, {})])


def test_wrong_steps_ids_and_specs_are_refused():
    plan = PlanMixture({"a": Plan(Sequential(10), 2)}, {"a": 1}, size=10)
    for step in (-1, 2**63):
        with pytest.raises(ValueError, match="step"):
            plan.batch(step)
    with pytest.raises(IndexError):
        plan.when(10)
    with pytest.raises(ValueError, match="parts that are resized"):
        plan.resized(3, 4)
    spec = plan.spec()
    for change in (
        {"plans": 5},
        {"plans": [[1, 2]]},
        {"weights": ["2/2"]},
        {"weights": []},
        {"changes": [[3, ["1"]]]},
        {"changes": 3},
        {"more": 1},
    ):
        with pytest.raises(UnknownFormat):
            rebuild({**spec, **change}, {})
    with pytest.raises(ValueError, match="spec must be one of"):
        PlanMixture.from_spec({"format": "detdata.plan/1"}, {})
    with pytest.raises(TypeError, match="lengths must be a dict"):
        PlanMixture.from_spec(spec, [3])
    with pytest.raises(ValueError, match="at hand"):
        rebuild(PlanMixture({"a": bucket()}, {"a": 1}, size=10).spec(), {})
