"""Mixtures against a walk that counts draw by draw, written from the page (tests/second_mixture.py)."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from itertools import accumulate

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from detdata import Shuffle, from_spec
from detdata.orders.mixture import Mixture
from tests.orders.mixture_strategies import MANY, SOME, STOPS, changed, mixtures
from tests.second_mixture import Walk


def walked(mixture, epochs):
    """(the walk of a mixture's spec, how many whole epochs of it there are, at most `epochs`)."""
    spec = json.loads(json.dumps(mixture.spec()))
    walk = Walk(spec, epochs * mixture.size if spec["stop"] is None else None)
    assert walk.size == mixture.size
    return walk, epochs if spec["stop"] else min(epochs, len(walk.draws) // mixture.size)


def ids_of(mixture, epoch):
    return mixture.take(np.arange(mixture.size), epoch).tolist()


def walked_ids(mixture, walk, epoch):
    """The ids of an epoch, as the walk has them; each source is asked for its own passes, whole."""
    orders = [from_spec(spec) for spec in walk.orders]
    bases = [0, *accumulate(order.id_bound for order in orders)]
    addresses = [walk.address(p, epoch) for p in range(mixture.size)]
    known = {(i, number): orders[i].take(np.arange(orders[i].size), number) for i, number, _ in set(addresses)}
    return [bases[i] + int(known[i, number][place]) for i, number, place in addresses]


@MANY
@given(mixtures(), st.integers(0, 2))
def test_every_id_is_what_a_walk_with_counters_gives(mixture, epoch):
    walk, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)

    assert walked_ids(mixture, walk, epoch) == ids_of(mixture, epoch)


@SOME
@given(mixtures(rules=STOPS), st.integers(0, 2**40))
def test_with_a_stopping_rule_any_epoch_is_what_the_walk_gives(mixture, epoch):
    walk, _ = walked(mixture, 1)

    assert walked_ids(mixture, walk, epoch) == ids_of(mixture, epoch)


@SOME
@given(mixtures(depth=1, changes=1), st.integers(0, 1))
def test_nested_mixtures_are_what_nested_walks_give(mixture, epoch):
    walk, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)
    positions = range(0, mixture.size, max(1, mixture.size // 6))

    assert [walk.take(p, epoch) for p in positions] == mixture.take(positions, epoch).tolist()


@SOME
@given(mixtures(depth=1, changes=2), st.integers(0, 2), st.data())
def test_find_gives_the_first_position_of_an_id_and_find_all_every_one(mixture, epoch, data):
    _, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)
    places = {}
    for position, id in enumerate(ids_of(mixture, epoch)):
        places.setdefault(id, []).append(position)

    everything = np.arange(mixture.id_bound)
    assert [places.get(id, [-1])[0] for id in everything] == mixture._find(everything, epoch).tolist()
    for id in data.draw(st.lists(st.integers(0, mixture.id_bound - 1), max_size=5)):
        found = mixture.find_all(id, epoch)
        assert places.get(id, []) == found.tolist()
        assert found.dtype == np.int64


@MANY
@given(mixtures(), st.integers(0, 2), st.data())
def test_counts_and_passes_are_those_of_the_walk(mixture, epoch, data):
    walk, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)
    p = data.draw(st.integers(0, mixture.size))
    rows = [walk.address(q, epoch) for q in range(mixture.size)]
    had = Counter(source for source, _, _ in rows[:p])
    if mixture.spec()["stop"] is None:
        had += Counter(source for source, _ in walk.draws[: epoch * mixture.size])
    else:
        had += Counter({source: epoch * count for source, count in enumerate(walk.C)})

    assert [had[i] for i in range(len(mixture.names))] == list(mixture.counts(p, epoch).values())
    assert [walk.names[source] for source, _, _ in rows] == [
        mixture.names[source] for source in mixture.source_of(ids_of(mixture, epoch))
    ]
    coming = {source: (number, place) for source, number, place in reversed(rows[p:])}
    standing = list(mixture.passes(p, epoch).values())
    assert coming == {source: standing[source] for source in coming}


