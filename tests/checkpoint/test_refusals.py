"""What a disk may do to a save: full, read-only, closed to us, removed under us. The run goes on, the old one stays."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, list_checkpoints, store
from tests.checkpoint.fakes import FakeLoader, resumed_step, stamped
from tests.checkpoint.power import scratch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions and limits of POSIX")
NOBODY = 65534


@pytest.fixture
def folder():
    with scratch() as path:
        path.chmod(0o755)
        yield path


class Run:
    """A run whose model says its step."""

    def __init__(self, root, size=16):
        self.model, self.loader = stamped(0, size), FakeLoader(batch_size=1)
        self.checkpointer = Checkpointer(root, model=self.model, loader=self.loader)

    def save(self, step, kind="latest"):
        self.loader.micro = step
        self.model.load_state_dict(stamped(step, self.model.in_features).state_dict())
        return self.checkpointer.save(kind)


def assert_refused(run, root, match):
    before = resumed_step(root)
    with pytest.raises(CheckpointNotSaved, match=match) as caught:
        run.save(before + 1)
    assert f"step {before + 1} was not saved" in str(caught.value)
    assert "untouched" in str(caught.value)
    assert resumed_step(root) == before
    assert [entry.ok for entry in list_checkpoints(root)] == [True]


def assert_goes_on(run, root):
    step = resumed_step(root) + 5
    run.save(step)
    assert resumed_step(root) == step
    assert not [path for path in root.iterdir() if path.name.startswith(".tmp-")]


def test_a_file_that_grows_beyond_its_limit(folder):
    run = Run(folder / "root", size=128)  # 64 kB
    run.save(1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        with pytest.raises(CheckpointNotSaved, match="File too large"):
            run.save(2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (folder / "root").glob(".tmp-*")] == []
    assert list_checkpoints(folder / "root")[0].step == 1
    run.save(3)
    assert list_checkpoints(folder / "root")[0].step == 3


MOUNTED = """
import subprocess, sys
from pathlib import Path
import pytest
from tests.checkpoint.test_refusals import Run, assert_goes_on, assert_refused
mount = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(mount)], check=True)
root = mount / "root"
run = Run(root)
run.save(1)
filler = mount / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
assert_refused(run, root, "No space left on device")
filler.unlink()
assert_goes_on(run, root)
run.checkpointer.close()  # no file may be open for writing
run = Run(root)
subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
assert_refused(run, root, "Read-only file system")
subprocess.run(["mount", "-o", "remount,rw", str(mount)], check=True)
assert_goes_on(run, root)
print("done")
"""


def can_mount():
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"]
    return shutil.which("unshare") and subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_real_disk_that_is_full_and_one_that_is_read_only(folder):
    if not can_mount():
        pytest.skip("no file system can be mounted here")
    result = subprocess.run(
        ["unshare", "-rm", sys.executable, "-W", "ignore", "-c", MOUNTED, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert result.stdout.endswith("done\n"), result.stderr


@contextlib.contextmanager
def nobody():
    """Be a user whom permissions bind."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o500, 0o000], ids=oct)
def test_permissions_lost_in_mid_run_and_given_back(folder, mode):
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    root = folder / "root"
    with nobody():
        run = Run(root)
        run.save(1)
        root.chmod(mode)
        try:
            with pytest.raises(CheckpointNotSaved, match="Permission denied"):
                run.save(2)
        finally:
            root.chmod(0o755)
        assert resumed_step(root) == 1
        assert_goes_on(run, root)


def test_a_root_that_was_removed_is_made_anew_with_a_warning(folder):
    run = Run(folder / "runs" / "root")
    run.save(1)
    shutil.rmtree(folder / "runs")

    with pytest.warns(UserWarning, match="was removed or moved while this run saved to it. It is made anew"):
        run.save(2)

    assert resumed_step(folder / "runs" / "root") == 2
    assert_goes_on(run, folder / "runs" / "root")


def test_a_root_that_is_removed_in_the_middle_of_a_save_is_made_anew_by_the_next(folder, monkeypatch):
    run, root = Run(folder / "root"), folder / "root"
    run.save(1)
    publish = store.Stage.publish

    def removed(stage, kind, step):
        shutil.rmtree(root)
        return publish(stage, kind, step)

    with monkeypatch.context() as patch:
        patch.setattr(store.Stage, "publish", removed)
        with pytest.raises(CheckpointNotSaved, match="step 2 was not saved"):
            run.save(2)
    with pytest.warns(UserWarning, match="made anew"):
        run.save(3)

    assert resumed_step(root) == 3
