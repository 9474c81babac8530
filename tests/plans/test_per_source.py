"""Samples of each source before a step, against a count of what the batches hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detdata import Plan, Shuffle
from detdata.orders.mixture import Mixture
from detdata.plans.per_source import per_source
from tests.orders.mixture_strategies import SOME, mixtures

STEPS = 18


@st.composite
def plans(draw):
    mixture = draw(mixtures(largest=20))
    tail = draw(st.sampled_from(["drop", "pad", "keep", "carry"]))
    sizes = st.integers(1, min(mixture.size, 30) if tail == "drop" else 30)
    plan = Plan(mixture, draw(sizes), tail)
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 12))
        if draw(st.booleans()):
            plan = plan.resized(step, draw(sizes))
        else:
            plan = plan.skipping(step, step + draw(st.integers(0, 8)))
    return plan


@SOME
@given(plans())
def test_samples_by_source_are_those_that_the_batches_hold(plan):
    counts = np.zeros(len(plan.order.names), dtype=np.int64)
    for step in range(STEPS):
        try:
            batch = plan.batch(step)
        except ValueError:  # limits end the mixture
            assume(step)
            break
        found = per_source(plan, step)
        assert counts.tolist() == list(found.values())
        assert list(plan.order.names) == list(found)
        assert plan.consumed(step) == sum(found.values())
        counts += np.bincount(plan.order.source_of(batch.ids[batch.real]), minlength=counts.size)


def test_a_distant_step_costs_no_walk():
    sources = {"web": Shuffle(10**9), "code": Shuffle(10**6)}
    for rule in ({"size": 10**9}, {"stop": "first"}, {"stop": "all_once"}):
        plan = Plan(Mixture(sources, {"web": 0.9, "code": 0.1}, **rule), 512)
        for step in (10**6, 10**10):
            found = per_source(plan, step)
            assert 512 * step == plan.consumed(step) == sum(found.values())


def test_other_plans_have_no_sources():
    for plan in (Plan(Shuffle(10), 2), Shuffle(10), None):
        with pytest.raises(TypeError, match="plan"):
            per_source(plan, 0)
    with pytest.raises(ValueError, match="step"):
        per_source(Plan(Mixture({"a": Shuffle(5)}, {"a": 1}), 2), -1)
