"""Weights are read exactly, and quotas of whole blocks are off by less than one, and never go down."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import DetdataError
from detdata.orders.quotas import Quotas, as_weight, as_weights, read_weight
from tests.orders.mixture_strategies import MANY
from tests.second_mixture import quota

ABOVE_0 = st.one_of(
    st.integers(1, 10**4),
    st.floats(1e-3, 10, allow_nan=False),
    st.fractions(Fraction(1, 1000), 10, max_denominator=10**6),
)
BLOCKS = st.one_of(st.integers(0, 50), st.integers(0, 2**50))


def quotas_of(weights):
    return Quotas({str(index): as_weight(weight, "weight") for index, weight in enumerate(weights)})


@MANY
@given(st.lists(ABOVE_0, min_size=1, max_size=12), BLOCKS)
def test_quotas_are_exact_at_every_edge_and_never_go_down(weights, blocks):
    quotas = quotas_of(weights)
    shares = [Fraction(weight) / sum(map(Fraction, weights)) for weight in weights]

    assert quotas.block in [2**power for power in range(8, 32)]
    assert quotas.block == 256 or quotas.block * min(shares) < 2
    assert quotas.block * min(shares) >= 1
    before, after = quotas.before(blocks), quotas.before(blocks + 1)
    assert blocks * quotas.block == sum(before)
    assert all(abs(had - blocks * quotas.block * share) < 1 for had, share in zip(before, shares, strict=True))
    assert all(a <= b for a, b in zip(before, after, strict=True))
    assert quota(blocks, quotas.block, quotas.parts, quotas.total) == before


@MANY
@given(st.lists(ABOVE_0, min_size=1, max_size=6), st.one_of(st.integers(0, 5000), st.integers(0, 2**60)), st.data())
def test_a_draw_lies_in_one_of_the_two_blocks_that_are_named(weights, rank, data):
    quotas = quotas_of(weights)
    index = data.draw(st.integers(0, len(weights) - 1))
    block = quotas.block_of(index, rank)

    assert quotas.before(block)[index] <= rank < quotas.before(block + 2)[index]


def test_equal_remainders_go_to_the_first():
    assert Quotas({name: Fraction(1) for name in "abc"}).before(1) == [86, 85, 85]
    assert Quotas({name: Fraction(1) for name in "abc"}).before(2) == [171, 171, 170]
    assert Quotas({"a": Fraction(1)}).before(3) == [768]


@pytest.mark.parametrize(("share", "block"), [(2**-8, 256), (2**-8 - 2**-60, 512), (0.0001, 16384), (2**-31, 2**31)])
def test_blocks_are_as_long_as_the_rarest_source_needs(share, block):
    assert block == Quotas({"rare": Fraction(share), "rest": 1 - Fraction(share)}).block


def test_a_weight_that_is_too_small_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'rare'.*2\*\*31") as caught:
        Quotas({"rest": Fraction(1), "rare": Fraction(1, 2**31)})
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(
    ("value", "weight"),
    [
        (3, Fraction(3)), (0, Fraction(0)), (0.1, Fraction(3602879701896397, 2**55)), (np.float32(0.5), Fraction(1, 2)),
        (np.int8(7), Fraction(7)), (np.float64(1e-300), Fraction(1e-300)), (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.1"), Fraction(1, 10)), (5e-324, Fraction(1, 2**1074)), (np.uint64(2**63), Fraction(2**63)),
    ],
    ids=repr,
)  # fmt: skip
def test_weights_are_read_exactly(value, weight):
    assert weight == as_weight(value, "w") == read_weight(str(weight), "w")


@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), (-0.5, ValueError), (float("nan"), ValueError), (float("inf"), ValueError),
     (Decimal("inf"), ValueError), (Fraction(1, 2**1200), ValueError), (2**1200, ValueError),
     (True, TypeError), (np.True_, TypeError), ("1", TypeError), (None, TypeError), ([1], TypeError), (1j, TypeError),
     (np.array([1.0, 2.0]), TypeError)],
    ids=repr,
)  # fmt: skip
def test_other_weights_are_refused_by_name(value, error):
    with pytest.raises(error, match="my weight") as caught:
        as_weight(value, "my weight")
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(
    "text", ["01", "2/4", "1/0", "0/5", "4/1", "-1", "1.5", "", "1/", " 1", "١", 1, None, "9" * 400]
)
def test_a_spec_writes_weights_in_one_way(text):
    with pytest.raises(ValueError, match="weight"):
        read_weight(text, "weight")


@pytest.mark.parametrize(("weights", "error"), [([1], TypeError), (None, TypeError), ({"x": 1}, ValueError),
                                                ({"a": "1"}, TypeError), ({1: 1}, ValueError)])  # fmt: skip
def test_bad_tables_of_weights_are_refused_by_name(weights, error):
    with pytest.raises(error, match="weights"):
        as_weights(weights, ["a", "b"])
