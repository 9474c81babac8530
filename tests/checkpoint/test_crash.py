"""A save stopped at any operation leaves a whole checkpoint that is found, and the next save cleans up."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, SavePolicy, list_checkpoints
from detdata.checkpoint.files import HashingFile
from tests.checkpoint.fakes import FakeLoader, resumed_step, save_steps, stamped
from tests.checkpoint.power import scratch

CALLS = ("mkdir", "rename", "unlink", "rmdir", "fsync")


class PowerCut(BaseException):
    """No code of the process runs after it: every further operation raises it too."""


class Countdown:
    """Lets `left` operations on the disk happen, and cuts the power at the next, half-done if it writes."""

    def __init__(self, monkeypatch, left, error=None):
        self.left, self.error = left, error
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrap(getattr(os, name)))
        write = HashingFile.write

        def half_write(file, data):
            if file._size == 0 and not self.spend():  # once a file: torch writes in many small pieces
                if self.error is not None:  # as a write to the disk fails; torch's C++ writer is the caller here
                    file._error = self.error
                    return write(file, data)
                file._file.write(memoryview(data)[: memoryview(data).nbytes // 2])
                file._file.flush()
                self.cut()
            return write(file, data)

        monkeypatch.setattr(HashingFile, "write", half_write)

    def spend(self):
        self.left -= 1
        return self.left >= 0

    def cut(self):
        raise self.error or PowerCut

    def wrap(self, call):
        def counted(*args, **kwargs):
            if not self.spend():
                self.cut()
            return call(*args, **kwargs)

        return counted


def stop_everywhere(tmp_path, monkeypatch, prepare, save, error=None):
    """Run `save` stopped at operation 0, 1, 2, … until it gets through; yield the root after each stop."""
    left = 0
    while True:
        root = tmp_path / str(left)
        prepare(root)
        with monkeypatch.context() as patch:
            Countdown(patch, left, error)
            try:
                save(root)
            except (PowerCut, CheckpointNotSaved):
                finished = False
            else:
                finished = True
        yield root, finished
        if finished:
            assert left > 15
            return
        left += 1


def leftovers(root):
    return [path.name for path in root.iterdir() if path.name.startswith(".tmp-") or path.name.endswith(".previous")]


@pytest.mark.filterwarnings("ignore:could not remove the old checkpoint")
@pytest.mark.parametrize("kind", ["latest", "periodic"])
def test_stopped_at_any_operation_a_whole_checkpoint_is_found_and_the_next_save_cleans_up(tmp_path, monkeypatch, kind):
    steps = {"latest": (1, 2, 3), "periodic": (5, 5, 5)}[kind]  # a periodic one replaces itself

    def prepare(root):
        save_steps(root, [steps[0]], kind)

    for root, finished in stop_everywhere(
        tmp_path, monkeypatch, prepare, lambda root: save_steps(root, [steps[1]], kind)
    ):
        step = resumed_step(root)
        assert step in ((steps[1],) if finished else steps[:2])
        save_steps(root, [steps[2]], kind)
        assert leftovers(root) == []
        assert resumed_step(root) == steps[2]
        assert [entry.ok for entry in list_checkpoints(root)] == [True]


def test_stopped_while_it_recovers_from_a_stop_a_whole_checkpoint_is_found(tmp_path, monkeypatch):
    def prepare(root):  # the worst moment of an earlier save: the old one moved aside, the new one not yet in place
        [path] = save_steps(root, [1], "latest")
        path.rename(root / "ckpt_latest.previous")
        (root / ".tmp-1").mkdir()
        (root / ".tmp-1" / "model.pt").write_bytes(b"torn")

    for root, _ in stop_everywhere(tmp_path, monkeypatch, prepare, lambda root: save_steps(root, [2], "latest")):
        assert resumed_step(root) in (1, 2)


@pytest.mark.filterwarnings("ignore:could not remove the old checkpoint")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_leaves_the_old_one_and_raises_a_clear_error(tmp_path, monkeypatch, code):
    error = OSError(code, os.strerror(code))

    for root, finished in stop_everywhere(
        tmp_path,
        monkeypatch,
        lambda root: save_steps(root, [1], "latest"),
        lambda root: failing_save(root, error),
        error,
    ):
        assert resumed_step(root) in ((2,) if finished else (1, 2))


def failing_save(root, error):
    try:
        save_steps(root, [2], "latest")
    except CheckpointNotSaved as caught:
        if "step 2 was not saved" in str(caught) and "untouched" in str(caught) and caught.__cause__ is error:
            raise
        raise AssertionError("the error does not say what happened") from caught


def test_a_previous_beside_a_broken_latest_is_found_and_put_back(tmp_path):
    [path] = save_steps(tmp_path, [1], "latest")
    path.rename(tmp_path / "aside")
    [path] = save_steps(tmp_path, [2], "latest")
    (tmp_path / "aside").rename(tmp_path / "ckpt_latest.previous")
    assert resumed_step(tmp_path) == 2
    (path / "model.pt").unlink()

    with pytest.warns(UserWarning, match="passed over"):
        assert resumed_step(tmp_path) == 1
    save_steps(tmp_path, [3], "latest")
    assert leftovers(tmp_path) == []
    assert resumed_step(tmp_path) == 3


def test_a_previous_of_a_higher_step_does_not_win_over_the_one_that_replaced_it(tmp_path):
    [path] = save_steps(tmp_path, [5000], "latest")
    path.rename(tmp_path / "aside")
    save_steps(tmp_path, [100], "latest")
    (tmp_path / "aside").rename(tmp_path / "ckpt_latest.previous")

    assert resumed_step(tmp_path) == 100


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_o_ci1_killed_at_200_moments_of_a_save_the_newest_published_is_found():
    script = Path(__file__).with_name("kill_loop.py")

    with scratch() as folder:
        result = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(script), str(folder), "200"],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            env={**os.environ, "PYTHONPATH": str(script.parents[2])},
        )

    *lines, counts = result.stdout.splitlines()
    print(f"\n{counts}")
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 200, result.stderr
    for row in rows:
        assert row["published"] <= row["found"] <= row["published"] + 1
        assert row["whole"]
        assert row["clean"]
    assert {row["found"] - row["published"] for row in rows} == {0, 1}  # or the kills come at no moment of a save
    assert "torn = 0, lost = 0" in counts
    assert result.returncode == 0


class TestRetention:
    def test_o_ci3_steps_are_ordered_as_numbers(self, tmp_path):
        save_steps(tmp_path, [9800, 9900, 10000, 10100], policy=SavePolicy(keep_periodic=2))

        assert [entry.step for entry in list_checkpoints(tmp_path)] == [10100, 10000]

    @pytest.mark.filterwarnings("ignore:.*holds checkpoints of higher steps")
    @pytest.mark.parametrize("keep", [1, 2])
    def test_o_ci3_what_was_just_written_stays_beside_an_old_runs_higher_steps(self, tmp_path, keep):
        save_steps(tmp_path, [5000])
        for step in (100, 200, 300):
            [path] = save_steps(tmp_path, [step], policy=SavePolicy(keep_periodic=keep))
            assert path.is_dir()
        assert {entry.step for entry in list_checkpoints(tmp_path)} == {5000, 300}

    def test_o_ci3_higher_steps_of_an_old_run_are_warned_of(self, tmp_path):
        save_steps(tmp_path, [5000])

        with pytest.warns(UserWarning, match=r"higher steps than the 100 just saved \(ckpt_step_5000\)"):
            save_steps(tmp_path, [100])

    @pytest.mark.parametrize("keep", [0, -1])
    def test_o_ci3_keeping_none_is_refused(self, keep):
        with pytest.raises(ValueError, match="to keep all, pass None"):
            SavePolicy(keep_periodic=keep)

    def test_what_was_resumed_from_stays(self, tmp_path):
        save_steps(tmp_path, [1])
        loader, model = FakeLoader(batch_size=1), stamped(0)
        checkpointer = Checkpointer(tmp_path, model=model, loader=loader, policy=SavePolicy(keep_periodic=1))
        checkpointer.resume()
        for step in (2, 3):
            loader.micro = step
            checkpointer.save("periodic")

        assert {entry.step for entry in list_checkpoints(tmp_path)} == {1, 3}
