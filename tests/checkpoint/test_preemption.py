"""Signals in real processes: the step is finished, the checkpoint saved, and the exit code the documented one."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from detdata.checkpoint import Checkpointer, Preempted, SavePolicy, list_checkpoints

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
REPOSITORY = Path(__file__).parents[2]
HEAD = """
import os, signal, sys, time, torch
from torch.utils.data import DataLoader
from detdata.checkpoint import Checkpointer, SavePolicy
root = sys.argv[1]
model = torch.nn.Linear(4, 1)
"""


def as_by_default():
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)


def start(body, root, **popen):
    code = HEAD + textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore", "-c", code, str(root)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        preexec_fn=as_by_default,  # noqa: PLW1509 - nothing of this process is running beside
        **popen,
    )


def end(process, seconds=60):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_after_a_signal_the_step_is_finished_saved_and_the_exit_code_is_128_and_its_number(tmp_path, name):
    process = start(
        """
        with Checkpointer(root, model=model) as checkpointer:
            checkpointer.resume()
            while True:
                time.sleep(0.01)
                checkpointer.step()
                print(checkpointer.progress.global_step, flush=True)
        """,
        tmp_path,
    )
    while process.stdout.readline().strip() != "5":
        pass
    number = getattr(signal, name)
    process.send_signal(number)
    process.send_signal(number)  # launchers send it twice

    code, out, err = end(process)

    assert code == 128 + number, err
    assert "Traceback" not in err
    last = max(int(line) for line in out.split() or ["5"])
    [entry] = list_checkpoints(tmp_path)
    assert entry.ok
    assert entry.step == last + 1  # the step under way was finished and saved, and its print never came


def test_before_the_first_step_and_after_close_a_signal_does_what_it_always_did(tmp_path):
    for body in (
        "c = Checkpointer(root, model=model)",
        "c = Checkpointer(root, model=model); c.step(); c.close()",
        "c = Checkpointer(root, model=model, policy=SavePolicy(on_signal=False)); c.step()",
    ):
        process = start(f"{body}; print('up', flush=True); time.sleep(60)", tmp_path)
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert end(process)[0] == -signal.SIGTERM


def test_a_handler_of_the_users_is_called_too_and_put_back(tmp_path):
    process = start(
        """
        signal.signal(signal.SIGTERM, lambda number, frame: print('mine', flush=True))
        mine = signal.getsignal(signal.SIGTERM)
        checkpointer = Checkpointer(root, model=model)
        checkpointer.step()
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            checkpointer.step()
        except SystemExit as error:
            print(error.code, flush=True)
        checkpointer.close()
        print(signal.getsignal(signal.SIGTERM) is mine, flush=True)
        """,
        tmp_path,
    )

    code, out, err = end(process)

    assert (code, out.split()) == (0, ["mine", "143", "True"]), err


def test_what_is_ignored_stays_ignored(tmp_path):
    process = start(
        """
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        checkpointer = Checkpointer(root, model=model)
        checkpointer.step()
        os.kill(os.getpid(), signal.SIGUSR1)
        checkpointer.step()
        print(checkpointer.progress.global_step)
        """,
        tmp_path,
    )

    assert end(process)[:2] == (0, "2\n")


def test_a_forked_loader_worker_still_dies_of_the_signal(tmp_path):
    process = start(
        """
        import multiprocessing
        checkpointer = Checkpointer(root, model=model)
        checkpointer.step()
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        time.sleep(0.2)
        child.terminate()
        child.join(20)
        print(child.exitcode)
        """,
        tmp_path,
    )

    assert end(process)[:2] == (0, f"{-signal.SIGTERM}\n")


def test_a_forked_child_with_a_checkpointer_of_its_own_is_preempted_as_its_parent_would_be(tmp_path):
    process = start(
        """
        import multiprocessing
        parent = Checkpointer(root + "/a", model=model)
        parent.step()

        def work():
            child = Checkpointer(root + "/b", model=model)
            child.step()
            os.kill(os.getpid(), signal.SIGTERM)
            child.step()

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(20)
        print(child.exitcode)
        """,
        tmp_path,
    )

    assert end(process)[:2] == (0, "143\n")
    assert [entry.step for entry in list_checkpoints(tmp_path / "b")] == [2]


def test_inside_an_accumulation_window_it_waits_for_the_boundary(tmp_path):
    from tests.checkpoint.fakes import FakeLoader

    loader = FakeLoader(micro_steps=2)
    checkpointer = Checkpointer(tmp_path, model=torch.nn.Linear(2, 1), loader=loader)
    loader.advance(2)
    checkpointer.step()
    checkpointer._schedule._signals._note(signal.SIGTERM, None)
    loader.advance(1)
    assert checkpointer.step() is False
    loader.advance(1)
    with pytest.raises(Preempted) as caught:
        checkpointer.step()
    assert caught.value.code == 143
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [2]


def test_a_preemption_that_cannot_be_saved_is_no_success(tmp_path):
    (tmp_path / "root").write_text("in the way")
    process = start(
        """
        checkpointer = Checkpointer(root + "/x", model=model)
        checkpointer.step()
        os.kill(os.getpid(), signal.SIGTERM)
        checkpointer.step()
        """,
        tmp_path / "root",
    )

    code, _, err = end(process)

    assert code == 1
    assert "was not saved" in err


def test_leaving_the_block_saves_what_was_not_saved_and_an_error_does_not(tmp_path):
    policy = SavePolicy(latest_every_seconds=None, latest_every_steps=2)
    model = torch.nn.Linear(2, 1)
    with Checkpointer(tmp_path / "clean", model=model, policy=policy) as checkpointer:
        for _ in range(3):
            checkpointer.step()
    assert [entry.step for entry in list_checkpoints(tmp_path / "clean")] == [3]

    with pytest.raises(ZeroDivisionError), Checkpointer(tmp_path / "error", model=model, policy=policy) as checkpointer:
        for _ in range(3):
            checkpointer.step()
        raise ZeroDivisionError
    assert [entry.step for entry in list_checkpoints(tmp_path / "error")] == [2]

    with Checkpointer(tmp_path / "idle", model=model, policy=policy) as checkpointer:
        pass
    assert list_checkpoints(tmp_path / "idle") == []


def test_a_process_that_ends_cleanly_finishes_its_background_save(tmp_path):
    process = start(
        """
        model = torch.nn.Linear(2000, 2000)
        checkpointer = Checkpointer(root, model=model, background=True)
        checkpointer.step()
        checkpointer.save()
        print(time.monotonic())
        """,
        tmp_path,
    )

    code, _, err = end(process)

    assert code == 0, err
    [entry] = list_checkpoints(tmp_path)
    assert (entry.step, entry.ok) == (1, True)
    assert time.monotonic() > 0
