"""Many processes: a checkpoint is of all ranks or of none, each has its own random states, nobody goes on alone."""

import json
import os
import random
import signal
import warnings

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from detdata import Loader, Plan, Shuffle, Topology
from detdata.checkpoint import (
    Checkpointer,
    CheckpointNotSaved,
    RankMissing,
    SavePolicy,
    list_checkpoints,
    selection,
    store,
)
from detdata.checkpoint.remote_path import StoreError
from detdata.errors import CheckpointBroken, CheckpointMismatch
from tests.checkpoint.fakes import bits
from tests.checkpoint.ranks import in_ranks

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks and kills"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
N, BATCH = 48, 8
DATA = torch.randn(N, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
NEVER = SavePolicy(latest_every_seconds=None, latest_every_steps=None, on_signal=False, on_exit=False)


def build(rank, root, *, seed=0, policy=NEVER, **options):
    random.seed(100 * seed + rank)
    np.random.seed(100 * seed + rank)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.25), torch.nn.Linear(8, 1)).double()
    torch.manual_seed(100 * seed + rank)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    loader = Loader(DATA, Plan(Shuffle(N, seed=5), BATCH), randomness="off")
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    options = {"timeout_seconds": 20, **options}
    return parts, Checkpointer(root, policy=policy, **parts, **options)


def train(parts, checkpointer, stop):
    model, optimizer, losses = parts["model"], parts["optimizer"], []
    for batch in parts["loader"].until(stop):
        optimizer.zero_grad()
        loss = model(batch + 0.01 * random.random()).square().mean()
        loss.backward()
        optimizer.step()
        parts["scheduler"].step()
        checkpointer.step(loss=loss)
        losses.append(loss.item())
    return losses


def state(parts):
    return (
        bits(parts["model"].module.state_dict()),
        bits(parts["optimizer"].state_dict()["state"]),
        random.getstate(),
        bits(torch.get_rng_state()),
        np.random.get_state()[1].tolist(),
    )


def straight(rank, size, root, stop):
    parts, checkpointer = build(rank, root)
    return train(parts, checkpointer, stop), state(parts)


def to_step(rank, size, root, stop, background=False):
    parts, checkpointer = build(rank, root, background=background)
    checkpointer.resume()
    losses = train(parts, checkpointer, stop)
    checkpointer.save()
    checkpointer.close()
    return losses


def onward(rank, size, root, stop, accept=()):
    parts, checkpointer = build(rank, root, seed=9)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        checkpointer.resume(accept=accept)
    first = state(parts)[2:]
    return train(parts, checkpointer, stop), state(parts), [str(one.message) for one in seen], first


@pytest.mark.parametrize("background", [False, True])
def test_two_ranks_go_on_bit_for_bit_with_their_own_random_states(tmp_path, background):
    expected = in_ranks(2, straight, tmp_path / "a", tmp_path / "unused", 10)
    before = in_ranks(2, to_step, tmp_path / "b", tmp_path / "root", 6, background)

    after = in_ranks(2, onward, tmp_path / "c", tmp_path / "root", 10)

    for rank in range(2):
        losses, final = expected[rank]
        assert before[rank] + after[rank][0] == losses
        assert after[rank][1] == final
        assert after[rank][2] == []
    assert after[0][3] != after[1][3]
    names = sorted(path.name for path in (tmp_path / "root" / "ckpt_latest").iterdir())
    assert [name for name in names if name.startswith("rng")] == ["rng_rank00000.pt", "rng_rank00001.pt"]
    meta = json.loads((tmp_path / "root" / "ckpt_latest" / "meta.json").read_text())
    assert len({process["pid"] for process in meta["processes"]}) == 2


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (2, 1)])
def test_another_world_size_is_refused_then_goes_on_with_the_same_global_batches(tmp_path, before, after):
    in_ranks(before, to_step, tmp_path / "a", tmp_path / "root", 6)

    refused = in_ranks(after, refused_onward, tmp_path / "b", tmp_path / "root")
    assert all("world_size" in text and 'accept=("world_size",)' in text for text in refused)
    found = in_ranks(after, seen_ids, tmp_path / "c", tmp_path / "root", 12)

    plan = Plan(Shuffle(N, seed=5), BATCH)
    for step in range(6, 12):
        ids = [id for rank in range(after) for id in found[rank][0][step - 6]]
        assert sorted(ids) == sorted(plan.batch(step).ids.tolist())
    states = [answer[1] for answer in found]
    assert len({str(one) for one in states}) == after  # all distinct
    for rank, (_, _, messages) in enumerate(found):
        assert len(messages) == (1 if rank >= before else 0)
        assert all(f"no random states of rank {rank}" in message for message in messages)


def refused_onward(rank, size, root):
    _, checkpointer = build(rank, root, seed=9)
    with pytest.raises(CheckpointMismatch) as caught:
        checkpointer.resume()
    return str(caught.value)


def seen_ids(rank, size, root, stop):
    parts, checkpointer = build(rank, root, seed=9)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        checkpointer.resume(accept=("world_size",))
    loader, ids = parts["loader"], []
    first = random.getstate(), bits(torch.get_rng_state())
    for _ in loader.until(stop):
        ids.append(loader.batch.ids.tolist())
    return ids, first, [str(one.message) for one in seen if "no random" in str(one.message)]


def one_dies(rank, size, root):
    parts, checkpointer = build(rank, root, timeout_seconds=20)
    checkpointer.resume()
    train(parts, checkpointer, 4)
    if rank == 1:
        from detdata.checkpoint import writing

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        writing.write_file = die
    with pytest.raises(RankMissing) as caught:
        checkpointer.save()
    return str(caught.value)


