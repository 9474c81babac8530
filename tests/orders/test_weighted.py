"""Weighted draws: exact shares, the same on any machine, for any number of weights; and what they refuse."""

import copy
import json
import pickle
from decimal import getcontext
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle, Subset, from_spec
from detdata.errors import DetdataError
from detdata.orders.tables import rebuild
from detdata.orders.weight_table import WeightTable, scaled
from detdata.orders.weighted import Weighted, class_balanced
from tests.orders import second_orders
from tests.orders.strategies import EPOCHS, SEEDS

FLOATS = st.one_of(
    st.floats(0, allow_nan=False, allow_infinity=False, width=64),
    st.floats(0, 10),
    st.sampled_from([0.0, -0.0, 5e-324, 2.0**-1022, 1.7976931348623157e308, 0.1, 1.0, 2.0**53 + 2]),
)
NUMBERS = st.one_of(st.integers(0, 10), st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64 - 1]))
WEIGHTS = st.one_of(
    st.lists(FLOATS, min_size=1, max_size=40).map(np.array),
    st.lists(NUMBERS, min_size=1, max_size=40).map(lambda numbers: np.array(numbers, dtype=np.uint64)),
).filter(np.any)


# --- what comes ---


@given(WEIGHTS, SEEDS, EPOCHS, st.lists(st.integers(0, 2**62 - 1), max_size=5))
def test_draws_are_those_that_the_page_gives(weights, seed, epoch, positions):
    order = Weighted(weights, seed, size=2**62)
    units = second_orders.units_of(weights.tolist())

    assert units == order.weights.tolist()
    assert second_orders.digest_of(units) == order.spec()["weights"]
    expected = [second_orders.weighted_take(units, seed, epoch, p) for p in positions]
    assert expected == order.take(positions, epoch).tolist()


@given(WEIGHTS)
def test_shares_are_off_by_less_than_is_promised(weights):
    units = [int(unit) for unit in Weighted(weights).weights]
    exact = [Fraction(weight) for weight in weights.tolist()]
    bound = Fraction(1, 2**60)

    assert 2**61 - len(units) < sum(units) < 2**62 + len(units)
    for unit, weight in zip(units, exact, strict=True):
        share = weight / sum(exact)
        assert abs(Fraction(unit, sum(units)) - share) < (1 + len(units) * share) * bound
        assert (unit == 0) == (weight == 0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30).filter(any))
def test_small_whole_numbers_are_kept_in_exact_proportion(weights):
    units = Weighted(weights).weights.tolist()
    unit = Fraction(sum(units), sum(weights))

    assert [weight * unit for weight in weights] == units
    assert unit.denominator == 1
    for kind in (np.int16, np.uint16, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64, ">f8", ">i4"):
        assert Weighted(np.array(weights, dtype=kind)) == Weighted(weights)
    assert Weighted([weight * 2.0**-900 for weight in weights]) == Weighted(weights)


def test_a_million_draws_come_as_often_as_their_weights_say():
    weights = np.array([0, 1, 2, 3, 0, 10, 100, 0.5, 883.5, 0])
    expected = weights * 1000
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**63 - 1, 10**6)):
        order = Weighted(weights, seed, size=10**6)
        counts = np.bincount(order.take(np.arange(order.size), epoch), minlength=10)
        assert (np.abs(counts - expected) <= 5 * np.sqrt(expected * (1 - expected / 10**6))).all()
        assert (counts[weights == 0] == 0).all()
        kept = expected > 0
        chi = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
        assert abs(chi - 6) < 5 * sqrt(2 * 6)


