"""Runs of torchrun, killed and started again, beside the run that was never stopped: every step, every bit."""

import math
import os
import random
import signal

import pytest
import torch

from tests.checkpoint.experiment import train
from tests.checkpoint.experiment.launch import Job, attempts, steps
from tests.checkpoint.ranks import in_ranks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="kills"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
ALL = list(range(1, train.STEPS + 1))
BOUND = 1e-11  # sums of float64 in another order, 40 steps of AdamW: some 1e-13 each


def straight(rank, size, folder, arm):
    train.run(train.options_of([str(folder / "root"), str(folder), "--arm", arm]), rank)


def only_weights(rank, size, folder, checkpoint):
    train.weights_only(folder, checkpoint, rank)


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """Its folder, and for each rank step -> line."""
    folder = tmp_path_factory.mktemp("straight")
    in_ranks(2, straight, folder / "answers", folder, "ddp")
    return folder, [steps(Job.read(folder, rank)) for rank in range(2)]


def bits_differ(job, rank, expected):
    """Steps whose loss, parameters, moments, learning rate or random states differ by a bit, in any of the attempts."""
    found = []
    for line in job.lines(rank):
        step = line.get("step", line.get("start"))
        if step:
            keys = ("state", "rate", "random") if "start" in line else ("loss", "state", "rate", "random")
            found += [(step, key) for key in keys if line[key] != expected[step][key]]
    return found


def starts(job, rank=0):
    return [lines[0]["start"] for lines in attempts(job.lines(rank))]


def kills(job):
    return [f"rank {rank} {line['killed']}" for rank in range(2) for line in job.lines(rank) if "killed" in line]


def test_two_ranks_with_ddp_killed_in_a_step_and_in_a_save_and_preempted_are_the_run_never_stopped(
    tmp_path, never_stopped
):
    _, expected = never_stopped
    root = tmp_path / "root"
    moments = random.Random(20)
    in_step = f"step:1:{moments.randrange(13, 15)}:{moments.randrange(2000)}"  # the save at 16 does not begin
    in_save = f"write:0:{moments.randrange(9, 16)}"  # of the second save, in the second epoch

    job = Job(2, root, tmp_path / "a", "--kill", in_step, in_save, "slow:all:100000", restarts=2)
    job.until(lambda lines: len(attempts(lines)) == 3 and lines[-1].get("step", 0) > 17)
    job.process.send_signal(signal.SIGTERM)
    code = job.end()
    again = Job(2, root, tmp_path / "b")

    assert again.end() == 0, again.text
    assert code != 0
    for rank in range(2):
        assert job.lines(rank)[-1] == {"exit": 128 + signal.SIGTERM}
        assert starts(job, rank) == [0, 12, 16]
        [[begun, *_, done]] = attempts(again.lines(rank))
        last = [line for line in job.lines(rank) if "step" in line][-1]
        assert begun["start"] == last["step"]  # nothing is done again after a preemption
        assert done == {"exit": 0}
        assert sorted(steps(job.lines(rank)) | steps(again.lines(rank))) == ALL
        assert bits_differ(job, rank, expected[rank]) == []
        assert bits_differ(again, rank, expected[rank]) == []
    assert expected[0][40]["random"] != expected[1][40]["random"]
    print(
        f"\nddp: killed: {kills(job)}, then SIGTERM; started at {starts(job) + starts(again)}; torchrun's code {code}"
    )


def test_two_ranks_with_ddp_killed_while_they_save_behind_the_training_are_the_run_never_stopped(
    tmp_path, never_stopped
):
    _, expected = never_stopped
    in_save = (
        f"write:1:{random.Random(21).randrange(3, 5)}"  # rank 1 writes one file in each save, two saves at step 12
    )

    job = Job(2, tmp_path / "root", tmp_path / "a", "--background", "--kill", in_save, restarts=1)

    assert job.end() == 0, job.text
    for rank in range(2):
        assert starts(job, rank) in ([0, 8], [0, 12])
        assert sorted(steps(job.lines(rank))) == ALL
        assert bits_differ(job, rank, expected[rank]) == []
    assert len(kills(job)) == 1
    print(f"\nddp, background: killed: {kills(job)}; started at {starts(job)}")


def test_two_ranks_with_fsdp2_killed_go_on_as_one(tmp_path):
    in_ranks(1, straight, tmp_path / "answers", tmp_path / "alone", "alone")
    alone = steps(Job.read(tmp_path / "alone", 0))
    root = tmp_path / "root"
    moments = random.Random(22)
    every = f"step:all:{moments.randrange(13, 15)}:{moments.randrange(2000)}"

    job = Job(2, root, tmp_path / "a", "--arm", "fsdp2", "--kill", every)
    code = job.end()
    again = Job(1, root, tmp_path / "b", "--arm", "fsdp2", "--accept", "world_size")

    assert again.end() == 0, again.text
    assert code == -signal.SIGKILL  # torchrun itself was killed
    two, one = [steps(job.lines(rank)) for rank in range(2)], steps(again.lines())
    [start] = starts(again)
    assert start == 12
    assert again.lines()[0]["state"] == two[0][start]["state"] == two[1][start]["state"]
    assert again.lines()[0]["rate"] == two[0][start]["rate"]
    assert sorted(one) == list(range(start + 1, train.STEPS + 1))
    apart = [relative(loss(one[step]), loss(alone[step])) for step in one]
    apart += [relative((loss(two[0][step]) + loss(two[1][step])) / 2, loss(alone[step])) for step in two[0]]
    final, expected = (torch.load(tmp_path / name / "final0.pt") for name in ("b", "alone"))
    furthest = max(float((final[name] - expected[name]).abs().max()) for name in expected)
    assert final.keys() == expected.keys()
    assert max(apart) < BOUND
    assert furthest < BOUND
    print(
        f"\nfsdp2: killed: {kills(job)}; one rank started at {start}, parameters and moments bit-equal; then losses at "
        f"most {max(apart):.1e} (relative), parameters and moments {furthest:.1e} from those of the run never sharded"
    )


def test_with_the_weights_alone_the_losses_are_other_ones(tmp_path, never_stopped):
    folder, expected = never_stopped

    in_ranks(2, only_weights, tmp_path / "answers", tmp_path, folder / "root" / "ckpt_step_12")

    found = steps(Job.read(tmp_path, 0))
    apart = {step: relative(loss(found[step]), loss(expected[0][step])) for step in found}
    assert sorted(found) == list(range(13, train.STEPS + 1))
    assert max(apart.values()) > 0.01
    print(
        f"\nweights only, from step 12: the loss of step 14 is {100 * apart[14]:.1f} % off, that of step "
        f"{train.STEPS} {100 * apart[train.STEPS]:.1f} %, at most {100 * max(apart.values()):.1f} %"
    )


def loss(line):
    return float.fromhex(line["loss"])


def relative(found, expected):
    return abs(found - expected) / math.fabs(expected)
