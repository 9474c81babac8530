"""How near a mixture is to its weights, and that it stays exact at sizes that no one can walk."""

from __future__ import annotations

import pickle
from fractions import Fraction
from itertools import pairwise
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential, Shuffle, from_spec
from detdata.orders.mixture import Mixture
from detdata.orders.segments import MAX_DRAWS
from detdata.testing import OrderSuite
from tests.orders.mixture_strategies import SOME

SHARES = st.one_of(
    st.integers(1, 1000), st.floats(1e-4, 1, allow_nan=False), st.just(1e-4), st.sampled_from([0.001, 0.999])
)
DRAWS = st.one_of(st.integers(0, 5000), st.integers(0, 2**33), st.integers(2**53, 2**61))


@SOME
@given(st.lists(SHARES, min_size=1, max_size=20), st.integers(0, 2**63 - 1), DRAWS, DRAWS)
def test_each_source_is_as_near_to_its_share_as_promised(weights, seed, start, k):
    made = {f"s{i}": Shuffle(10**6 + i, i) for i in range(len(weights))}
    everything = {name: Fraction(weight) for name, weight in zip(made, weights, strict=True)}
    total, depth = sum(everything.values()), ceil(log2(len(weights)))
    mixture = Mixture(made, dict.fromkeys(made, 1), seed, size=2**62).reweighted(start, everything)
    block = mixture._run._timeline.segments[-1].quotas.block
    base = mixture.counts(start)

    def off(draws):
        counts = mixture.counts(start + draws)
        assert start + draws == sum(counts.values())
        return max(abs(counts[name] - base[name] - draws * w / total) for name, w in everything.items())

    assert off(k - k % block) < 1
    assert off(k - k % 32) < depth + 1
    assert off(k) < depth + 9


@pytest.mark.parametrize("start", [2**31 - 300, 2**32, 2**53 - 100, 2**53 + 1, 2**61 + 12345])
def test_draws_beyond_any_float_are_exact(start):
    made = {"a": Shuffle(1, 1), "b": Shuffle(1000, 2), "c": Shuffle(10**12, 3)}
    mixture = Mixture(made, {"a": 0.7, "b": 0.2999, "c": 0.0001}, 5, size=2**62).reweighted(2**60, {"a": 0.1})
    positions = np.arange(start, start + 700)
    ids = mixture.take(positions)
    sources = mixture.source_of(ids)
    had = np.array(list(mixture.counts(start).values()))
    for position, id, source in zip(positions.tolist(), ids.tolist(), sources.tolist(), strict=True):
        number, place = divmod(int(had[source]), list(made.values())[source].size)
        assert id == [0, 1, 1001][source] + int(list(made.values())[source].take(place, number))
        had[source] += 1
        if position % 100 == 0:
            assert had.tolist() == list(mixture.counts(position + 1).values())
    assert sum(had.tolist()) == start + 700


def test_a_distant_epoch_is_as_exact_as_the_first():
    made = {"a": Shuffle(70_000, 1), "b": Shuffle(50, 2)}
    mixture = Mixture(made, {"a": 2, "b": 1}, 1, size=1000)
    epoch = (2**63 - 2**32) // 1000 - 1
    ids = mixture.take(np.arange(1000), epoch)
    for id in ids[::97].tolist():
        found = mixture.find_all(id, epoch)
        assert set(mixture.take(found, epoch).tolist()) == {id}
        assert np.flatnonzero(ids == id).tolist() == found.tolist()
    with pytest.raises(ValueError, match="epoch"):
        mixture.take(0, epoch + 1)


def test_a_thousand_sources_of_any_weight():
    made = {f"s{i}": Shuffle(70_000 + i, i) for i in range(1000)}
    mixture = Mixture(made, {name: 1 + i for i, name in enumerate(made)}, 3, size=10**9)
    ids = mixture.take(np.arange(10**6, 10**6 + 512), 3)
    counts, after = mixture.counts(10**6, 3), mixture.counts(10**6 + 512, 3)

    drawn = np.bincount(mixture.source_of(ids), minlength=1000).tolist()
    assert [after[name] - counts[name] for name in made] == drawn
    total = sum(range(1, 1001))
    k = 3 * 10**9 + 10**6
    assert max(abs(counts[name] - Fraction(k * (1 + i), total)) for i, name in enumerate(made)) < 10 + 9
    assert np.array_equal(ids, mixture.take(mixture.find(ids, 3), 3))


def test_two_hundred_sources_once_each():
    made = {f"s{i}": Shuffle(1 + i % 7, i) for i in range(200)}
    mixture = Mixture(made, {name: 1 + i % 5 for i, name in enumerate(made)}, 1, stop="all_once")

    assert sum(order.size for order in made.values()) == mixture.size
    assert list(range(mixture.size)) == sorted(mixture.take(np.arange(mixture.size), 2).tolist())