def test_a_rank_killed_in_the_middle_of_a_save_is_named_and_the_old_checkpoint_is_whole(tmp_path):
    root = tmp_path / "root"
    in_ranks(2, to_step, tmp_path / "a", root, 2)

    message, code = in_ranks(2, one_dies, tmp_path / "b", root, killed=(1,))

    assert code == -signal.SIGKILL
    assert "rank 1 of 2 is gone" in message
    assert "untouched" in message
    [entry] = list_checkpoints(root)
    assert (entry.step, entry.ok) == (2, True)
    assert [len(answer[0]) for answer in in_ranks(2, onward, tmp_path / "c", root, 4)] == [2, 2]


def one_is_late(rank, size, root):
    _, checkpointer = build(rank, root, timeout_seconds=1.0)
    if rank == 1:
        return ""
    with pytest.raises(RankMissing) as caught:
        checkpointer.save()
    return str(caught.value)


def test_a_rank_that_does_not_come_is_named_after_the_timeout(tmp_path):
    messages = in_ranks(2, one_is_late, tmp_path / "a", tmp_path / "root")

    assert "rank 1 of 2" in messages[0]
    assert "same calls" in messages[0]


def one_disk_fails(rank, size, root):
    parts, checkpointer = build(rank, root)
    checkpointer.save()
    train(parts, checkpointer, 1)
    if rank == 1:
        from detdata.checkpoint import writing

        def full(*_):
            raise OSError(28, "No space left on device")

        writing.write_file = full
    with pytest.raises(CheckpointNotSaved) as caught:
        checkpointer.save()
    return str(caught.value)


def test_what_fails_on_one_rank_fails_on_all(tmp_path):
    messages = in_ranks(2, one_disk_fails, tmp_path / "a", tmp_path / "root")

    assert all("rank 1" in message and "No space left" in message for message in messages)
    [entry] = list_checkpoints(tmp_path / "root")
    assert (entry.step, entry.ok) == (0, True)


def split_root(rank, size, root):
    _, checkpointer = build(rank, root / str(rank))
    (root / str(rank)).mkdir(parents=True)
    with pytest.raises(CheckpointNotSaved) as caught:
        checkpointer.save()
    return str(caught.value)


def test_a_root_that_the_ranks_do_not_share_is_named(tmp_path):
    messages = in_ranks(2, split_root, tmp_path / "a", tmp_path / "root")

    assert all("rank 1" in message for message in messages)


def different_checkpoints(rank, size, root):
    _, checkpointer = build(rank, root / str(rank), seed=9)
    with pytest.raises(CheckpointBroken) as caught:
        checkpointer.resume()
    return str(caught.value)


def test_ranks_that_find_different_checkpoints_all_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "PAUSES_S", (0.0, 0.0))
    in_ranks(2, to_step, tmp_path / "a", tmp_path / "root" / "0", 2)
    (tmp_path / "root" / "1").mkdir()

    messages = in_ranks(2, different_checkpoints, tmp_path / "b", tmp_path / "root")

    assert all("rank 1" in message and "nothing" in message for message in messages)


def sees_late(rank, size, root):
    """What rank 1 lists is for a while what was there before the last save."""
    _, checkpointer = build(rank, root, seed=9)
    looks, real = [], store.find

    def find(where):
        looks.append(1)
        return real(where) if rank == 0 or len(looks) > 3 else []

    store.find = selection.find = find
    return checkpointer.resume().global_step, len(looks)


def test_a_rank_that_sees_the_folder_late_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "PAUSES_S", (0.0,) * 6)
    in_ranks(2, to_step, tmp_path / "a", tmp_path / "root", 2)

    assert in_ranks(2, sees_late, tmp_path / "b", tmp_path / "root") == [(2, 4), (2, 4)]


def short_of_memory(rank, size, root):
    _, checkpointer = build(rank, root, seed=9)
    if rank:

        def read(*_, **__):
            raise MemoryError("cannot have 1 TB")

        selection.read = read
    with pytest.raises(StoreError) as caught:
        checkpointer.resume()
    return str(caught.value)


def test_what_one_rank_cannot_read_for_want_of_memory_stops_all(tmp_path):
    in_ranks(2, to_step, tmp_path / "a", tmp_path / "root", 2)

    for message in in_ranks(2, short_of_memory, tmp_path / "b", tmp_path / "root"):
        assert "rank 1: MemoryError" in message


def preempted(rank, size, root):
    parts, checkpointer = build(rank, root, policy=SavePolicy())
    checkpointer.resume()
    if rank == 1:  # only one of them is told
        checkpointer._schedule._signals.listen()
        os.kill(os.getpid(), signal.SIGUSR1)
    return train(parts, checkpointer, 6 * 10**6)


def test_a_signal_to_one_rank_lets_all_save_the_same_step_and_exit(tmp_path):
    answers = in_ranks(2, preempted, tmp_path / "a", tmp_path / "root")

    assert answers == [("exit", 128 + signal.SIGUSR1)] * 2
    [entry] = list_checkpoints(tmp_path / "root")
    assert entry.ok
    assert entry.step > 0


def mesh_topology(rank, size):
    return Topology.detect().to_dict()


def test_the_topology_of_a_process_group_is_detected(tmp_path):
    assert in_ranks(2, mesh_topology, tmp_path / "a") == [
        {"rank": 0, "world_size": 2},
        {"rank": 1, "world_size": 2},
    ]


def old_fsdp(rank, size, root):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
    with pytest.raises(TypeError, match="fully_shard"):
        Checkpointer(root, model=torch.nn.Sequential(model))
    return True


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_the_older_fsdp_is_refused_with_the_way_on(tmp_path):
    assert in_ranks(2, old_fsdp, tmp_path / "a", tmp_path / "root") == [True, True]
