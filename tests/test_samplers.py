"""The samplers for a plain DataLoader: torch's own as a witness, and a position that survives everything."""

import json
import pickle

import numpy as np
import pytest
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from detdata import (
    DistributedSampler,
    Sequential,
    Shuffle,
    StateMismatch,
    UnknownFormat,
)
from tests.torch_side import FORK, Ids, as_list, in_new_process, joined, rest_of_sampler

ATTRIBUTES = ("num_replicas", "rank", "num_samples", "total_size", "seed", "shuffle", "drop_last", "epoch")


def sampler(n, world_size=1, rank=0, **arguments):
    return DistributedSampler(range(n), world_size, rank, **arguments)


# --- DistributedSampler: torch's contract -----------------------------------------------------------------------------


@given(
    n=st.integers(0, 200),
    world_size=st.integers(1, 17),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 50),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_torch_order_gives_the_ids_and_sizes_of_torchs_sampler(n, world_size, seed, epoch, drop_last, shuffle):
    if n == 0 and not drop_last:
        return  # torch divides by zero there; see the tests of empty datasets
    arguments = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
    for rank in range(world_size):
        theirs = torch.utils.data.DistributedSampler(range(n), world_size, rank, **arguments)
        theirs.set_epoch(epoch)
        ours = sampler(n, world_size, rank, order="torch", **arguments)
        ours.set_epoch(epoch)

        assert [getattr(theirs, name) for name in ATTRIBUTES] == [getattr(ours, name) for name in ATTRIBUTES]
        assert len(theirs) == len(ours)
        assert list(theirs) == list(ours)


def test_torch_order_goes_on_a_run_that_torchs_sampler_began():
    theirs = torch.utils.data.DistributedSampler(range(101), 4, 3, seed=5)
    ours = sampler(101, 4, 3, seed=5, order="torch")
    for epoch in range(4):
        theirs.set_epoch(epoch)
        assert list(theirs) == list(ours)