def test_huge_sources_once_each():
    made = {"a": Shuffle(2**60, 1), "b": Shuffle(2**33, 2), "c": Sequential(1)}
    mixture = Mixture(made, {"a": 0.5, "b": 0.49, "c": 0.01}, 1, stop="all_once")
    positions = np.unique(np.linspace(0, mixture.size - 1, 300).astype(np.int64))

    assert mixture.size == 2**60 + 2**33 + 1
    assert np.array_equal(positions, mixture.find(mixture.take(positions, 1), 1))
    assert mixture.take(mixture.find(2**60 + 2**33)) == 2**60 + 2**33


def test_limits_and_rules_are_found_without_walking():
    made = {"big": Shuffle(10**12, 1), "small": Shuffle(10**9, 2), "tiny": Shuffle(3, 3)}
    weights = {"big": 0.6, "small": 0.3999, "tiny": 0.0001}
    first = Mixture({name: made[name] for name in ("big", "small")}, {"big": 0.6, "small": 0.4}, 1)
    assert abs(first.size - 10**9 / Fraction(0.4)) < 40
    assert first.counts(first.size)["small"] == 10**9
    assert first.counts(first.size - 1)["small"] == 10**9 - 1
    limited = Mixture(made, weights, 1, size=10**12, limits={"small": 3, "tiny": 1})
    counts = limited.counts(limited.size)
    assert (counts["small"], counts["tiny"]) == (3 * 10**9, 3)
    assert limited.passes(limited.size)["small"] == (3, 0)


def test_the_order_is_mixed_by_the_key():
    made = {"a": Sequential(10**6), "b": Sequential(10**6)}
    labels = [Mixture(made, {"a": 1, "b": 1}, seed, size=10**6).take(np.arange(4096)) >= 10**6 for seed in range(4)]
    for one in labels:
        for lag in (1, 2, 32, 256, 512, 1024):  # no period, neither of a stretch nor of a block
            assert abs((one[:-lag] == one[lag:]).mean() - 0.5) < 0.05
    for one, other in pairwise(labels):
        assert abs((one == other).mean() - 0.5) < 0.05


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 8])
def test_every_world_size_and_every_step_sees_the_same_mixture(world_size):
    made = {"a": Shuffle(50, 1), "b": Shuffle(500, 2)}
    mixture = Mixture(made, {"a": 1, "b": 1}, 4, size=400).reweighted(170, {"a": 3})
    straight = Plan(mixture, 24, "carry")
    for step in range(40):
        plan = from_spec(pickle.loads(pickle.dumps(straight)).spec())  # as a new process would
        ids = np.empty(24, dtype=np.int64)
        for rank in range(world_size):
            ids[rank::world_size] = plan.shard(step, rank, world_size).ids
        assert straight.batch(step).ids.tolist() == ids.tolist()
    halved = straight.resized(7, 12)
    rest = np.concatenate([halved.batch(step).ids for step in range(7, 27)])
    assert np.concatenate([straight.batch(step).ids for step in range(7, 17)]).tolist() == rest.tolist()


def test_a_plan_knows_when_a_sample_is_used_if_at_all():
    mixture = Mixture({"a": Shuffle(50, 1), "b": Shuffle(500, 2)}, {"a": 1, "b": 1}, 4, size=400)
    plan = Plan(mixture, 16)
    for epoch in (0, 1, 2):
        seen = {}
        for step in range(25 * epoch, 25 * epoch + 25):
            for id in plan.batch(step).ids.tolist():
                seen.setdefault(id, step)
        assert [seen.get(id) for id in range(550)] == [plan.when(id, epoch) for id in range(550)]
        unused = next(id for id in range(550) if id not in seen)
        with pytest.raises(IndexError, match=str(unused)):
            mixture.find(unused, epoch)


class TestAllOnce(OrderSuite):
    """Each id once an epoch: the laws of every order hold."""

    orders = (
        Mixture({"a": Shuffle(1)}, {"a": 1}, stop="all_once"),
        Mixture({"a": Shuffle(300), "b": Shuffle(40)}, {"a": 0.5, "b": 0.5}, stop="all_once"),
        Mixture({"a": Shuffle(300), "b": Shuffle(40)}, {"a": 0.5, "b": 0.5}, 1, stop="all_once"),
    )


def test_the_most_draws_of_a_run_are_named():
    mixture = Mixture({"a": Shuffle(10)}, {"a": 1}, size=2**62)
    with pytest.raises(ValueError, match=r"2\*\*63"):
        mixture.counts(0, 1)
    assert mixture.counts(2**62)["a"] == 2**62
    later = mixture.reweighted(MAX_DRAWS, {"a": 2})
    with pytest.raises(ValueError, match="position"):
        mixture.reweighted(MAX_DRAWS + 1, {"a": 2})
    assert later.take(5) == mixture.take(5)
