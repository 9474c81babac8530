"""Ranks that are not of one mind: nothing is saved or loaded, and every rank says which one differs and in what."""

import os
import time
import warnings

import pytest
import torch

from detdata import Topology
from detdata.checkpoint import Checkpointer, RankMissing, SavePolicy, list_checkpoints, writing
from detdata.errors import DetdataError
from tests.checkpoint.fakes import Box
from tests.checkpoint.ranks import in_ranks
from tests.checkpoint.test_ranks import build, to_step, train

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def said(work):
    try:
        return str(work())
    except DetdataError as error:
        return f"{type(error).__name__}: {error}"


def other_kind(rank, size, root):
    _, checkpointer = build(rank, root)
    return said(lambda: checkpointer.save("periodic" if rank else "latest"))


def other_step(rank, size, root):
    model = torch.nn.Linear(2, 1)
    policy = SavePolicy(latest_every_seconds=None, on_signal=False, on_exit=False)
    checkpointer = Checkpointer(root, model=model, policy=policy, timeout_seconds=20)
    for _ in range(rank + 1):
        checkpointer.step()
    return said(checkpointer.save)


def other_model(rank, size, root):
    """A pipeline: each rank has its own stage."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(1 + rank)))
    return said(Checkpointer(root, model=model, timeout_seconds=20).save)


def other_topology(rank, size, root):
    torch.manual_seed(rank)
    topology = Topology(0, 1, pp_rank=rank, pp_size=2)
    return said(Checkpointer(root, model=torch.nn.Linear(2, 1), topology=topology, timeout_seconds=20).save)


def other_probe(rank, size, root):
    model = torch.nn.Linear(2, 1)
    probe = None if rank else model.weight.sum
    return said(Checkpointer(root, model=model, probe=probe, timeout_seconds=20).save)


def raises_on_one(rank, size, root):
    """What rank 0 alone is to save cannot be saved."""
    extra = {"box": Box(object())}
    return said(Checkpointer(root, model=torch.nn.Linear(2, 1), extra=extra, timeout_seconds=20).save)


def probe_raises_on_one(rank, size, root):
    model = torch.nn.Linear(2, 1)

    def probe():
        if rank == 1:
            raise RuntimeError("out of memory, say")
        return model.weight.sum()

    checkpointer = Checkpointer(root, model=model, probe=probe, timeout_seconds=20)
    try:
        return str(checkpointer.save())
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def writing_raises_on_one(rank, size, root):
    _, checkpointer = build(rank, root)
    if rank:

        def fail(*_):
            raise MemoryError

        writing.write_file = fail
    return said(checkpointer.save)


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (other_kind, ["kind", "rank 1"]),
        (other_step, ["step", "rank 1"]),
        (other_model, ["model", "rank 1"]),
        (other_topology, ["pp_size"]),
        (other_probe, ["probe", "rank 1"]),
        (raises_on_one, ["extra['box']"]),
        (probe_raises_on_one, ["out of memory"]),
        (writing_raises_on_one, ["rank 1", "MemoryError"]),
    ],
)
def test_a_save_that_the_ranks_do_not_agree_upon_is_refused_on_all(tmp_path, work, words):
    root = tmp_path / "root"

    answers = in_ranks(2, work, tmp_path / "a", root)

    for answer in answers:
        assert "RankMissing" not in answer
        assert all(word in answer for word in words), answer
    assert not root.exists() or list_checkpoints(root) == []


def resume_other_step(rank, size, root):
    _, checkpointer = build(rank, root, seed=9)
    return said(lambda: checkpointer.resume(step=2 if rank else None))


def test_ranks_that_ask_for_different_steps_all_stop(tmp_path):
    root = tmp_path / "root"
    in_ranks(2, to_step, tmp_path / "a", root, 2)
    in_ranks(2, periodic_at, tmp_path / "b", root, 4)

    for answer in in_ranks(2, resume_other_step, tmp_path / "c", root):
        assert "step" in answer
        assert "rank 1" in answer


def periodic_at(rank, size, root, stop):
    parts, checkpointer = build(rank, root)
    checkpointer.resume()
    train(parts, checkpointer, stop)
    checkpointer.save("periodic")


def fails_behind(rank, size, root):
    """A disk that is full for one save behind the training, and the ranks end it at different times."""
    policy = SavePolicy(latest_every_seconds=None, latest_every_steps=3, on_signal=False, on_exit=False)
    parts, checkpointer = build(rank, root, policy=policy, background=True)
    original, calls, write = writing.write_file, [], writing.Writer.write

    def slow(self, *arguments):
        try:
            return write(self, *arguments)
        finally:
            time.sleep(0.4 if rank == 0 else 0.0)

    def full(*arguments):
        calls.append(1)
        if rank == 1 and len(calls) == 1:
            raise OSError(28, "No space left on device")
        return original(*arguments)

    writing.write_file, writing.Writer.write = full, slow
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(1, 13):
            time.sleep(0.1)
            train(parts, checkpointer, step)
        checkpointer.close()
    return checkpointer.last_save.step, [str(one.message) for one in seen if "No space" in str(one.message)]


def test_a_save_behind_the_training_that_fails_is_noticed_at_the_same_step_on_all_ranks(tmp_path):
    answers = in_ranks(2, fails_behind, tmp_path / "a", tmp_path / "root")

    assert answers[0][0] == answers[1][0]
    assert answers[0][0] >= 6
    for _, messages in answers:
        assert len(messages) == 1
        assert "rank 1" in messages[0]


def group_gone(rank, size, root):
    parts, checkpointer = build(rank, root)
    torch.distributed.barrier()  # a rank that ends early would be missed by one that is still being made
    torch.distributed.destroy_process_group()
    checkpointer.close()
    _, other = parts, None
    return other


def save_without_group(rank, size, root):
    _, checkpointer = build(rank, root)
    torch.distributed.barrier()  # a rank that ends early would be missed by one that is still being made
    torch.distributed.destroy_process_group()
    return said(checkpointer.save)


def destroyed_behind(rank, size, root):
    _, checkpointer = build(rank, root, background=True)
    checkpointer.save()
    torch.distributed.barrier()  # a rank that ends early would be missed by one that is still being made
    torch.distributed.destroy_process_group()
    return said(checkpointer.close)


def test_a_process_group_that_is_destroyed_first_is_named(tmp_path):
    assert in_ranks(2, group_gone, tmp_path / "a", tmp_path / "root") == [None, None]
    for answer in in_ranks(2, save_without_group, tmp_path / "b", tmp_path / "root"):
        assert answer.startswith("RankMissing")
        assert "destroy_process_group" in answer
    for answer in in_ranks(2, destroyed_behind, tmp_path / "c", tmp_path / "root"):
        assert answer == "None" or answer.startswith("RankMissing")


def made_by_one(rank, size, root):
    if rank:
        time.sleep(6)
        return ""
    begun = time.monotonic()
    with pytest.raises(RankMissing) as caught:
        Checkpointer(root, model=torch.nn.Linear(2, 1), timeout_seconds=2)
    assert time.monotonic() - begun < 6
    return str(caught.value)


def test_a_checkpointer_that_only_one_rank_makes_is_refused_in_time(tmp_path):
    answers = in_ranks(2, made_by_one, tmp_path / "a", tmp_path / "root")

    assert "rank 1 of 2" in answers[0]


def diverged(rank, size, root):
    torch.manual_seed(rank)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Checkpointer(root, model=torch.nn.Linear(2, 1), timeout_seconds=20).save()
    return [str(one.message) for one in seen]


def other_metrics(rank, size, root):
    policy = SavePolicy(latest_every_seconds=None, best="loss", on_signal=False, on_exit=False)
    checkpointer = Checkpointer(root, model=torch.nn.Linear(2, 1), policy=policy, timeout_seconds=2)
    return said(lambda: checkpointer.step(**({} if rank else {"loss": 1.0})) or time.sleep(4))


def test_a_metric_that_one_rank_alone_gives_is_named_in_time(tmp_path):
    first, _ = in_ranks(2, other_metrics, tmp_path / "a", tmp_path / "root")

    assert first.startswith("RankMissing")
    assert "rank 1 of 2" in first
    assert "metric 'loss'" in first


def test_ranks_whose_parameters_have_diverged_are_told(tmp_path):
    first, second = in_ranks(2, diverged, tmp_path / "a", tmp_path / "root")

    assert len(first) == 1
    assert "other values on rank 1 than on rank 0" in first[0]
    assert second == []
