"""What network file systems do otherwise: files removed while open, lost replies, stale handles, folders not synced."""

import errno
import os
import stat
from pathlib import Path

import pytest

from detdata.checkpoint import list_checkpoints, saved, verify_checkpoint
from tests.checkpoint.fakes import resumed_step, save_steps

SILLY = ".nfs00000000012ab34c00000001"


@pytest.fixture
def open_elsewhere(monkeypatch):
    """model.pt is held open by a client of NFS: removing it leaves another name, which can't be removed."""
    unlink, rename = os.unlink, os.rename

    def silly(path, *, dir_fd=None):
        name = Path(path).name
        if name == "model.pt":
            rename(path, Path(path).with_name(SILLY), src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        elif name == SILLY:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)
        else:
            unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", silly)
        patch.setattr(os, "remove", silly)
        yield patch


def left(root):
    return sorted(path.relative_to(root).parts[1:] for path in root.glob(".tmp-*/*"))


@pytest.mark.parametrize("kind", ["latest", "periodic"])
def test_what_somebody_still_reads_fails_no_save_and_goes_when_it_is_closed(tmp_path, open_elsewhere, kind):
    for _ in range(3):  # no warning either
        save_steps(tmp_path, [1], kind)

    assert set(left(tmp_path)) == {(SILLY,)}
    assert [entry.ok for entry in list_checkpoints(tmp_path)] == [True]
    open_elsewhere.undo()
    save_steps(tmp_path, [1], kind)
    assert left(tmp_path) == []


def test_a_name_left_by_nfs_in_a_checkpoint_is_no_fault_but_another_is(tmp_path):
    [path] = save_steps(tmp_path, [1], "latest")
    (path / SILLY).write_bytes(b"x")
    assert verify_checkpoint(path).ok
    assert resumed_step(tmp_path) == 1

    (path / ".nfs-notes.txt").write_bytes(b"x")

    assert verify_checkpoint(path).problems == (".nfs-notes.txt is not part of the checkpoint",)


def test_a_rename_whose_reply_was_lost_counts_as_done(tmp_path, monkeypatch):
    rename = os.rename

    def lost(source, target, **options):
        rename(source, target, **options)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)  # the second try finds nothing

    monkeypatch.setattr(os, "rename", lost)

    save_steps(tmp_path, [1, 2, 3], "latest")

    assert resumed_step(tmp_path) == 3
    assert sorted(path.name for path in tmp_path.glob("*ckpt*")) == ["ckpt_latest"]


def test_a_handle_gone_stale_while_another_machine_saves_is_looked_for_again(tmp_path, monkeypatch):
    save_steps(tmp_path, [1], "latest")
    hold, stale = saved.hold, []

    def moved(path, *arguments, **options):
        if not stale:
            stale.append(path)
            save_steps(tmp_path, [2], "latest")
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return hold(path, *arguments, **options)

    monkeypatch.setattr(saved, "hold", moved)

    assert resumed_step(tmp_path) == 2
    assert stale


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_is_saved_to(tmp_path, monkeypatch, code):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)

    save_steps(tmp_path, [1, 2], "latest")

    assert resumed_step(tmp_path) == 2
