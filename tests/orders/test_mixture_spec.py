"""The vectors of dealt labels and mixtures on the page are those made, by the implementation written from it too."""

from __future__ import annotations

import json

import numpy as np
import pytest

from detdata import from_spec
from detdata.orders.deal import Deal
from detdata.orders.mixture import Mixture
from tests.second_mixture import Walk, deal
from tests.sources import ROOT
from tests.test_docs import blocks_of

RECORDS = [json.loads(block.code) for block in blocks_of(ROOT / "docs" / "spec.md") if block.info == "json"]
VECTORS = {record["vectors"]: record["rows"] for record in RECORDS if "vectors" in record}


@pytest.mark.parametrize("row", VECTORS["deal"], ids=lambda row: str(row["counts"]))
def test_the_dealt_labels_on_the_page_are_those_made(row):
    made = Deal(row["counts"], row["key"])
    positions = np.arange(row["first"], row["first"] + len(row["labels"]))

    assert row["labels"] == made.draw(positions).label.tolist()
    if row["first"] == 0:
        assert row["labels"] == list(deal(row["counts"], row["key"]))


@pytest.mark.parametrize("row", VECTORS["mixture"], ids=lambda row: f"{row['spec']['stop']},epoch={row['epoch']}")
def test_the_mixtures_on_the_page_are_those_made(row):
    mixture = from_spec(row["spec"])

    assert isinstance(mixture, Mixture)
    assert row["spec"] == mixture.spec()
    assert row["size"] == mixture.size
    assert row["ids"] == mixture.take(row["positions"], row["epoch"]).tolist()
    if mixture.size < 1000:
        walk = Walk(row["spec"], (row["epoch"] + 1) * row["size"] if row["spec"]["size"] else None)
        assert row["size"] == walk.size
        assert row["ids"] == [walk.take(p, row["epoch"]) for p in row["positions"]]
