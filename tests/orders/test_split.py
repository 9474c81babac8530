"""Splits by hash: a part hangs on the id and the seed alone, to the last of 2**64; parts are stable when data grow."""

import json
import os
import pickle
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Concat, Plan, Sequential, Shuffle, Subset, from_spec
from detdata.errors import DetdataError
from detdata.keys import fold, fold_each, mix64
from detdata.orders.groups import GroupShuffle
from detdata.orders.split import SplitPart, split, split_of
from detdata.orders.weighted import Weighted
from detdata.testing import OrderSuite
from tests.orders import second_orders
from tests.orders.strategies import EPOCHS, SEEDS, orders

IDS = st.one_of(st.integers(0, 1000), st.integers(0, 2**63 - 1))
NAMES = st.one_of(st.text(max_size=20), st.text("ab/.0", max_size=8))
WHOLE = st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any)


def named(shares):
    return {f"part {index}": share for index, share in enumerate(shares)}


def hundredths(numbers):
    """Floats of two digits whose decimals add up to 1."""
    cuts = [0, *sorted(numbers), 100]
    return named([float(f"{(b - a) / 100:.2f}") for a, b in pairwise(cuts)])


PARTS = st.one_of(
    WHOLE.map(named),
    st.lists(st.integers(0, 100), max_size=4).map(hundredths),
    st.lists(st.fractions(0, 1), min_size=1, max_size=3).map(
        lambda cuts: named([b - a for a, b in pairwise([Fraction(0), *sorted(cuts), Fraction(1)])])
    ),
)


# --- which part ---


@given(st.lists(IDS, max_size=20), st.lists(NAMES, max_size=10), PARTS, SEEDS)
def test_parts_are_those_that_the_page_gives(ids, names, parts, seed):
    assert [second_orders.split_of(id, parts, seed) for id in ids] == split_of(ids, parts, seed).tolist()
    for keys in (names, tuple(names), np.array(names, dtype=object)):
        assert [second_orders.split_of(name, parts, seed) for name in names] == split_of(keys, parts, seed).tolist()


@given(PARTS, SEEDS, st.lists(IDS, min_size=1, max_size=20))
def test_a_part_hangs_on_nothing_but_the_id(parts, seed, ids):
    found = split_of(ids, parts, seed)

    assert found.dtype.kind == "U"
    assert (
        found.tolist() == [split_of(id, parts, seed) for id in ids] == split_of(ids[::-1], parts, seed)[::-1].tolist()
    )
    assert [found.tolist()] * 2 == split_of(np.array([ids, ids]), parts, seed).tolist()
    assert split_of(np.int64(ids[0]), parts, seed) == split_of(np.array(ids[0]), parts, seed) == found[0]
    assert type(split_of(ids[0], parts, seed)) is str


def inverse_of_mix64(z):
    z ^= z >> 31 ^ z >> 62
    z = z * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return z ^ z >> 30 ^ z >> 60


