"""Section 16 of docs/spec.md: its vectors hold, and plans written from the page anew agree."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import from_spec
from detdata.plans.phases import Phases
from detdata.plans.plan_mixture import PlanMixture
from detdata.plans.ramps import linear_ramp
from detdata.plans.views import EveryEpoch
from tests.orders.mixture_strategies import weights_of
from tests.orders.strategies import SEEDS
from tests.plans import second_schedules as second
from tests.plans.schedules import changed, plain_plans
from tests.test_spec import VECTORS

SPAN = 30


@st.composite
def trees(draw, n, depth):
    """A plan of `n` samples, of parts nested up to `depth` deep."""
    kind = draw(st.sampled_from(["plain", "phases", "view", "mixture"])) if depth else "plain"
    if kind == "plain":
        return draw(changed(draw(plain_plans(n))))
    if kind == "view":
        return EveryEpoch(draw(trees(n, depth - 1)), draw(st.integers(1, 6)))
    if kind == "phases":
        count = draw(st.integers(1, 3))
        rows = [(draw(trees(n, depth - 1)), draw(st.integers(0, 4)), draw(st.integers(1, 9))) for _ in range(count)]
        return Phases([*rows[:-1], (*rows[-1][:2], None)])
    cut = draw(st.integers(1, n))
    sizes = {"a": cut, "b": n - cut} if cut < n else {"a": n}
    plans = {name: draw(trees(size, depth - 1)) for name, size in sizes.items()}
    mixture = PlanMixture(plans, draw(weights_of(list(plans))), draw(SEEDS), size=draw(st.integers(1, 9)))
    return mixture.reweighted(draw(st.integers(1, SPAN)), draw(weights_of(list(plans))))


def said(batch):
    """A batch as the second implementation says it."""
    return (
        batch.epoch,
        batch.start,
        list(zip(batch.epochs.tolist(), batch.ids.tolist(), batch.real.tolist(), strict=True)),
    )


@given(trees(7, 3))
def test_plans_written_from_the_page_agree(plan):
    for step, wanted in enumerate(islice(second.walk(plan.spec()), SPAN)):
        assert wanted == said(plan.batch(step))


@given(st.integers(1, 30), st.integers(0, 40), st.integers(1, 60), st.integers(1, 5))
def test_ramps_written_from_the_page_agree(first, stages, steps, divisor):
    arguments = first * divisor, (first + stages) * divisor, steps, divisor

    assert second.linear_ramp(*arguments) == [list(row) for row in linear_ramp(*arguments)]


@pytest.mark.parametrize("row", VECTORS["linear_ramp"], ids=str)
def test_the_ramps_on_the_page_are_those_made(row):
    arguments = [row[key] for key in ("first", "last", "steps", "divisor")]

    assert row["table"] == [list(one) for one in linear_ramp(*arguments)] == second.linear_ramp(*arguments)


@pytest.mark.parametrize("row", VECTORS["schedules"], ids=lambda row: row["spec"]["format"])
def test_the_plans_on_the_page_are_those_made(row):
    plan = from_spec(row["spec"])
    steps = list(islice(second.walk(row["spec"]), 1 + row["batches"][-1]["step"]))
    for batch in row["batches"]:
        found = plan.batch(batch["step"])
        assert batch["consumed"] == plan.consumed(batch["step"])
        assert (batch["epoch"], batch["start"]) == said(found)[:2] == steps[batch["step"]][:2]
        rows = list(zip(batch["epochs"], batch["ids"], map(bool, batch["real"]), strict=True))
        assert rows == said(found)[2] == steps[batch["step"]][2]

    assert row["spec"] == plan.spec()
    assert row["digest"]["value"] == plan.digest(row["digest"]["first"], row["digest"]["last"])
