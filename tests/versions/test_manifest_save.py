"""Saving a manifest: the file is whole or as it was, whatever happens on the way."""

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from detdata.versions import manifest_io
from detdata.versions.errors import DatasetError
from detdata.versions.manifest import Manifest
from tests.sources import run_python
from tests.versions.entries import some

OLD, NEW = some(3), some(5)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals, modes and limits as POSIX has them")


@pytest.fixture
def file(tmp_path):
    OLD.save(tmp_path / "data.lock.json")
    return tmp_path / "data.lock.json"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "Permission denied")]
)
def test_an_error_of_the_system_is_told_and_leaves_the_old_file(file, monkeypatch, call, error):
    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(manifest_io.os, call, fail)
        with pytest.raises(
            DatasetError, match=rf"data\.lock\.json: cannot be written \({error.strerror}\); .*as it was"
        ):
            NEW.save(file)

    assert Manifest.load(file) == OLD
    assert names(file.parent) == ["data.lock.json"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupt_passes_through_and_leaves_the_old_file(file, monkeypatch, call):
    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(manifest_io.os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            NEW.save(file)

    assert Manifest.load(file) == OLD
    assert names(file.parent) == ["data.lock.json"]


@POSIX
@pytest.mark.parametrize(
    ("call", "when", "left"),
    [("open", 2, OLD), ("fsync", 1, OLD), ("replace", 1, OLD), ("fsync", 2, NEW)],
)
def test_a_kill_at_any_step_leaves_a_whole_file_and_what_else_is_left_is_named_as_a_manifest(file, call, when, left):
    result = run_python(f"""
import os, signal
from pathlib import Path
from detdata.versions.manifest import Manifest
from tests.versions.entries import some

calls, real = 0, os.{call}

def die(*args, **kwargs):
    global calls
    calls += 1
    if calls == {when} and {call!r} != "open":
        os.kill(os.getpid(), signal.SIGKILL)
    made = real(*args, **kwargs)
    if {call!r} == "open":  # as soon as the temporary file is there
        os.kill(os.getpid(), signal.SIGKILL)
    return made

os.{call} = die
some(5).save({str(file)!r})
""")

    assert result.returncode == -9, result.stderr
    assert Manifest.load(file) == left
    rest = [name for name in names(file.parent) if name != "data.lock.json"]
    assert all(name.endswith(".lock.json") for name in rest)
    for name in rest:
        if (file.parent / name).stat().st_size:
            assert Manifest.load(file.parent / name) == NEW


@POSIX
def test_a_full_disk_is_told_and_leaves_the_old_file(file):
    result = run_python(f"""
import resource
from detdata.versions.errors import DatasetError
from tests.versions.entries import some

resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    some(5000).save({str(file)!r})
except DatasetError as error:
    print(error)
""")

    assert "cannot be written (File too large)" in result.stdout, result.stderr
    assert Manifest.load(file) == OLD
    assert names(file.parent) == ["data.lock.json"]


@POSIX
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_is_told(file):
    file.parent.chmod(0o500)
    try:
        with pytest.raises(DatasetError, match="Permission denied"):
            NEW.save(file)
    finally:
        file.parent.chmod(0o700)
    assert Manifest.load(file) == OLD


def test_a_folder_that_is_not_there_or_in_the_way_is_told(tmp_path):
    with pytest.raises(DatasetError, match="No such file or directory"):
        OLD.save(tmp_path / "missing" / "x.lock.json")
    with pytest.raises(DatasetError, match="is a folder"):
        OLD.save(tmp_path)


@POSIX
def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(DatasetError, match="pipe or device"):
            OLD.save(path)
        assert not stat.S_ISREG(path.stat().st_mode)


@POSIX
def test_the_target_of_a_link_is_written_and_its_mode_is_kept(file):
    link = file.parent / "link.json"
    link.symlink_to(file.name)
    file.chmod(0o640)

    NEW.save(link)

    assert link.is_symlink()
    assert Manifest.load(file) == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@POSIX
def test_a_new_file_has_the_mode_that_the_user_gives_to_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        OLD.save(tmp_path / "x.lock.json")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "x.lock.json").stat().st_mode) == 0o640


def test_a_relative_name_is_written_where_the_process_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    OLD.save("x.lock.json")

    assert Manifest.load("x.lock.json") == OLD
