"""The Checkpointer with the real Loader: another world size and batch size, and who may write."""

from __future__ import annotations

import warnings

import pytest
import torch

from detdata import Checkpointer, CheckpointMismatch, Loader, Plan, SavePolicy, Shuffle, Topology

DATA = list(range(48))


def make(root, *, rank=0, world_size=1, batch_size=8, **options):
    torch.manual_seed(rank)
    loader = Loader(DATA, Plan(Shuffle(48, seed=1), batch_size), Topology(rank, world_size))
    model = torch.nn.Linear(1, 1)
    return loader, Checkpointer(root, model=model, loader=loader, policy=SavePolicy(latest_every_steps=1), **options)


def train(loader, checkpointer, until):
    for _ in loader.until(until):
        checkpointer.step()


def test_the_loaders_topology_is_the_checkpointers_and_only_rank_0_writes(tmp_path):
    loader, checkpointer = make(tmp_path, rank=1, world_size=2)

    train(loader, checkpointer, 2)

    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="only rank 0 saves"):
        checkpointer.save()


def test_another_world_size_is_refused_and_accepted_goes_on_with_the_same_global_batches(tmp_path):
    train(*make(tmp_path), until=3)
    straight = Plan(Shuffle(48, seed=1), 8)
    rows = {}
    states = []
    for rank in range(2):
        loader, checkpointer = make(tmp_path, rank=rank, world_size=2)
        with pytest.raises(CheckpointMismatch) as caught:
            checkpointer.resume()
        assert [difference.accept for difference in caught.value.differences] == ["world_size"]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            progress = checkpointer.resume(accept=("world_size",))
        assert (rank == 1) == any("derived from rank 0" in str(one.message) for one in seen)
        assert progress.global_step == 3
        states.append(torch.get_rng_state())
        rows[rank] = [batch.tolist() for batch in loader.until(9)]

    assert not torch.equal(states[0], states[1])
    for index, step in enumerate(range(3, 9)):
        joined = [id for pair in zip(rows[0][index], rows[1][index], strict=True) for id in pair]
        assert straight.batch(step).ids.tolist() == joined


def test_another_batch_size_is_named_and_accepted_goes_on_at_the_next_unseen_sample(tmp_path):
    train(*make(tmp_path), until=3)
    loader, checkpointer = make(tmp_path, batch_size=12)

    with pytest.raises(CheckpointMismatch, match="batch_size"):
        checkpointer.resume()
    assert loader.progress.global_step == 0
    checkpointer.resume(accept=("batch_size",))

    assert loader.progress.consumed_samples == 24
    epoch = [id for batch in loader for id in batch.tolist()]
    assert Shuffle(48, seed=1).take(range(24, 48)).tolist() == epoch


def test_a_plan_resized_on_purpose_needs_no_accept(tmp_path):
    train(*make(tmp_path), until=3)
    plan = Plan(Shuffle(48, seed=1), 8).resized(3, 12)
    loader = Loader(DATA, plan)
    checkpointer = Checkpointer(tmp_path, model=torch.nn.Linear(1, 1), loader=loader)

    assert checkpointer.resume().global_step == 3
    assert plan.batch(3).ids.tolist() == next(iter(loader)).tolist()


def test_steps_alone_do_not_wait_for_the_default_seconds():
    assert SavePolicy(latest_every_steps=10).latest_every_seconds is None
    assert SavePolicy().latest_every_seconds == 600
    assert SavePolicy(600, latest_every_steps=10).latest_every_seconds == 600
