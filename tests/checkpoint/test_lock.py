"""Two jobs on one root: the second is refused by name; whoever is dead does not count, whatever lives on of it."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="record locks of POSIX")

HOLDER = """
import os, sys, time, torch
from detdata.checkpoint import Checkpointer
checkpointer = Checkpointer(sys.argv[1], model=torch.nn.Linear(1, 1))
try:
    checkpointer.save()
except OSError as error:
    print("refused:", error, flush=True)
    sys.exit()
child = os.fork()  # as a worker of a DataLoader: has every descriptor of its parent
if child == 0:
    time.sleep(100)
    os._exit(0)
print("saved", child, flush=True)
sys.stdin.read()
"""


class Job:
    """A process that saves to a root, forks a child, and waits."""

    def __init__(self, root):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", HOLDER, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        self.said = self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.said.startswith("saved"):
            os.kill(int(self.said.split()[1]), signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def run_in(root):
    return Checkpointer(root, model=torch.nn.Linear(1, 1))


def test_the_second_job_is_told_process_and_host_of_the_first_and_what_to_do(tmp_path):
    with Job(tmp_path) as job, run_in(tmp_path) as mine, pytest.raises(CheckpointNotSaved) as caught:
        mine.save()

    assert f"process {job.process.pid} on {socket.gethostname()}" in str(caught.value)
    assert "Give this run a root of its own" in str(caught.value)


def test_a_job_killed_does_not_block_though_its_children_live_on(tmp_path):
    with Job(tmp_path) as job:
        job.process.kill()
        job.process.wait()
        os.kill(int(job.said.split()[1]), 0)  # the child is there

        with run_in(tmp_path) as mine:
            mine.save()


def test_a_job_keeps_its_root_when_its_lock_file_is_read_and_closed_in_the_same_process(tmp_path):
    with run_in(tmp_path) as mine:
        mine.save()
        (tmp_path / lock.NAME).read_bytes()  # by closing it, POSIX drops the lock
        mine.save()
        with Job(tmp_path) as job:
            assert job.said.startswith(f"refused: the checkpoint of global step 0 was not saved to {tmp_path}")


def test_a_job_that_lost_its_root_to_another_is_told(tmp_path):
    with run_in(tmp_path) as mine:
        mine.save()
        (tmp_path / lock.NAME).unlink()
        with Job(tmp_path) as job:
            assert job.said.startswith("saved")
            with pytest.raises(CheckpointNotSaved, match=f"process {job.process.pid} on"):
                mine.save()
        mine.save()


@pytest.mark.filterwarnings("ignore:the folder of checkpoints .* was removed")
def test_a_root_made_anew_is_locked_anew(tmp_path):
    root = tmp_path / "root"
    with run_in(root) as mine:
        mine.save()
        shutil.rmtree(root)
        mine.save()
        with Job(root) as job:
            assert job.said.startswith("refused")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_warned_of_and_saved_to(tmp_path, monkeypatch, code):
    def lockf(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(lock.fcntl, "lockf", lockf)

    with (
        run_in(tmp_path) as mine,
        pytest.warns(UserWarning, match="cannot be locked .*: nothing will stop a second run"),
    ):
        mine.save()

    assert (tmp_path / "ckpt_latest").is_dir()


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    lock.acquire(tmp_path)
    try:
        with Job(tmp_path) as job:
            assert "another process is saving" in job.said
            assert "it does not say which" in job.said
    finally:
        lock.release(tmp_path)
