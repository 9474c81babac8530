"""What is on disk, in which order: files and folder before the name, the name before the old one goes."""

import os
from pathlib import Path

from tests.checkpoint.fakes import save_steps


def test_files_and_folder_are_synced_before_the_rename_and_the_root_before_the_old_one_goes(
    tmp_path, monkeypatch, synced
):
    save_steps(tmp_path, [1], "latest")
    events = []
    rename = os.rename

    def watched(source, target, **options):
        events.append((Path(source).name, Path(target).name, set(synced)))
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", watched)
    synced.clear()

    [path] = save_steps(tmp_path, [2], "latest")

    names = [(source[:4], target[:4]) for source, target, _ in events]
    assert names == [("ckpt", "ckpt"), (".tmp", "ckpt"), ("ckpt", ".tmp")]
    before_publishing, before_discarding = events[1][2], events[2][2]
    assert {path.stat().st_ino, *(member.stat().st_ino for member in path.iterdir())} <= before_publishing
    assert tmp_path.stat().st_ino not in before_publishing
    assert tmp_path.stat().st_ino in before_discarding
