"""The batches of a plan for a plain DataLoader: those of the plan, and a position that survives everything."""

import pickle

import pytest
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from detdata import (
    BatchSampler,
    Plan,
    Shuffle,
    Topology,
    TorchShuffle,
)
from tests.torch_side import Ids, as_list, batches, start_method


@given(
    n=st.integers(1, 60),
    tail=st.sampled_from(["drop", "pad", "keep", "carry"]),
    world_size=st.integers(1, 4),
    micro_steps=st.integers(1, 3),
    share=st.integers(1, 4),
    start_step=st.integers(0, 12),
)
def test_batch_samplers_of_all_ranks_give_the_plans_batches(n, tail, world_size, micro_steps, share, start_step):
    batch_size = world_size * micro_steps * share
    if tail == "drop" and n < batch_size:
        return
    plan = Plan(Shuffle(n, 5), batch_size, tail)
    ranks = [
        BatchSampler(plan, Topology(rank, world_size), start_step=start_step, micro_steps=micro_steps)
        for rank in range(world_size)
    ]
    end = start_step
    for _ in range(2):
        begin, end = end, plan.first_step(plan.epoch(end) + 1)
        parts = []
        for rank, one in enumerate(ranks):
            whole = len(one)
            mine = list(one)
            expected = [
                plan.shard(step, rank, world_size, micro, micro_steps).ids.tolist()
                for step in range(begin, end)
                for micro in range(micro_steps)
            ]
            assert [part for part in expected if part] == mine
            if begin == plan.first_step(plan.epoch(begin)):
                assert whole == len(mine)
            parts.append(mine)
        assert sorted(id for batch in batches(plan, begin, end) for id in batch) == sorted(
            id for mine in parts for part in mine for id in part
        )


def test_batch_sampler_yields_lists_of_python_ints_and_is_a_torch_sampler():
    one = BatchSampler(Plan(Shuffle(10**12), 4), Topology())
    assert isinstance(one, torch.utils.data.Sampler)
    first = next(iter(one))
    assert [list, int] == [type(first), type(first[0])]


def test_batch_sampler_walks_on_and_set_epoch_is_idempotent():
    plan = Plan(Shuffle(20, 1), 4)
    one = BatchSampler(plan, Topology(), start_step=2)
    one.set_epoch(0)
    assert batches(plan, 2, 5) == list(one)
    assert one.epoch == 1
    one.set_epoch(1)
    assert batches(plan, 5, 10) == list(one)
    one.set_epoch(0)
    assert batches(plan, 0, 5) == list(one)
    one.set_epoch(7)
    assert batches(plan, 35, 40) == list(one)


def test_batch_sampler_resumes_at_consumed_samples():
    plan = Plan(Shuffle(22, 1), 4, tail="keep")
    one = BatchSampler(plan, Topology())
    one.resume(22 + 8)
    assert batches(plan, 8, 12) == list(one)
    assert len(one) == 6
    with pytest.raises(ValueError, match=r"begins at 20.*begins at 22|21"):
        one.resume(21)


def test_a_batch_sampler_broken_off_starts_again_and_its_copy_goes_on():
    plan = Plan(Shuffle(40, 1), 4)
    one = BatchSampler(plan, Topology(1, 2), micro_steps=2)
    expected = list(BatchSampler(plan, Topology(1, 2), micro_steps=2))
    walking = iter(one)
    begun = [next(walking) for _ in range(5)]
    copy = pickle.loads(pickle.dumps(one))

    assert expected[:5] == begun
    assert expected[5:] == list(copy)
    assert expected == list(one)
    assert list(one) == list(copy)


@pytest.mark.parametrize("done", range(8))
def test_a_copy_made_anywhere_in_a_short_epoch_gives_its_rest(done):
    plan = Plan(Shuffle(11, 1), 4, "keep")  # the last batch has three samples: two micro-batches, or one of rank 1
    for rank in range(2):
        one = BatchSampler(plan, Topology(rank, 2), micro_steps=2)
        expected = [part for _ in range(2) for part in BatchSampler(plan, Topology(rank, 2), micro_steps=2)]
        whole = len(one)
        walking = iter(one)
        begun = [part for _, part in zip(range(min(done, whole)), walking, strict=False)]
        copy = pickle.loads(pickle.dumps(one))
        rest = list(copy)
        assert rest != []
        assert expected[len(begun) : whole] == (rest if len(begun) < whole else [])


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_batch_sampler_drives_a_dataloader(method):
    plan = Plan(TorchShuffle(24, 1), 4)
    loader = DataLoader(
        Ids(24),
        batch_sampler=BatchSampler(plan, Topology(), start_step=4),
        num_workers=1,
        persistent_workers=True,
        collate_fn=as_list,
        multiprocessing_context=start_method(method),
    )
    assert len(loader) == 6
    assert batches(plan, 4, 6) == list(loader)
    assert batches(plan, 6, 12) == list(loader)


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"plan": Shuffle(10)}, TypeError, "plan"),
        ({"start_step": -1}, ValueError, "start_step"),
        ({"start_step": 1.0}, TypeError, "start_step"),
        ({"micro_steps": 0}, ValueError, "micro_steps"),
        ({"topology": Topology(0, 3)}, ValueError, r"8.*3"),
        ({"micro_steps": 3}, ValueError, r"8.*3"),
    ],
)
def test_a_wrong_argument_of_batch_sampler_is_refused_by_name(arguments, error, name):
    with pytest.raises(error, match=name):
        BatchSampler(**{"plan": Plan(Shuffle(16), 8), "topology": Topology(), **arguments})
