"""BucketPlan against a second implementation, written from docs/spec.md, and the page's vectors against both."""

import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from detdata.plans.bucket_plan import BucketPlan
from tests.plans import bucket_second as second
from tests.sources import ROOT
from tests.test_docs import blocks_of

RECORDS = [json.loads(block.code) for block in blocks_of(ROOT / "docs" / "spec.md") if block.info == "json"]
ROWS = next(record["rows"] for record in RECORDS if record.get("vectors") == "bucket_plan")


@st.composite
def configurations(draw):
    """(lengths, arguments of BucketPlan)."""
    D = draw(st.sampled_from([1, 1, 2, 3, 4]))
    top = draw(st.sampled_from([2, 30, 200, 5000]))
    rare = st.integers(0, top)
    common = st.integers(0, max(1, top // 8))
    n = draw(st.integers(D, draw(st.sampled_from([6, 40, 160]))))
    lengths = draw(st.lists(st.one_of(common, common, rare), min_size=n, max_size=n))
    how = {"batch_size": None, "max_tokens": None, "boundaries": None, "num_buckets": None, "max_length": None}
    how |= {"divisor": D, "oversized": draw(st.sampled_from(["error", "clip", "alone"]))}
    if draw(st.booleans()):
        how["batch_size"] = D * draw(st.integers(1, 7))
    else:
        widest = max(lengths) if how["oversized"] == "error" else sorted(lengths)[-(n // 4 + 1)]
        how["max_tokens"] = D * max(1, widest) * draw(st.integers(1, 6))
    if how["oversized"] != "error" and draw(st.booleans()):
        how["max_length"] = draw(st.integers(1, top))
    if draw(st.booleans()):
        how["num_buckets"] = draw(st.integers(1, 9))
    elif draw(st.booleans()):
        how["boundaries"] = sorted(draw(st.sets(st.integers(0, top), min_size=1, max_size=6)))
    return lengths, how


def sizes(draw, how):
    if how["batch_size"] is not None:
        return {"batch_size": how["divisor"] * draw(st.integers(1, 8))}
    return {"max_tokens": how["max_tokens"] * draw(st.integers(1, 3))}


def changed(plan, draw, how):
    """The plan after a few changes, those that it takes."""
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 8))
        try:
            if draw(st.booleans()):
                plan = plan.resized(step, **sizes(draw, how))
            else:
                plan = plan.skipping(step, step + draw(st.integers(1, 9)))
        except ValueError:
            pass  # what it refuses is tested elsewhere
    return plan


def same(plan, upto):
    run = second.Run(json.loads(json.dumps(plan.spec())), plan.lengths.tolist())
    for step, expected in enumerate(run.batches(upto)):
        batch = plan.batch(step)
        found = {
            "epoch": batch.epoch,
            "start": batch.start,
            "ids": batch.ids.tolist(),
            "real": batch.real.tolist(),
            "width": batch.width,
            "grid": plan.batch_size_at(step),
            "consumed": plan.consumed(step),
        }
        assert found == expected, step
        assert set(batch.epochs.tolist()) == {batch.epoch}


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(data=st.data(), configuration=configurations())
def test_plans_are_what_the_second_implementation_makes(data, configuration):
    lengths, how = configuration
    options = {
        "tail": data.draw(st.sampled_from(["drop", "keep", "pad"])),
        "longest_first": data.draw(st.booleans()),
        "seed": data.draw(st.integers(0, 2**63 - 1)),
    }
    try:
        plan = BucketPlan(lengths, **how, **options)
    except ValueError as error:
        assume("no batch at all" not in str(error))
        raise
    assert plan.boundaries.tolist() == second.bounds_of(
        lengths, **{key: value for key, value in how.items() if key != "batch_size"}
    )
    plan = changed(plan, data.draw, how)
    same(plan, data.draw(st.integers(1, 40)))


@pytest.mark.parametrize("tail", ["drop", "keep"])
@pytest.mark.parametrize("n", [1023, 1024, 1025, 3000])
def test_buckets_beyond_1024_samples_are_what_the_second_implementation_makes(n, tail):
    lengths = [id * 7919 % n % 40 + 1 for id in range(n)] + [50 + id for id in range(20)]
    plan = BucketPlan(lengths, 100, boundaries=[40], tail=tail, seed=4, longest_first=True)
    same(plan, 2 * plan.steps())
    same(plan.resized(3, 60).skipping(5, 9), plan.steps())


@pytest.mark.parametrize("tail", ["drop", "keep", "pad"])
@pytest.mark.parametrize("counts", [[3, 3, 3, 4], [4, 3, 3, 3], [2, 2, 5, 2, 2], [1, 6, 7], [7, 6, 1], [3, 2, 3, 3, 9]])
def test_a_pool_that_is_too_small_takes_mixed_batches_back(counts, tail):
    lengths = [10 * k + 1 + j for k, count in enumerate(counts) for j in range(count)]
    boundaries = [10 * k + 10 for k in range(len(counts) - 1)]
    plan = BucketPlan(lengths, 4, boundaries=boundaries, tail=tail, seed=6)
    same(plan, 3 * plan.steps())
    same(plan.resized(1, 2).skipping(2, 3), 2 * plan.steps())


def test_the_longest_comes_first_in_the_size_that_step_0_has():
    lengths = [1, 2, 3, 4, 5, 6, 7, 20, 21, 22, 23, 24]
    for size in (2, 3, 5):
        plan = BucketPlan(lengths, 4, boundaries=[10], tail="keep", longest_first=True, seed=1)
        changed = plan.resized(0, 6).resized(0, size)
        assert changed.batch(0).width == 24
        same(changed, 20)
        same(changed.skipping(0, 2).resized(0, 4), 20)
        same(plan.skipping(0, 1).resized(0, size), 20)


def test_a_budget_that_no_number_of_samples_reaches():
    plan = BucketPlan([0] * 5, max_tokens=2**40, divisor=3, tail="keep")
    assert plan.batch_size_at(0) == 2**31 // 3 * 3
    same(plan, 3)


@given(lengths=st.lists(st.integers(0, 2**40), min_size=1, max_size=300), count=st.integers(1, 300))
def test_bounds_are_what_the_second_implementation_makes(lengths, count):
    plan = BucketPlan(lengths, 1, num_buckets=count)
    how = {"max_tokens": None, "divisor": 1, "max_length": None, "oversized": "error"}
    assert plan.boundaries.tolist() == second.bounds_of(lengths, boundaries=None, num_buckets=count, **how)
    assert int(plan.bucket_sizes.sum()) == len(lengths)
    assert (np.diff(plan.boundaries) > 0).all()


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_the_bucket_plans_on_the_page_are_those_made(row):
    plan = BucketPlan.from_spec(row["spec"], row["lengths"])

    assert row["spec"] == json.loads(json.dumps(plan.spec()))
    made = list(second.Run(row["spec"], row["lengths"]).batches(1 + max(batch["step"] for batch in row["batches"])))
    for batch in row["batches"]:
        step = batch["step"]
        found = plan.batch(step)
        assert batch["ids"] == found.ids.tolist() == made[step]["ids"]
        assert batch["real"] == found.real.astype(int).tolist() == [int(real) for real in made[step]["real"]]
        assert (batch["epoch"], batch["start"], batch["width"]) == (found.epoch, found.start, found.width)
        assert batch["consumed"] == plan.consumed(step) == made[step]["consumed"]
    digest = row["digest"]
    assert digest["value"] == plan.digest(digest["first"], digest["last"])