@MANY
@given(mixtures(changes=2), st.data())
def test_reweighting_changes_nothing_before_and_loses_and_repeats_nothing_after(mixture, data):
    try:
        position, after = data.draw(changed(mixture))
    except ValueError:
        assume(False)
    walk, _ = walked(mixture, -(-position // mixture.size))
    spec = after.spec()
    later = Walk(spec, position + 100 if spec["stop"] is None else None)
    assume(len(later.draws) >= position)  # a change of nothing may lie beyond the end

    assert walk.draws[:position] == later.draws[:position]
    had = Counter()
    for source, number in later.draws:
        assert had[source] == number  # each source goes on exactly where it was
        had[source] += 1
    n = mixture.size
    if spec["stop"] is None:
        epochs, rest = divmod(position, n)
        assert [ids_of(mixture, e) for e in range(epochs)] == [ids_of(after, e) for e in range(epochs)]
        assert after.agrees(mixture, rest, epochs)
    else:
        rest, epochs = position, 0
        assert after.agrees(mixture, rest)
    assert mixture.take(range(rest), epochs).tolist() == after.take(range(rest), epochs).tolist()


@MANY
@given(mixtures(), st.integers(0, 3), st.data())
def test_no_source_repeats_before_it_is_used_up(mixture, epoch, data):
    walk, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)
    passes = {}
    for p, id in enumerate(ids_of(mixture, epoch)):
        source, number, _ = walk.address(p, epoch)
        passes.setdefault((source, number), []).append(id)
    for (source, number), ids in passes.items():
        assert len(ids) == len(set(ids)) or isinstance(mixture._orders[source], Mixture)
        higher = [n for s, n in passes if s == source and n > number]
        if higher and mixture.spec()["stop"] is None and number > min(n for s, n in passes if s == source):
            assert len(ids) == walk.s[source]


@SOME
@given(mixtures(), st.integers(0, 2))
def test_a_spec_and_a_pickle_rebuild_the_mixture(mixture, epoch):
    _, epochs = walked(mixture, epoch + 1)
    assume(epoch < epochs)
    for copy in (from_spec(json.loads(json.dumps(mixture.spec()))), pickle.loads(pickle.dumps(mixture))):
        assert copy == mixture
        assert hash(copy) == hash(mixture)
        assert ids_of(copy, epoch) == ids_of(mixture, epoch)


@SOME
@given(mixtures(rules=["size"]), st.integers(1, 150), st.integers(0, 300))
def test_epochs_only_cut_the_run(mixture, size, draw):
    """What a draw of the run brings does not depend on how long an epoch is."""
    spec = mixture.spec()
    end = len(Walk(spec, 400).draws)
    assume(size <= end and draw < end)
    other = from_spec({**spec, "size": size})

    here, there = divmod(draw, mixture.size), divmod(draw, size)
    assert mixture.take(here[1], here[0]) == other.take(there[1], there[0])
    assert mixture.counts(here[1], here[0]) == other.counts(there[1], there[0])


@SOME
@given(mixtures(), st.data())
def test_an_id_depends_on_its_own_position_only(mixture, data):
    whole = mixture.take(np.arange(mixture.size))
    some = data.draw(st.lists(st.integers(0, mixture.size - 1), max_size=30))
    shaped = np.array(some * 2, dtype=np.int64).reshape(2, len(some))

    assert np.array_equal(whole[shaped], mixture.take(shaped))
    assert [int(whole[p]) for p in some] == [int(mixture.take(p)) for p in some]


def test_stopping_rules_end_where_they_say():
    made = {"a": Shuffle(30, 1), "b": Shuffle(7, 2), "c": Shuffle(200, 3)}
    weights = {"a": 3, "b": 1, "c": 4}
    for seed in range(20):
        first, every, once = (Mixture(made, weights, seed, stop=stop) for stop in STOPS)
        for epoch in (0, 5):
            a, b, c = ({id for id in ids_of(m, epoch) if m.source_of(id) == i} for i, m in enumerate([first] * 3))
            assert [len(a) == 30, len(b) == 7, len(c) == 200].count(True) == 1
            assert set(range(237)) == set(ids_of(every, epoch))
            assert set(ids_of(every, epoch)[:-1]) != set(range(237))
            assert list(range(237)) == sorted(ids_of(once, epoch))
