"""Saves that fail, and the last chances to save: what is tried when, what is told, and what stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import warnings

import pytest
import torch

from detdata import Checkpointer, CheckpointNotSaved, Preempted, SavePolicy, list_checkpoints

NEVER = SavePolicy(latest_every_seconds=None)


def model():
    return torch.nn.Linear(2, 1)


class Disk:
    """Refuses saves while `full`; counts how many were tried."""

    def __init__(self, monkeypatch):
        from detdata.checkpoint.writing import Writer

        self.full, self.tried = False, []
        write = Writer.write

        def refusing(writer, content, kind, step):
            self.tried.append((kind, step))
            if self.full:
                raise CheckpointNotSaved(f"step {step}: the disk is full")
            return write(writer, content, kind, step)

        monkeypatch.setattr(Writer, "write", refusing)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    """The time that the schedule sees."""
    now = [1000.0]
    monkeypatch.setattr("detdata.checkpoint.schedule.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("due", [{"latest_every_seconds": 0}, {"latest_every_steps": 1}, {"periodic_every_steps": 1}])
def test_a_disk_that_is_full_for_a_moment_does_not_end_a_run_whose_saves_are_due_at_every_step(
    tmp_path, disk, clock, due, background
):
    policy = SavePolicy(**({"latest_every_seconds": None} | due), on_signal=False)
    run = Checkpointer(tmp_path, model=model(), policy=policy, background=background)
    disk.full = True

    def steps(count):
        for _ in range(count):
            run.step()
            if run._saver._thread is not None:
                run._saver._thread.join()

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        steps(30)
        assert [step for _, step in disk.tried] == [1, 2] if not background else len(disk.tried) == 2
        for wait in (10, 20):
            clock[0] += wait
            steps(30)
    assert len(disk.tried) == 4
    assert len(seen) == 4
    clock[0] += 40
    with pytest.raises(CheckpointNotSaved, match="the disk is full"):
        steps(2)
    disk.full = False
    steps(30)
    clock[0] += 80
    steps(1)
    assert disk.tried[-1][1] == list_checkpoints(tmp_path)[0].step > 100


def test_kinds_due_at_one_step_count_as_one_failure_and_are_both_made_up_for(tmp_path, disk, clock):
    policy = SavePolicy(
        latest_every_seconds=None, latest_every_steps=5, periodic_every_steps=5, max_failures=3, on_signal=False
    )
    run = Checkpointer(tmp_path, model=model(), policy=policy)
    disk.full = True
    for _ in range(4):
        run.step()
    with pytest.warns(UserWarning, match="tried again at the next step"):
        run.step()
    disk.full = False
    run.step()
    assert disk.tried == [("periodic", 5), ("periodic", 6), ("latest", 6)]


@pytest.mark.parametrize("how", ["exit", "signal"])
def test_a_save_behind_the_training_that_fails_at_the_end_is_tried_once_more(tmp_path, disk, how):
    policy = SavePolicy(latest_every_seconds=None, latest_every_steps=3)
    disk.full = True

    def train(expected):
        with expected, Checkpointer(tmp_path, model=model(), policy=policy, background=True) as run:
            for _ in range(3):
                run.step()
            run._saver._thread.join()
            disk.full = False
            if how == "signal":
                os.kill(os.getpid(), signal.SIGTERM)
                run.step()

    with pytest.warns(UserWarning, match="step 3: the disk is full"):
        train(pytest.raises(Preempted) if how == "signal" else contextlib.nullcontext())
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [4 if how == "signal" else 3]


def test_on_a_signal_the_latest_is_saved_although_the_periodic_one_that_is_due_fails(tmp_path, disk, monkeypatch):
    policy = SavePolicy(latest_every_seconds=None, periodic_every_steps=1)
    run = Checkpointer(tmp_path, model=model(), policy=policy)
    run.step()
    save = Checkpointer._save

    def failing(self, kind):
        if kind == "periodic":
            raise CheckpointNotSaved("no room")
        return save(self, kind)

    monkeypatch.setattr(Checkpointer, "_save", failing)
    os.kill(os.getpid(), signal.SIGUSR1)
    with pytest.warns(UserWarning, match="no room"), pytest.raises(Preempted) as caught:
        run.step()
    assert caught.value.code == 128 + signal.SIGUSR1
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [2, 1]
    run.close()


def test_a_signal_after_the_last_step_is_not_swallowed(tmp_path):
    with pytest.raises(Preempted) as caught, Checkpointer(tmp_path, model=model(), policy=NEVER) as run:
        run.step()
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [1]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_checkpointer_that_was_forgotten_does_not_swallow_signals(tmp_path):
    code = f"""
import gc, os, signal, torch
from detdata import Checkpointer
def train():
    Checkpointer({str(tmp_path)!r}, model=torch.nn.Linear(2, 1)).step()
train()
gc.collect()
os.kill(os.getpid(), signal.SIGTERM)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_the_root_is_given_back_when_the_save_at_the_end_fails(tmp_path, disk):
    disk.full = True
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(CheckpointNotSaved), Checkpointer(tmp_path, model=model(), policy=NEVER) as run:
        run.step()
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ValueError, match="closed"):
        run.step()


def test_the_best_on_disk_stays_when_a_better_one_cannot_be_saved(tmp_path, disk, clock):
    policy = SavePolicy(
        latest_every_seconds=None, periodic_every_steps=10, keep_periodic=1, best="loss", on_signal=False
    )
    run = Checkpointer(tmp_path, model=model(), policy=policy)
    run.step(loss=0.5)
    disk.full = True
    with pytest.warns(UserWarning, match="disk is full"):
        run.step(loss=0.25)
    disk.full = False
    for _ in range(20):
        run.step()
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [20, 1]
    run.step(loss=0.25)
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [23]


@pytest.mark.parametrize("direction", ["min", "max"])
def test_a_loss_that_overflows_is_never_the_best(tmp_path, direction):
    run = Checkpointer(tmp_path, model=model(), policy=SavePolicy(best=("loss", direction), on_signal=False))
    values = [float("inf"), -float("inf"), float("nan"), torch.tensor(1.0), float("inf"), -float("inf")]
    assert [run.step(loss=value) for value in values] == [False, False, False, True, False, False]


def test_a_failure_that_nobody_asked_after_is_told_when_the_process_ends(tmp_path):
    (tmp_path / "file").write_text("")
    code = f"""
import torch
from detdata import Checkpointer
Checkpointer({str(tmp_path / "file" / "x")!r}, model=torch.nn.Linear(2, 1), background=True).save()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert "detdata: the checkpoint of global step 0 was not saved" in done.stderr


def test_a_run_that_forgot_to_resume_is_told_before_it_replaces_anything(tmp_path):
    with Checkpointer(tmp_path, model=model(), policy=NEVER) as run:
        for _ in range(3):
            run.step()
    with pytest.warns(UserWarning, match=r"ckpt_latest of global step 3, and this run has not called resume\(\)"):
        Checkpointer(tmp_path, model=model(), policy=NEVER).step()
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [3]
    back = Checkpointer(tmp_path, model=model(), policy=NEVER)
    back.resume()
    back.step()