@given(
    n=st.integers(1, 200),
    world_size=st.integers(1, 17),
    seed=st.integers(0, 2**63 - 1),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_keyed_ranks_together_cover_the_order_and_the_padding_repeats_its_front(
    n, world_size, seed, drop_last, shuffle
):
    ranks = [
        sampler(n, world_size, rank, seed=seed, drop_last=drop_last, shuffle=shuffle) for rank in range(world_size)
    ]
    order = Shuffle(n, seed) if shuffle else Sequential(n)
    for epoch in range(2):
        ids = order.take(np.arange(n), epoch).tolist()
        expected = ids[: n // world_size * world_size] if drop_last else ids * -(-world_size // n)
        if not drop_last:
            expected = (ids + expected)[: -(-n // world_size) * world_size]

        parts = [list(one) for one in ranks]

        assert expected == [part[k] for k in range(ranks[0].num_samples) for part in parts]
        assert all(len(part) == len(one) for part, one in zip(parts, ranks, strict=True))


def test_it_is_a_torch_sampler_and_yields_python_ints():
    one = sampler(10)
    assert isinstance(one, torch.utils.data.Sampler)
    assert {int} == {type(id) for id in one}


def test_numpy_integers_are_accepted_and_widened():
    one = DistributedSampler(range(300), np.int8(4), np.uint8(3), seed=np.int32(7))
    assert list(one) == list(sampler(300, 4, 3, seed=7))
    one.set_epoch(np.int64(0))
    one.resume(np.int32(300 + 40))
    assert (one.epoch, len(list(one))) == (1, 65)
    json.dumps(one.state_dict())


def test_the_ranks_come_from_the_environment_where_they_are_not_given(monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    one = DistributedSampler(range(9))
    assert (one.num_replicas, one.rank) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"num_replicas": 0, "rank": 0}, ValueError, "num_replicas"),
        ({"num_replicas": 2, "rank": 2}, ValueError, "rank"),
        ({"num_replicas": 2, "rank": -1}, ValueError, "rank"),
        ({"num_replicas": 2.0, "rank": 0}, TypeError, "num_replicas"),
        ({"num_replicas": True, "rank": 0}, TypeError, "num_replicas"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**63}, ValueError, "seed"),
        ({"seed": 1.5}, TypeError, "seed"),
        ({"seed": -1, "shuffle": False}, ValueError, "seed"),
        ({"shuffle": 1}, TypeError, "shuffle"),
        ({"drop_last": None}, TypeError, "drop_last"),
        ({"order": "random"}, ValueError, "order"),
        ({"dataset": iter([])}, TypeError, "dataset"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(arguments, error, name):
    with pytest.raises(error, match=name):
        DistributedSampler(**{"dataset": range(5), "num_replicas": 1, "rank": 0, **arguments})


# --- DistributedSampler: epochs and resume ----------------------------------------------------------------------------


def test_it_walks_on_and_set_epoch_says_the_same():
    walking, told = sampler(50, 2, 1, seed=3), sampler(50, 2, 1, seed=3)
    for epoch in range(4):
        told.set_epoch(epoch)
        told.set_epoch(epoch)
        assert epoch == walking.epoch
        assert list(told) == list(walking)


def test_set_epoch_keeps_a_pending_resume_and_another_epoch_drops_it():
    one = sampler(20, 2, 0)
    one.resume(20 + 6)
    one.set_epoch(1)
    assert len(list(one)) == 7
    one.resume(20 + 6)
    one.set_epoch(0)
    assert list(sampler(20, 2, 0)) == list(one)


def test_going_back_to_an_epoch_gives_it_again():
    one = sampler(20)
    first = list(one)
    one.set_epoch(0)
    assert first == list(one)


def test_a_pass_that_was_broken_off_starts_again_where_it_started():
    one = sampler(20, seed=1)
    one.resume(4)
    expected = list(sampler(20, seed=1))[4:]
    for _, id in zip(range(3), one, strict=False):
        assert id in expected
    assert expected == list(one)


@given(
    n=st.integers(1, 60),
    world_size=st.integers(1, 9),
    drop_last=st.booleans(),
    order=st.sampled_from(["keyed", "torch"]),
    data=st.data(),
)
def test_a_resume_by_consumed_samples_is_the_straight_runs_rest(n, world_size, drop_last, order, data):
    rank = data.draw(st.integers(0, world_size - 1))
    arguments = {"seed": 3, "drop_last": drop_last, "order": order}
    straight, lengths = [], len(sampler(n, world_size, rank, **arguments))
    if lengths == 0:
        return
    walking = sampler(n, world_size, rank, **arguments)
    for _ in range(3):
        straight += list(walking)
    real = n // world_size * world_size if drop_last else n
    epoch, place = data.draw(st.integers(0, 2)), data.draw(st.integers(0, lengths - 1))
    one = sampler(n, world_size, rank, **arguments)

    one.resume(epoch * real + place * world_size)

    assert lengths == len(one)
    rest = [id for _ in range(epoch, 3) for id in one]
    assert straight[epoch * lengths + place :] == rest


def test_a_count_that_leaves_the_ranks_uneven_is_refused_naming_the_edges():
    with pytest.raises(ValueError, match=r"consumed_samples is 14.*edges are 12 and 16"):
        sampler(18, 4, 0).resume(14)
    with pytest.raises(ValueError, match=r"edges are 16 and 18"):
        sampler(18, 4, 0).resume(17)


def test_a_state_goes_on_in_a_new_process_and_on_other_replicas():
    straight = [id for _ in range(3) for id in joined_pass(24, 4)]
    one = sampler(24, 4, 1)
    list(one)
    for _ in zip(range(3), one, strict=False):
        pass
    state = json.loads(json.dumps(one.state_dict()))
    assert state["consumed_samples"] == 24 + 12
    for world_size in (1, 2, 3, 4, 6):
        parts = [in_new_process(rest_of_sampler, state, 24, world_size, rank) for rank in range(world_size)]
        assert straight[36 : 36 + len(parts[0]) * world_size] == joined(parts)
    with pytest.raises(ValueError, match="uneven"):
        rest_of_sampler(state, 24, 5, 0)


def joined_pass(n, world_size, epochs={}):  # noqa: B006  the epochs of this test's walking samplers
    ranks = epochs.setdefault((n, world_size), [sampler(n, world_size, rank) for rank in range(world_size)])
    return joined([list(one) for one in ranks])


@pytest.mark.parametrize("m", [0, 1, 11, 12])
def test_a_state_at_the_edges_of_an_epoch(m):
    one = sampler(12)
    ids = [id for _, id in zip(range(m), one, strict=False)]
    other = sampler(12)
    other.load_state_dict(one.state_dict())
    expected = list(sampler(12))
    assert expected[:m] == ids
    if m < 12:
        assert expected[m:] == list(other)
    else:
        assert (other.epoch, one.state_dict()["consumed_samples"]) == (1, 12)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("seed", sampler(12, seed=2)),
        ("size", sampler(13)),
        ("shuffle", sampler(12, shuffle=False)),
        ("drop_last", sampler(12, drop_last=True)),
        ("order", sampler(12, order="torch")),
    ],
)
def test_a_state_of_another_order_is_refused_by_name(field, other):
    before = other.state_dict()
    one = sampler(12)
    one.resume(5)
    with pytest.raises(StateMismatch, match=field):
        other.load_state_dict(one.state_dict())
    assert before == other.state_dict()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda state: state.pop("seed"), UnknownFormat),
        (lambda state: state.update(more=1), UnknownFormat),
        (lambda state: state.update(format="detdata.distributed_sampler/2"), UnknownFormat),
        (lambda state: state.update(consumed_samples=-1), ValueError),
        (lambda state: state.update(consumed_samples=1.0), TypeError),
        (lambda state: state.update(consumed_samples=None), TypeError),
    ],
)
def test_a_broken_state_is_refused(change, error):
    one = sampler(12)
    state = one.state_dict()
    change(state)
    with pytest.raises(error):
        one.load_state_dict(state)
    assert len(list(one)) == 12


@pytest.mark.parametrize("state", [None, [], "x"])
def test_a_state_that_is_no_mapping_is_refused(state):
    with pytest.raises(TypeError, match="state"):
        sampler(12).load_state_dict(state)


def test_a_pickled_copy_goes_on_in_the_middle_of_a_pass():
    one = sampler(1000, 2, 1, seed=4)
    walking = iter(one)
    for _ in range(7):
        next(walking)
    copy = pickle.loads(pickle.dumps(one))
    assert list(walking) == list(copy)
    assert list(one) == list(copy)


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 2, **FORK}, {"num_workers": 2, "persistent_workers": True, **FORK}]
)
@pytest.mark.parametrize("drop_last", [False, True])
def test_it_is_the_sampler_of_a_dataloader(workers, drop_last):
    walking = sampler(50, 2, 0, seed=9)
    loader = DataLoader(
        Ids(50), batch_size=4, drop_last=drop_last, sampler=sampler(50, 2, 0, seed=9), collate_fn=as_list, **workers
    )
    for _ in range(3):
        ids = list(walking)
        expected = [ids[k : k + 4] for k in range(0, 24 if drop_last else 25, 4)]
        assert len(loader) == len(expected)
        assert expected == list(loader)