def test_draws_are_unrelated_to_their_neighbours_epochs_and_seeds():
    weights = np.ones(16)
    draws = [
        Weighted(weights, seed, size=200_001).take(np.arange(200_001), epoch)
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    pairs = [(draws[0][:-1], draws[0][1:]), (draws[0], draws[1]), (draws[0], draws[2])]
    for one, other in pairs:
        counts = np.bincount(one * 16 + other, minlength=256)
        chi = ((counts - one.size / 256) ** 2 / (one.size / 256)).sum()
        assert abs(chi - 255) < 5 * sqrt(2 * 255)


def test_more_items_than_torch_can_draw_from(tmp_path):
    n = 2**24 + 1
    stored = np.lib.format.open_memmap(tmp_path / "weights.npy", mode="w+", dtype=np.float32, shape=(n,))
    stored[2**23 :] = 1
    stored[n - 1] = 2**23
    stored.flush()
    order = Weighted(np.load(tmp_path / "weights.npy", mmap_mode="r"), seed=1, size=100_000)

    ids = order.take(np.arange(order.size))

    assert order.id_bound == n
    assert abs(int((ids == n - 1).sum()) - 50_000) < 5 * sqrt(25_000)  # beyond the last index of torch.multinomial
    others = ids[ids != n - 1]
    assert others.min() >= 2**23
    assert abs(int((others < 3 * 2**22).sum()) - others.size / 2) < 5 * sqrt(others.size / 4)
    assert np.unique(others).size > 0.98 * others.size
    assert order.spec()["n"] == n
    assert len(json.dumps(order.spec())) < 300


@given(st.integers(1, 2**63 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_hashes_are_scaled_exactly(total, hashes):
    assert [h * total >> 64 for h in hashes] == scaled(np.array(hashes, dtype=np.uint64), total).tolist()


@given(st.integers(1, 3000), st.integers(0, 2**32), st.data())
def test_a_number_falls_to_the_first_item_whose_running_sum_is_above_it(n, seed, data):
    weights = (np.arange(n, dtype=np.uint64) * np.uint64(seed | 1)) % np.uint64(7)
    weights[data.draw(st.integers(0, n - 1))] = 1
    table = WeightTable.of(weights)
    sums = np.cumsum(table.units)
    numbers = np.unique(np.concatenate([[0, table.total - 1], sums[:-1], sums - 1]))
    numbers = numbers[(numbers >= 0) & (numbers < table.total)]

    assert np.searchsorted(sums, numbers, side="right").tolist() == table.find(numbers).tolist()


# --- the order as such ---


@given(WEIGHTS, SEEDS, EPOCHS, st.lists(st.integers(0, 2**62 - 1), min_size=1, max_size=20))
def test_a_draw_depends_on_its_own_position_only(weights, seed, epoch, positions):
    order = Weighted(weights, seed, size=2**62)
    ids = order.take(positions, epoch)

    assert ids.dtype == np.int64
    assert ids.tolist() == [int(order.take(p, epoch)) for p in positions]
    assert [ids.tolist()] * 2 == order.take([positions] * 2, epoch).tolist()
    assert (weights[ids] > 0).all()


def test_seeds_epochs_and_sizes_are_taken():
    order = Weighted([1, 2, 3], seed=7)

    assert (order.size, order.id_bound, order.seed, len(order)) == (3, 3, 7, 3)
    assert Weighted([1, 2, 3], 7, size=3) == order
    assert Weighted([1, 2, 3], 8) != order
    assert Weighted([1, 2, 3], 7, size=4) != order
    assert Weighted([1, 2, 4], 7) != order
    assert Weighted([2, 4, 6], 7) == order
    longer = Weighted(np.ones(1000), size=100)
    assert len({tuple(longer.take(range(100), epoch).tolist()) for epoch in [*range(10), 2**63 - 1]}) == 11
    assert longer.take(range(50)).tolist() == Weighted(np.ones(1000), size=50).take(range(50)).tolist()


def test_plans_of_draws_resume_at_any_step_on_any_number_of_ranks():
    plan = Plan(Weighted(np.arange(1000), seed=1, size=500), 20)
    for step in (0, 7, 24, 25, 10**9):
        ids = plan.batch(step).ids.tolist()
        assert ids == plan.order.take(range(step % 25 * 20, step % 25 * 20 + 20), step // 25).tolist()
        for world in (1, 2, 5):
            parts = [plan.shard(step, rank, world).ids.tolist() for rank in range(world)]
            assert ids == [id for row in zip(*parts, strict=True) for id in row]
    assert plan.consumed(26) == 520


def test_there_is_no_position_of_an_id_and_the_message_says_what_to_do():
    order = Weighted([1, 2, 3])

    for ask in (order.find, Plan(order, 1).when):
        with pytest.raises(NotImplementedError, match=r"with replacement.*flatnonzero") as caught:
            ask(1)
        assert isinstance(caught.value, DetdataError)
        with pytest.raises(IndexError):
            ask(3)
    with pytest.raises(TypeError, match="uses each id once"):
        Subset(order, [1])


def test_copies_and_pickles_carry_the_weights():
    order = Weighted([0.1, 0.2, 0.7], seed=2, size=100)
    for other in (copy.copy(order), copy.deepcopy(order), pickle.loads(pickle.dumps(order))):
        assert other == order
        assert hash(other) == hash(order)
        assert other.take(range(100), 3).tolist() == order.take(range(100), 3).tolist()
    plan = Plan(Shuffle(order, 1), 10)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_spec_is_rebuilt_with_its_weights_and_with_no_others():
    order = Weighted([0.1, 0.2, 0.7], seed=2)
    spec = json.loads(json.dumps(order.spec()))

    assert Weighted.from_spec(spec, [0.1, 0.2, 0.7]) == order
    assert rebuild(Plan(order, 3).spec(), order._tables()) == Plan(order, 3)
    assert from_spec(Plan(order, 3).spec(), [[0.1, 0.2, 0.7]]) == Plan(order, 3)
    with pytest.raises(ValueError, match=r"Weighted\.from_spec\(spec, weights\)"):
        from_spec(spec)
    with pytest.raises(ValueError, match=r"weights.*others"):
        Weighted.from_spec(spec, [0.1, 0.2, 0.6])
    with pytest.raises(ValueError, match=r"Weighted\.from_spec"):  # those at hand are forgotten afterwards
        from_spec(spec)
    for wrong in (Sequential(3).spec(), None, {}, []):
        with pytest.raises(TypeError, match="spec"):
            Weighted.from_spec(wrong, [1])


@pytest.mark.parametrize(
    "change",
    [{"n": 4}, {"n": 0}, {"n": 3.0}, {"seed": -1}, {"seed": None}, {"size": 0}, {"size": None}, {"size": True},
     {"weights": 5}, {"weights": None}, {"weights": ["x"]}, {"weights": "xxh3-128:00"}, {"more": 1}],
)  # fmt: skip
def test_a_hostile_spec_is_refused(change):
    spec = {**Weighted([1, 2, 3]).spec(), **change}
    for build in (from_spec, lambda spec: Weighted.from_spec(spec, [1, 2, 3])):
        with pytest.raises(DetdataError):
            build(spec)


@pytest.mark.parametrize(
    ("weights", "kind", "words"),
    [
        ([], ValueError, "empty"),
        ([0, 0.0], ValueError, "all 0, of 2"),
        ([1, -1], ValueError, r"weights\[1\] is -1"),
        (np.array([1.0] * 200_000 + [-0.5]), ValueError, r"weights\[200000\] is -0\.5"),
        ([1.0, float("nan")], ValueError, r"weights\[1\] is nan"),
        ([1.0, float("inf")], ValueError, r"weights\[1\] is inf"),
        ([[1.0]], TypeError, "one dimension"),
        (1.0, TypeError, "one dimension"),
        ([[1.0], [1.0, 2.0]], TypeError, "weights"),
        ("12", TypeError, "weights"),
        (["1"], TypeError, "weights"),
        ([True, 2.0], TypeError, "bool"),
        (np.array([True]), TypeError, "bool"),
        ([2**70], TypeError, "64 bits"),
        ([1j], TypeError, "complex"),
        (None, TypeError, "weights"),
    ],
)
def test_bad_weights_are_refused_by_name(weights, kind, words):
    with pytest.raises(kind, match=words) as caught:
        Weighted(weights)
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(("arguments", "kind"), [((-1,), ValueError), ((1.0,), TypeError), ((0, 0), ValueError),
                                                  ((0, 1.5), TypeError), ((0, True), TypeError)])  # fmt: skip
def test_bad_seeds_and_sizes_are_refused(arguments, kind):
    with pytest.raises(kind, match=r"seed|size"):
        Weighted([1], *arguments)


# --- classes ---


def test_every_class_comes_equally_often():
    labels = np.repeat([-5, 0, 7, 2**40], [1, 10, 1000, 100_000])
    order = class_balanced(labels, seed=1, size=200_000)
    ids = order.take(np.arange(order.size))
    for label in np.unique(labels):
        assert abs(int((labels[ids] == label).sum()) - 50_000) < 5 * sqrt(200_000 * 3 / 16)
    within = np.bincount(ids[labels[ids] == 7] - 11, minlength=1000)  # and within a class every sample
    assert abs(((within - within.mean()) ** 2 / within.mean()).sum() - 999) < 5 * sqrt(2 * 999)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.sampled_from([0, 0.5, 1, 1.0, 1.5, 2]))
def test_balanced_weights_are_the_nearest_integers(labels, power):
    expected = second_orders.units_of(second_orders.balanced_weights(labels, Fraction(power)))

    assert expected == class_balanced(labels, power=power).weights.tolist()
    assert class_balanced(np.array(labels) * 2**50, power=power) == class_balanced(labels, power=power)


def test_a_power_between_lies_between():
    labels = [0] * 1 + [1] * 100
    shares = []
    for power in (0, 0.25, 0.5, 1):
        units = class_balanced(labels, power=power).weights.tolist()
        shares.append(units[0] / sum(units))
    assert shares == pytest.approx([1 / 101, 1 / (1 + 100**0.75), 1 / 11, 1 / 2], rel=1e-12)


def test_balanced_weights_hang_on_no_settings_of_decimal():
    expected = class_balanced([1, 1, 1, 2], power=0.3)
    context = getcontext()
    before = context.prec
    context.prec = 3
    try:
        assert class_balanced([1, 1, 1, 2], power=0.3) == expected
    finally:
        context.prec = before


def test_labels_of_any_integers_and_a_single_class_are_taken():
    one = class_balanced(np.zeros(5, dtype=np.int8)).weights
    assert len(set(one.tolist())) == 1
    assert class_balanced(np.array([2**64 - 1, 0, 0], dtype=np.uint64)) == class_balanced([1, 0, 0])
    assert class_balanced(np.array([-128, 127, 127], dtype=np.int8)) == class_balanced([-1, 0, 0])


@pytest.mark.parametrize(
    ("labels", "power", "kind", "words"),
    [
        ([], 1, ValueError, "labels is empty"),
        ([1.0], 1, TypeError, "labels"),
        (["a"], 1, TypeError, "return_inverse"),
        ([True], 1, TypeError, "labels"),
        ([[1]], 1, TypeError, "one dimension"),
        ([1], -0.1, ValueError, "power"),
        ([1], 2.1, ValueError, "power"),
        ([1], float("nan"), ValueError, "power"),
        ([1], float("inf"), ValueError, "power"),
        ([1], "1", TypeError, "power"),
        ([1], True, TypeError, "power"),
        ([1], None, TypeError, "power"),
    ],
)
def test_bad_labels_and_powers_are_refused_by_name(labels, power, kind, words):
    with pytest.raises(kind, match=words) as caught:
        class_balanced(labels, power=power)
    assert isinstance(caught.value, DetdataError)
