"""Section 15 of docs/spec.md: its vectors hold for the library and for the implementation written from the page."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detdata import from_spec
from detdata.plans.pack_order import DocumentShuffle
from detdata.plans.pack_plan import PackPlan
from tests.plans import pack_second as second
from tests.plans.test_pack_best_fit import build as build_fit
from tests.plans.test_pack_best_fit import plans
from tests.plans.test_pack_oracle import build, rows_of, runs
from tests.sources import ROOT
from tests.test_docs import blocks_of

RECORDS = [json.loads(block.code) for block in blocks_of(ROOT / "docs" / "spec.md") if block.info == "json"]
VECTORS = {record["vectors"]: record["rows"] for record in RECORDS if "vectors" in record}


@pytest.mark.parametrize("row", VECTORS["document_shuffle"], ids=lambda row: f"n={row['spec']['n']}")
def test_the_orders_of_documents_on_the_page_are_those_made(row):
    order = from_spec(row["spec"])

    assert row["spec"] == order.spec()
    assert row["ids"] == order.take(row["positions"], row["epoch"]).tolist()
    assert row["positions"] == order.find(row["ids"], row["epoch"]).tolist()
    if order.size < 1000:
        listed = second.document_order(order.size, row["spec"]["seed"], row["epoch"])
        assert row["ids"] == [listed[p] for p in row["positions"]]


@pytest.mark.parametrize("row", VECTORS["pack"], ids=lambda row: row["spec"]["method"] + "-" + row["spec"]["tail"])
def test_the_packed_plans_on_the_page_are_those_made(row):
    plan = PackPlan.from_spec(row["spec"], row["lengths"])

    assert row["spec"] == plan.spec()
    for batch in row["batches"]:
        found = plan.batch(batch["step"])
        assert batch["segments"] == [list(segment) for segment in found.segments.tolist()]
        assert batch["ids"] == found.ids.tolist()
        assert batch["real"] == found.real.astype(int).tolist()
        assert batch["epochs"] == found.epochs.tolist()
        assert (batch["epoch"], batch["start"], batch["width"]) == (found.epoch, found.start, found.width)
        assert batch["consumed"] == plan.consumed(batch["step"])
        assert batch["consumed_tokens"] == plan.consumed_tokens(batch["step"])
    digest = row["digest"]
    made = islice(second.batches(row["spec"], row["lengths"]), digest["first"], digest["last"])
    batches = [(seq_len, [(found, real) for _, _, found, real in rows]) for _, _, seq_len, rows in made]
    assert digest["value"] == plan.digest(digest["first"], digest["last"]) == second.digest(batches)


def same(plan, lengths, steps):
    for step, (epoch, start, seq_len, rows) in enumerate(islice(second.batches(plan.spec(), lengths), steps)):
        batch = plan.batch(step)
        assert [found for _, _, found, _ in rows] == rows_of(batch), step
        assert [number for _, number, _, _ in rows] == batch.ids.tolist()
        assert [real for *_, real in rows] == batch.real.tolist()
        assert [epoch for epoch, *_ in rows] == batch.epochs.tolist()
        assert (epoch, seq_len) == (batch.epoch, batch.width)
        assert start == batch.start or plan.method == "best_fit"


@given(runs(), st.integers(0, 12), st.integers(0, 8))
def test_plans_of_many_lengths_and_skips_are_what_their_specs_say(run, first, steps):
    same(build(run).skipping(first, first + steps), run[0], 20)


@given(plans())
def test_best_fit_plans_are_what_their_specs_say(case):
    same(build_fit(case)[0], case[0], 10)


@given(st.integers(1, 10_000), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
@example(70_000, 1, 2)
def test_orders_of_documents_are_what_the_second_implementation_makes(n, seed, epoch):
    assert second.document_order(n, seed, epoch) == DocumentShuffle(n, seed).take(np.arange(n), epoch).tolist()
