"""GroupShuffle: every batch has c groups with k members each; nothing twice; as many batches as there can be."""

import copy
import json
import pickle
from collections import Counter
from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from detdata import Plan, Sequential, from_spec
from detdata.errors import DetdataError
from detdata.orders.groups import GroupShuffle
from detdata.orders.tables import rebuild
from detdata.testing import OrderSuite
from tests.orders import second_orders
from tests.orders.strategies import EPOCHS, SEEDS


@st.composite
def shapes(draw, most=80):
    """(labels, c, k, ids or None) of which at least one batch can be made."""
    groups = draw(st.integers(1, 12))
    labels = draw(st.lists(st.integers(0, groups - 1), min_size=1, max_size=most))
    labels = [label * draw(st.sampled_from([1, 7])) - 3 for label in labels]
    k = draw(st.integers(1, 4))
    ids = draw(st.none() | st.sets(st.integers(0, len(labels) - 1), min_size=1).map(sorted))
    sizes = Counter(labels if ids is None else [labels[id] for id in ids])
    usable = sum(size >= k for size in sizes.values())
    assume(usable)
    return labels, draw(st.integers(1, usable)), k, ids


def most_batches(labels, c, k, ids):
    """By trying every number: a group of n members has n // k tuples, and at most one of them in a batch."""
    tuples = [size // k for size in Counter(labels if ids is None else [labels[id] for id in ids]).values()]
    return max(M for M in range(1, sum(tuples) + 1) if sum(min(t, M) for t in tuples) >= c * M)


# --- batches ---


@given(shapes(), SEEDS, EPOCHS)
def test_batches_are_those_that_the_page_gives(shape, seed, epoch):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    numbers = second_orders.group_numbers(labels, ids)

    expected = second_orders.group_batches(numbers, c, k, seed, epoch)

    assert second_orders.digest_of(numbers) == order.spec()["labels"]
    assert expected == order.take(np.arange(order.size), epoch).reshape(-1, c * k).tolist()


@given(shapes(), SEEDS, EPOCHS)
def test_every_batch_has_c_groups_with_k_members_and_nothing_comes_twice(shape, seed, epoch):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    plan = Plan(order, order.batch_size)
    assert order.batches == plan.steps() == most_batches(labels, c, k, ids)

    seen = Counter()
    for step in range(plan.steps()):
        batch = Plan(order, order.batch_size).batch(plan.first_step(0) + step)
        rows = order.take(np.arange(batch.start, batch.start + c * k), epoch)
        seen.update(rows.tolist())
        groups = [[labels[id] for id in rows[slot::c]] for slot in range(c)]
        assert [len(set(group)) for group in groups] == [1] * c
        assert len({group[0] for group in groups}) == c
    assert set(seen.values()) == {1}
    assert set(seen) <= (set(range(len(labels))) if ids is None else set(ids))
    assert order.left_out == len(labels if ids is None else ids) - len(seen)
    assert order.size == len(order) == len(seen)


@given(shapes(), SEEDS, EPOCHS)
def test_find_is_the_inverse_and_names_what_an_epoch_leaves_out(shape, seed, epoch):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    plan = Plan(order, order.batch_size)
    taken = order.take(np.arange(order.size), epoch)

    assert order.find(taken, epoch).tolist() == list(range(order.size))
    for id in set(range(len(labels))) - set(taken.tolist()):
        with pytest.raises(IndexError, match=f"sample id {id} is not used in epoch {epoch} "):
            order.find(id, epoch)
        assert plan.when(id, epoch) is None
    for row in (0, order.size - 1):
        assert int(taken[row]) in order.take(np.arange(row // (c * k) * c * k, order.size), epoch)[: c * k]
    if epoch < 2**40:
        id = int(taken[0])
        assert id in plan.batch(plan.when(id, epoch)).ids


@given(shapes(), SEEDS, EPOCHS, st.data())
def test_an_id_depends_on_its_own_position_only(shape, seed, epoch, data):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    taken = order.take(np.arange(order.size), epoch)
    some = data.draw(st.lists(st.integers(0, order.size - 1), max_size=20))
    shaped = np.array(some * 2, dtype=np.int64).reshape(2, len(some))
    fresh = GroupShuffle(labels, c, k, seed, ids=ids)

    assert taken.dtype == np.int64
    assert np.array_equal(taken[shaped], fresh.take(shaped, epoch))
    assert [int(taken[p]) for p in some] == [int(fresh.take(p, epoch)) for p in some]
    assert np.array_equal(shaped, fresh.find(fresh.take(shaped, epoch), epoch))


@pytest.mark.parametrize(("groups", "members", "c", "k"), [(3000, 7, 40, 2), (70_000, 3, 700, 3), (5, 9000, 4, 2)])
def test_many_rounds_and_many_groups_at_once(groups, members, c, k):
    labels = np.arange(groups * members) % groups
    order = GroupShuffle(labels, c, k, seed=3)

    ids = order.take(np.arange(order.size), 2)

    assert np.unique(ids).size == order.size
    table = labels[ids].reshape(order.batches, k, c)
    assert (table == table[:, :1]).all()
    assert (np.diff(np.sort(table[:, 0], axis=1), axis=1) > 0).all()
    some = ids[:: order.size // 997]
    assert order.find(some, 2).tolist() == list(range(0, order.size, order.size // 997))
    backwards = order.take(np.arange(order.size)[::-1], 2)
    assert np.array_equal(ids, backwards[::-1])


# --- worlds, resuming, accumulation ---


@given(shapes(), SEEDS, st.integers(0, 10**6), st.data())
def test_a_rank_has_whole_groups_where_the_world_size_divides_c(shape, seed, step, data):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    plan = Plan(order, order.batch_size)
    world = data.draw(st.sampled_from([W for W in range(1, c + 1) if c % W == 0]))

    parts = [plan.shard(step, rank, world).ids.tolist() for rank in range(world)]

    assert plan.batch(step).ids.tolist() == [id for row in zip(*parts, strict=True) for id in row]
    for part in parts:
        assert sorted(Counter(labels[id] for id in part).values()) == [k] * (c // world)


@given(shapes(), SEEDS, st.integers(1, 3), st.data())
def test_micro_steps_are_group_batches_and_accumulation_changes_on_the_way(shape, seed, micro_steps, data):
    labels, c, k, ids = shape
    order = GroupShuffle(labels, c, k, seed, ids=ids)
    single = Plan(order, c * k, tail="carry")
    change = data.draw(st.integers(0, 10))
    plan = single.resized(change, micro_steps * c * k)

    batches = iter(range(10**6))
    for step in range(15):
        for micro in range(micro_steps if step >= change else 1):
            part = plan.shard(step, micro_step=micro, micro_steps=micro_steps if step >= change else 1)
            assert part.ids.tolist() == single.batch(next(batches)).ids.tolist()
            assert sorted(Counter(labels[id] for id in part.ids.tolist()).values()) == [k] * c


# --- epochs ---


def composition(order, labels, epoch):
    rows = labels[order.take(np.arange(order.size), epoch)].reshape(order.batches, order.batch_size)
    return {tuple(sorted(set(row.tolist()))) for row in rows}


def test_who_meets_changes_with_the_epoch_the_seed_and_the_batch():
    labels = np.repeat(np.arange(40), 25)
    orders = [GroupShuffle(labels, 8, 2, seed) for seed in (0, 1)]
    batches = [composition(order, labels, epoch) for order in orders for epoch in (0, 1, 2**63 - 1)]

    assert all(len(batch) == 60 for batch in batches)  # nowhere the same eight groups twice
    assert len(set.union(*batches)) == 6 * 60
    pairs = [frozenset(zip(*[order.take(np.arange(s, order.size, 16)).tolist() for s in (0, 8)], strict=True))
             for order in orders]  # fmt: skip
    assert len(pairs[0] & pairs[1]) < 5


def test_a_group_meets_many_others_within_an_epoch():
    labels = np.repeat(np.arange(1000), 48)
    order = GroupShuffle(labels, 16, 4, seed=5)
    rows = labels[order.take(np.arange(order.size))].reshape(order.batches, 64)[:, :16]
    met = np.zeros((1000, 1000), dtype=int)
    for row in rows:
        met[np.ix_(row, row)] += 1
    np.fill_diagonal(met, 0)

    assert rows.shape == (750, 16)
    assert (met.sum(axis=1) == 12 * 15).all()
    # Drawn by chance, 180 meetings are with 999 · (1 - (1 - 1/999)^180) = 165 different ones.
    assert abs((met > 0).sum(axis=1).mean() - 165) < 5
    assert met.max() < 8


def test_few_groups_come_in_all_combinations():
    labels = np.arange(6000) % 6
    order = GroupShuffle(labels, 3, 2, seed=1)
    found = Counter()
    for epoch in range(3):
        rows = labels[order.take(np.arange(order.size), epoch)].reshape(order.batches, 6)[:, :3]
        found.update(tuple(sorted(row.tolist())) for row in rows)

    assert len(found) == 20  # of 6 over 3
    assert min(found.values()) > 0.7 * max(found.values())


def test_what_is_left_out_changes_and_in_the_long_run_all_are_used_alike():
    labels = np.repeat([0, 1, 2, 3], [5, 7, 9, 3])
    order = GroupShuffle(labels, 2, 2, seed=4)
    epochs = 4000
    used = Counter()
    sets = set()
    for epoch in range(epochs):
        ids = order.take(np.arange(order.size), epoch).tolist()
        used.update(ids)
        sets.add(frozenset(ids))

    assert order.left_out == 24 - order.size > 0
    assert len(sets) > 500  # of some 945 that there are
    for label in range(4):  # members of one group come equally often
        counts = np.array([used[id] for id in np.flatnonzero(labels == label).tolist()])
        share = counts.mean() / epochs
        assert (np.abs(counts - counts.mean()) < 5 * sqrt(epochs * share * (1 - share)) + 1).all()


def test_members_of_a_group_meet_each_other_equally_often():
    labels = np.repeat(np.arange(3), [5, 8, 90])
    order = GroupShuffle(labels, 1, 2, seed=9)
    met = Counter()
    for epoch in range(3000):
        pairs = order.take(np.arange(order.size), epoch).reshape(-1, 2)
        met.update(tuple(sorted(pair)) for pair in pairs.tolist() if pair[1] < 13)

    assert len(met) == 10 + 28
    for first, last, pairs in ((0, 5, 2), (5, 13, 4)):
        counts = np.array([count for (one, _), count in met.items() if first <= one < last])
        mean = 3000 * pairs / counts.size
        assert counts.mean() == mean
        assert (np.abs(counts - mean) < 5 * sqrt(mean)).all()


def test_pairs_stay_together_and_no_group_twice_in_a_batch():
    labels = np.arange(200) // 2  # two views of each of 100
    order = GroupShuffle(labels, 10, 2, seed=0)
    rows = order.take(np.arange(order.size), 3).reshape(10, 2, 10)
    assert order.left_out == 0
    assert (rows[:, 0] // 2 == rows[:, 1] // 2).all()

    order = GroupShuffle(np.arange(60) % 6, 6, 1, seed=0)
    assert order.left_out == 0
    assert all(sorted(batch % 6) == list(range(6)) for batch in order.take(np.arange(60)).reshape(10, 6))


# --- the order as such ---


class TestLaws(OrderSuite):
    """All laws but one: which ids come changes with the epoch."""

    orders = (
        GroupShuffle(np.arange(300) % 7, 3, 2, seed=1),
        GroupShuffle([0, 1], 1, 1),
        GroupShuffle(np.arange(40) // 2, 20, 2),
        GroupShuffle(np.arange(40) // 2, 5, 2, seed=3, ids=range(10, 40)),
    )
    largest_pickle = 20_000

    def test_spec_and_pickle_rebuild_the_order(self):
        for order in self.orders:
            spec = json.loads(json.dumps(order.spec()))
            for other in (copy.copy(order), copy.deepcopy(order), pickle.loads(pickle.dumps(order)),
                          rebuild(spec, order._tables())):  # fmt: skip
                assert other == order
                assert hash(other) == hash(order)
                assert np.array_equal(order.take(np.arange(order.size), 7), other.take(np.arange(order.size), 7))

    def test_each_epoch_is_exact(self):
        for order in self.orders:
            for epoch in self.epochs:
                ids = order.take(np.arange(order.size), epoch)
                assert np.unique(ids).size == order.size


def test_a_spec_is_rebuilt_with_its_labels_and_with_no_others():
    labels = np.arange(20) % 5
    order = GroupShuffle(labels, 2, 2, seed=2, ids=range(15))
    spec = order.spec()

    assert GroupShuffle.from_spec(spec, labels, ids=range(15)) == order
    assert GroupShuffle.from_spec(spec, labels * 10 - 7, ids=range(15)) == order  # the same groups in the same order
    assert GroupShuffle(labels, 2, 2, ids=range(20)) == GroupShuffle(labels, 2, 2)
    assert rebuild(Plan(order, 4).spec(), order._tables()) == Plan(order, 4)
    assert len(json.dumps(GroupShuffle(np.arange(10**5), 2, 1).spec())) < 300
    with pytest.raises(ValueError, match=r"GroupShuffle\.from_spec\(spec, labels\)"):
        from_spec(spec)
    for other in (labels[::-1], labels[:-1], -labels):
        with pytest.raises(ValueError, match=r"labels.*others"):
            GroupShuffle.from_spec(spec, other, ids=range(15))
    with pytest.raises(ValueError, match="others"):
        GroupShuffle.from_spec(spec, labels)
    with pytest.raises(TypeError, match="spec"):
        GroupShuffle.from_spec(Sequential(3).spec(), labels)


@pytest.mark.parametrize(
    "change",
    [{"n": 5}, {"n": "4"}, {"seed": -1}, {"groups_per_batch": 0}, {"groups_per_batch": 3}, {"samples_per_group": 9},
     {"samples_per_group": None}, {"labels": 5}, {"labels": None}, {"labels": "xxh3-128:00"}, {"ids": []}],
)  # fmt: skip
def test_a_hostile_spec_is_refused(change):
    spec = {**GroupShuffle([0, 0, 1, 1], 2, 2).spec(), **change}
    for build in (from_spec, lambda spec: GroupShuffle.from_spec(spec, [0, 0, 1, 1])):
        with pytest.raises(DetdataError):
            build(spec)


def test_a_table_of_another_kind_is_not_taken():
    order = GroupShuffle([0, 0, 1, 1], 2, 2)
    with pytest.raises(ValueError, match="labels"):
        rebuild(order.spec(), {order.spec()["labels"]: "something else"})


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (([0, 0, 1], 2, 2), ValueError, "groups_per_batch is 2, but only 1 of the 2 groups .* = 2 members.* has 2"),
        (([0, 1], 3, 1), ValueError, "only 2 of the 2 groups"),
        (([], 1, 1), ValueError, "labels is empty"),
        (([0.0], 1, 1), TypeError, "labels"),
        ((["a"], 1, 1), TypeError, "return_inverse"),
        (([True], 1, 1), TypeError, "labels"),
        (([[0]], 1, 1), TypeError, "one dimension"),
        (([0], 0, 1), ValueError, "groups_per_batch"),
        (([0], 1, 0), ValueError, "samples_per_group"),
        (([0], 1.0, 1), TypeError, "groups_per_batch"),
        (([0], 1, True), TypeError, "samples_per_group"),
        (([0], 2**20, 2**20), ValueError, "groups_per_batch x samples_per_group"),
        (([0], 1, 1, -1), ValueError, "seed"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_by_name(arguments, kind, words):
    with pytest.raises(kind, match=words) as caught:
        GroupShuffle(*arguments)
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(("ids", "kind"), [([], ValueError), ([1, 1], ValueError), ([4], IndexError),
                                           ([-1], IndexError), ([0.0], TypeError), ("0", TypeError)])  # fmt: skip
def test_bad_ids_are_refused_by_name(ids, kind):
    with pytest.raises(kind, match="ids"):
        GroupShuffle([0, 1, 0, 1], 1, 1, ids=ids)
