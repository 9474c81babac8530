"""The vectors of sections 11 to 13 of docs/spec.md are those made, by the implementation written from the page too."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from detdata import from_spec
from detdata.orders.each import permute_each
from detdata.orders.groups import GroupShuffle
from detdata.orders.split import split_of
from detdata.orders.weighted import Weighted, class_balanced
from tests.orders import second_orders
from tests.second import size_of, take
from tests.sources import ROOT
from tests.test_docs import blocks_of

RECORDS = [json.loads(block.code) for block in blocks_of(ROOT / "docs" / "spec.md") if block.info == "json"]
VECTORS = {record["vectors"]: record["rows"] for record in RECORDS if "vectors" in record}


@pytest.mark.parametrize("row", VECTORS["weighted"], ids=lambda row: str(row["weights"]))
def test_the_draws_on_the_page_are_those_made(row):
    spec, units = row["spec"], row["units"]
    whole = all(type(weight) is int for weight in row["weights"])
    order = Weighted.from_spec(spec, np.array(row["weights"], dtype=np.uint64 if whole else np.float64))

    assert spec == order.spec()
    assert units == order.weights.tolist() == second_orders.units_of(row["weights"])
    assert spec["weights"] == second_orders.digest_of(units)
    assert row["ids"] == order.take(row["positions"], row["epoch"]).tolist()
    made = [second_orders.weighted_take(units, spec["seed"], row["epoch"], p) for p in row["positions"]]
    assert row["ids"] == made


@pytest.mark.parametrize("row", VECTORS["class_balanced"], ids=lambda row: str(row["power"]))
def test_the_balanced_weights_on_the_page_are_those_made(row):
    power = Fraction(*row["power"])

    assert row["weights"] == second_orders.balanced_weights(row["labels"], power)
    assert class_balanced(row["labels"], power=power) == Weighted(np.array(row["weights"], dtype=np.uint64))


@pytest.mark.parametrize("row", VECTORS["permute_each"], ids=lambda row: str(row["n"]))
def test_the_permutations_of_groups_on_the_page_are_those_made(row):
    positions, n, key = np.array(row["positions"]), row["n"], row["key"]
    keys = np.full(positions.size, key, dtype=np.uint64)

    assert row["ids"] == permute_each(positions, np.full(positions.size, n), keys).tolist()
    assert row["ids"] == [second_orders.permute_each(p, n, key) for p in row["positions"]]


@pytest.mark.parametrize("row", VECTORS["group_shuffle"], ids=lambda row: row["spec"]["labels"])
def test_the_group_batches_on_the_page_are_those_made(row):
    spec, labels = row["spec"], row["labels"]
    if isinstance(labels, dict):
        labels = [id % labels["mod"] for id in range(labels["n"])]
    order = GroupShuffle.from_spec(spec, labels, ids=row["ids"])
    c, k = spec["groups_per_batch"], spec["samples_per_group"]

    assert spec == order.spec()
    if "batches" in row:
        assert row["batches"] == order.take(np.arange(order.size), row["epoch"]).reshape(-1, c * k).tolist()
        numbers = second_orders.group_numbers(labels, row["ids"])
        assert row["batches"] == second_orders.group_batches(numbers, c, k, spec["seed"], row["epoch"])
    else:
        assert row["found"] == order.take(row["positions"], row["epoch"]).tolist()
        assert row["positions"] == order.find(row["found"], row["epoch"]).tolist()


@pytest.mark.parametrize("row", VECTORS["split"], ids=lambda row: str(row["ids"]))
def test_the_parts_on_the_page_are_those_made(row):
    parts = dict(row["parts"])

    assert row["found"] == [split_of(id, parts, row["seed"]) for id in row["ids"]]
    assert row["found"] == [second_orders.split_of(id, parts, row["seed"]) for id in row["ids"]]


@pytest.mark.parametrize("row", VECTORS["split_order"], ids=lambda row: str(row["spec"]["start"]))
def test_the_orders_of_parts_on_the_page_are_those_made(row):
    spec, epoch = row["spec"], row["epoch"]
    part = from_spec(spec)
    inner = spec["order"]

    assert spec == part.spec()
    assert row["ids"] == part.take(np.arange(part.size), epoch).tolist()
    ids = [take(inner, p, epoch) for p in range(size_of(inner))]
    chosen = [id for id in ids if spec["start"] <= second_orders.split_hash(id, spec["seed"]) < spec["stop"]]
    assert row["ids"] == chosen
