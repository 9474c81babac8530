"""The proof has teeth: a protocol with one step left out or misplaced is found out."""

import pytest

from detdata.checkpoint import store
from detdata.checkpoint.files import remove_tree, write_file
from detdata.checkpoint.manifest import MANIFEST, Manifest
from tests.checkpoint.power import Proof, plain_rank, plain_save, scratch
from tests.checkpoint.recorder import Killed, Recorder


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


def no_sync_of_files(path, folder):
    return folder


def no_sync_of_the_members(path, folder):
    return folder or path.endswith(MANIFEST)


def no_sync_of_the_manifest(path, folder):
    return not path.endswith(MANIFEST)


def no_sync_of_the_temporary_folder(path, folder):
    return not (folder and store.TEMPORARY in path)


def no_sync_of_the_root(path, folder):
    return path != "root"


def no_sync_of_the_folders_above(path, folder):
    return path == "root" or store.TEMPORARY in path


def rename_before_the_manifest(stage, kind, step):
    target = stage._root / store.folder_name(kind, step)
    aside = target.with_name(target.name + store.PREVIOUS)
    if target.exists():
        target.rename(aside)
    stage.folder.rename(target)
    store.sync_folder(stage._root)
    if aside.exists():
        store.discard(aside)
    write_file(target / MANIFEST, lambda file: file.write(Manifest(step, kind, 1, stage._files).to_bytes()))
    store.sync_folder(target)
    return target


def remove_before_the_rename(stage, kind, step):
    target = stage._root / store.folder_name(kind, step)
    write_file(stage.folder / MANIFEST, lambda file: file.write(Manifest(step, kind, 1, stage._files).to_bytes()))
    store.sync_folder(stage.folder)
    if target.exists():
        remove_tree(target)
    stage.folder.rename(target)
    store.sync_folder(stage._root)
    return target


def proved(folder, monkeypatch, counts=lambda path, folder: True, saves=(1, 2), before=0):
    """The counterexamples to plain saves; the first `before` of them are on disk already."""
    base = folder / "disk"
    base.mkdir()
    for step in saves[:before]:
        plain_save(base / "root", step)
    recorder = Recorder(base, counts)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        for step in saves[before:]:
            recorder.returned(plain_save(base / "root", step))
    recorder.finish()
    proof = Proof(folder, "root", plain_rank)
    proof.examine(recorder, floor=saves[before - 1] if before else None)
    return proof.counterexamples


def test_the_protocol_as_it_is_has_none(folder, monkeypatch):
    assert proved(folder, monkeypatch) == []


@pytest.mark.parametrize(
    ("counts", "before"),
    [
        (no_sync_of_files, 1),
        (no_sync_of_files, 0),
        (no_sync_of_the_members, 1),
        (no_sync_of_the_manifest, 1),
        (no_sync_of_the_temporary_folder, 1),
        (no_sync_of_the_temporary_folder, 0),
        (no_sync_of_the_root, 1),
        (no_sync_of_the_root, 0),
        (no_sync_of_the_folders_above, 0),
    ],
)
def test_a_sync_left_out_is_found_out(counts, before, folder, monkeypatch):
    assert proved(folder, monkeypatch, counts, before=before) != []


@pytest.mark.parametrize("publish", [rename_before_the_manifest, remove_before_the_rename])
def test_steps_in_another_order_are_found_out(publish, folder, monkeypatch):
    monkeypatch.setattr(store.Stage, "publish", publish)

    assert proved(folder, monkeypatch, before=0) != []


def test_cleaning_up_after_a_kill_without_syncing_first_is_found_out(folder, monkeypatch):
    base = folder / "disk"
    base.mkdir()
    plain_save(base / "root", 1)
    sweep, sync = store.sweep, store.sync_folder

    def careless(root):
        with monkeypatch.context() as patch:
            patch.setattr(store, "sync_folder", lambda path: None)
            sweep(root)

    recorder = Recorder(base)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        patch.setattr(store, "sync_folder", lambda path: die() if path.name == "root" else sync(path))

        def die():
            raise Killed

        with pytest.raises(Killed):
            plain_save(base / "root", 2)  # both renames are done, and not on the disk
        patch.setattr(store, "sync_folder", sync)
        patch.setattr(store, "sweep", careless)
        recorder.returned(plain_save(base / "root", 3))
    recorder.finish()
    proof = Proof(folder, "root", plain_rank)

    proof.examine(recorder, floor=1)

    assert proof.counterexamples != []