@given(st.integers(0, 2**64 - 1), SEEDS, st.fractions(0, 1))
def test_thresholds_are_exact_to_the_last_hash(hashed, seed, share):
    """Ids are sought whose hashes lie right below and at the threshold: where they are ids at all."""
    assert int(mix64(np.array([inverse_of_mix64(hashed)], dtype=np.uint64))[0]) == hashed
    parts = {"low": share, "high": 1 - share}
    edge = share * 2**64 // 1
    for h in (edge - 1, edge, edge + 1, hashed):
        if not 0 <= h < 2**64:
            continue
        z = inverse_of_mix64(int(h))
        id = (z - fold("detdata.split/1", seed)) * pow(0x9E3779B97F4A7C15, -1, 2**64) % 2**64 - 1
        if 0 <= id < 2**63:
            assert split_of(id, parts, seed) == ("low" if h < share * 2**64 // 1 else "high")


@pytest.mark.parametrize("parts", [{"train": 0.98, "validation": 0.02}, {"a": 7, "b": 1, "c": 2}, {"a": 0.5, "b": 0.5}])
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_parts_have_their_share(parts, seed):
    n = 200_000
    for keys in (np.arange(n), np.arange(n) * 977 + 2**40):
        found = split_of(keys, parts, seed)
        for name, share in parts.items():
            p = share / sum(parts.values())
            assert abs(int((found == name).sum()) - n * p) < 5 * sqrt(n * p * (1 - p))
    found = split_of([f"images/{n:06}.jpg" for n in range(20_000)], parts, seed)
    for name, share in parts.items():
        p = share / sum(parts.values())
        assert abs(int((found == name).sum()) - 20_000 * p) < 5 * sqrt(20_000 * p * (1 - p))


def test_seeds_are_unrelated_and_so_are_numbers_and_their_names():
    parts = {"a": 1, "b": 1}
    ids = np.arange(100_000)
    halves = [split_of(ids, parts, seed) == "a" for seed in (0, 1, 2, 2**62)]
    halves.append(split_of([str(id) for id in ids.tolist()], parts, 0) == "a")
    for index, one in enumerate(halves):
        for other in halves[:index]:
            assert abs(int((one & other).sum()) - 25_000) < 5 * sqrt(100_000 * 3 / 16)
    shuffled = Shuffle(100_000, 0).take(np.arange(50_000))  # nor has a split to do with the order of the same seed
    assert abs(int(halves[0][shuffled].sum()) - 25_000) < 5 * sqrt(50_000 / 4)


# --- what stays ---


@given(WHOLE, st.integers(1, 20), SEEDS, st.lists(IDS, min_size=1, max_size=30))
def test_a_cut_of_the_last_part_moves_nothing_else(shares, more, seed, ids):
    shares = [*shares, more + 1]
    before = split_of(ids, named(shares), seed)
    after = split_of(ids, named([*shares[:-1], more, 1]), seed)

    for was, now in zip(before.tolist(), after.tolist(), strict=True):
        assert was == now or (was, now) == (f"part {len(shares) - 1}", f"part {len(shares)}")


@given(st.integers(0, 100), st.integers(0, 100), SEEDS, st.lists(IDS, min_size=1, max_size=30))
def test_a_larger_first_part_only_takes(one, other, seed, ids):
    small, large = sorted([one, other])
    before = split_of(ids, {"train": small, "rest": 100 - small}, seed)
    after = split_of(ids, {"train": large, "rest": 100 - large}, seed)

    assert not ((before == "train") & (after == "rest")).any()


def test_added_data_change_no_part_of_what_was_there():
    parts = {"train": 0.9, "validation": 0.1}
    before, after = split(1000, parts, 5), split(1500, parts, 5)
    for name in parts:
        old, new = (np.sort(order.take(np.arange(order.size))) for order in (before[name], after[name]))
        assert old.tolist() == new[new < 1000].tolist()


def test_the_same_shares_in_other_words_are_the_same_split():
    ids = np.arange(5000)
    for one, other in [
        ({"a": 0.98, "b": 0.02}, {"a": 98, "b": 2}),
        ({"a": 0.98, "b": 0.02}, {"a": Fraction(49, 50), "b": Fraction(1, 50)}),
        ({"a": 0.98, "b": 0.02}, {"a": Decimal("0.98"), "b": np.float32(0.02)}),
        ({"a": 0.1, "b": 0.2, "c": 0.7}, {"a": np.int8(1), "b": np.uint64(2), "c": 7}),
        ({"a": 1, "b": 0}, {"a": 1.0, "b": 0.0}),
    ]:
        assert split_of(ids, one, 3).tolist() == split_of(ids, other, 3).tolist()
        assert (
            split(Shuffle(50), {**one, "b": one["b"]}, 3)["a"] == split(Shuffle(50), other, 3)["a"] if one["b"] else 1
        )


def test_a_share_of_nothing_and_of_all():
    ids = np.arange(10_000)
    for parts in ({"a": 0, "b": 1}, {"a": 0.0, "b": 1.0, "c": 0}, {"b": 5, "c": 0, "d": 0}, {"b": 1}):
        assert set(split_of(ids, parts).tolist()) == {"b"}
    thirds = {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "none": 0.0}  # their decimals make 1 but for the last digit
    assert set(split_of(ids, thirds).tolist()) == {"a", "b", "c"}


# --- names ---


@given(st.lists(st.one_of(NAMES, st.binary(max_size=12)), max_size=20), st.lists(st.integers(0, 2**64 - 1), max_size=2))
def test_bytes_stand_for_their_text(texts, path):
    expected = [second_orders.fold(*path, os.fsdecode(t)) if is_text(t) else None for t in texts]

    for text, key, want in zip(texts, fold_each(texts, *path).tolist(), expected, strict=True):
        assert want is None or key == want
        raw = text if isinstance(text, bytes) else text.encode()
        assert fold_each([raw, raw.decode("utf-8", "surrogateescape")], *path).tolist() == [key, key]


def is_text(value):
    try:
        value.decode() if isinstance(value, bytes) else value.encode()
    except UnicodeError:
        return False
    return True


def test_names_come_as_strings_bytes_lists_and_arrays():
    parts = {"a": 1, "b": 1}
    names = ["x/1.jpg", "x/2.jpg", "größe…", "y", "z", "0"]
    expected = split_of(names, parts, 3).tolist()

    assert len(set(expected)) == 2
    raw = [name.encode() for name in names]
    for keys in (raw, tuple(names), np.array(names), np.array(raw), np.array(names, dtype=object)):
        assert split_of(keys, parts, 3).tolist() == expected
    assert [split_of(key, parts, 3) for key in [*names[:3], *raw[3:]]] == expected
    assert split_of(np.array(names).reshape(2, 3), parts, 3).tolist() == [expected[:3], expected[3:]]
    for empty in ([], (), np.array([], dtype=np.int64), np.array([], dtype="U1"), np.array([], dtype=object)):
        assert split_of(empty, parts).shape == (0,)


@pytest.mark.parametrize(
    ("ids", "kind", "words"),
    [(-1, IndexError, "ids"), ([0, -1], IndexError, "ids"), (2**63, IndexError, "ids"), (1.0, TypeError, "ids"),
     (True, TypeError, "ids"), (None, TypeError, "ids"), ([1, None], TypeError, "ids"), (["a", 1], TypeError, "keys"),
     ([b"a", None], TypeError, "keys"), (["\ud800"], ValueError, "UTF-8"), (object(), TypeError, "ids")],
)  # fmt: skip
def test_bad_ids_are_refused_by_name(ids, kind, words):
    with pytest.raises(kind, match=words) as caught:
        split_of(ids, {"a": 1})
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(
    ("parts", "kind", "words"),
    [
        ({}, ValueError, "empty"),
        ([("a", 1)], TypeError, "dict"),
        (None, TypeError, "dict"),
        ({1: 1}, TypeError, "names"),
        ({"a": 0.9, "b": 0.2}, ValueError, r"add up to 1, these make 1\.1"),
        ({"a": 0.5}, ValueError, r"these make 0\.5"),
        ({"a": 0}, ValueError, "add up to 1"),
        ({"a": 0.0, "b": 0}, ValueError, "add up to 1"),
        ({"a": 2, "b": 0.5}, ValueError, "add up to 1"),
        ({"a": -1, "b": 2}, ValueError, r"parts\['a'\] must be at least 0"),
        ({"a": float("nan")}, ValueError, r"parts\['a'\] must be a finite"),
        ({"a": float("inf")}, ValueError, r"parts\['a'\] must be a finite"),
        ({"a": Decimal("Infinity")}, ValueError, "finite"),
        ({"a": Decimal("NaN")}, ValueError, "finite"),
        ({"a": True}, TypeError, r"parts\['a'\]"),
        ({"a": "1"}, TypeError, r"parts\['a'\]"),
        ({"a": None}, TypeError, r"parts\['a'\]"),
        ({"a": 1j}, TypeError, r"parts\['a'\]"),
    ],
)
def test_bad_parts_are_refused_by_name(parts, kind, words):
    for call in (lambda: split_of(1, parts), lambda: split(10, parts)):
        with pytest.raises(kind, match=words) as caught:
            call()
        assert isinstance(caught.value, DetdataError)


# --- orders ---


@given(orders(), PARTS, SEEDS, EPOCHS)
def test_parts_of_an_order_are_its_own_order_without_the_others(order, parts, seed, epoch):
    ids = order.take(np.arange(order.size), epoch).tolist()
    expected = {name: [id for id in ids if split_of(id, parts, seed) == name] for name in parts}
    if not all(expected.values()):
        with pytest.raises(ValueError, match=r"parts\[.*leave it out"):
            split(order, parts, seed)
        return

    found = split(order, parts, seed)

    assert list(found) == list(parts)
    for name, part in found.items():
        positions = np.arange(part.size)
        assert expected[name] == part.take(positions, epoch).tolist()
        assert part.find(expected[name], epoch).tolist() == positions.tolist()
        assert part.id_bound == order.id_bound
        assert from_spec(json.loads(json.dumps(part.spec()))) == part == pickle.loads(pickle.dumps(part))
        for id in set(ids) - set(expected[name]):
            with pytest.raises(IndexError, match="ids"):
                part.find(id, epoch)


def test_a_number_gives_shuffled_parts():
    parts = split(1000, {"train": 8, "validation": 2}, seed=3)
    train = parts["train"]

    assert (
        sorted(train.take(np.arange(train.size)).tolist())
        == np.flatnonzero(split_of(range(1000), {"train": 8, "validation": 2}, 3) == "train").tolist()
    )
    assert train.take(range(10)).tolist() != train.take(range(10), 1).tolist()
    assert train == Shuffle(split(Sequential(1000), {"train": 8, "validation": 2}, 3)["train"], 3)
    plan = Plan(train, 16)
    assert all(id in plan.batch(plan.when(int(id))).ids for id in train.take(range(0, 160, 16)))


def test_the_spec_of_a_part_is_small_and_forgets_the_other_parts():
    first = split(Shuffle(10**5, 1), {"train": 0.9, "validation": 0.1})
    other = split(Shuffle(10**5, 1), {"train": 0.9, "validation": 0.05, "test": 0.05})

    assert first["train"] == other["train"]
    assert first["validation"] != other["validation"]
    assert len(pickle.dumps(first["train"])) < 500
    spec = first["train"].spec()
    assert from_spec(spec).take(range(5), 3).tolist() == first["train"].take(range(5), 3).tolist()
    assert (spec["start"], spec["stop"]) == (0, 9 * 2**64 // 10)


class TestSplitPart(OrderSuite):
    orders = (
        SplitPart(Shuffle(1000, 1), 0, 2**63, 2),
        SplitPart(Sequential(4), 0, 2**64),
        SplitPart(Shuffle(3000, 1), 2**62, 2**64, 5),
        SplitPart(Shuffle(Concat({"a": Subset(Sequential(500), range(0, 500, 3)), "b": Shuffle(70)})), 2**60, 2**63),
        *split(Shuffle(200), {"a": 1, "b": 2, "c": 1}).values(),
    )

    def test_epochs_differ_unless_declared(self):
        pass  # one of them is of an order that is the same in each


@pytest.mark.parametrize(
    "change",
    [{"start": -1}, {"start": 2**63 + 1}, {"start": 1.0}, {"stop": 2**64 + 1}, {"stop": None}, {"stop": 0},
     {"seed": -1}, {"seed": True}, {"order": 5}, {"order": Sequential(9).spec(), "stop": 1}, {"order": None},
     {"parts": {}}],
)  # fmt: skip
def test_a_hostile_spec_is_refused(change):
    spec = {**SplitPart(Shuffle(100), 0, 2**63).spec(), **change}
    with pytest.raises(DetdataError):
        from_spec(spec)


def test_orders_without_a_place_for_each_id_are_refused_with_what_to_do_instead():
    parts = {"train": 3, "validation": 1}
    labels = np.arange(100) % 5
    for order in (Weighted(np.ones(100)), GroupShuffle(labels, 2, 2)):
        with pytest.raises(TypeError, match=r"split its dataset: .*GroupShuffle\(labels.*Weighted\(weights \* used\)"):
            split(order, parts)
    used = split_of(range(100), parts) == "train"
    grouped = GroupShuffle(labels, 2, 2, ids=np.flatnonzero(used))
    drawn = Weighted(np.ones(100) * used, size=1000)
    assert used[grouped.take(np.arange(grouped.size))].all()
    assert used[drawn.take(np.arange(1000))].all()
    with pytest.raises(TypeError):
        split("10", parts)
    with pytest.raises(ValueError, match="empty"):
        split(0, parts)
