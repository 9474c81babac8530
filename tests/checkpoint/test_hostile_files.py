"""What somebody may have put into the root: links, pipes, and checkpoints whose manifest fits what they planted."""

from __future__ import annotations

import errno
import json
import os
import pickle
import warnings
import zipfile

import pytest
import torch

from detdata import CheckpointBroken, Checkpointer, CheckpointNotSaved, SavePolicy, verify_checkpoint
from detdata.checkpoint.files import hash_file
from detdata.checkpoint.manifest import Manifest, read_manifest

NEVER = SavePolicy(latest_every_seconds=None, on_signal=False)


def model():
    return torch.nn.Linear(2, 1)


@pytest.mark.parametrize("name", [".lock", ".cursor"])
def test_a_link_in_the_root_is_not_written_through(tmp_path, name):
    victim, root = tmp_path / "victim", tmp_path / "root"
    victim.write_text("precious" * 100)
    root.mkdir()
    (root / name).symlink_to(victim)
    run = Checkpointer(root, model=model(), policy=NEVER)
    run.step()
    if name == ".lock":
        with pytest.raises(CheckpointNotSaved, match=r"\.lock is a symbolic link"):
            run.save()
    else:
        run.save()
    assert victim.read_text() == "precious" * 100


@pytest.mark.parametrize("name", [".lock", ".cursor"])
def test_a_pipe_in_the_root_does_not_hang(tmp_path, name):
    os.mkfifo(tmp_path / name)
    run = Checkpointer(tmp_path, model=model(), policy=NEVER)
    run.step()
    if name == ".lock":
        with pytest.raises(CheckpointNotSaved, match="no regular file"):
            run.save()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run.save()


def seal(folder):
    """Give a folder the manifest that fits what is in it: what somebody who can write there can do."""
    manifest = read_manifest(folder)
    files = {name: hash_file(folder / name) for name in manifest.files}
    sealed = Manifest(manifest.step, manifest.kind, manifest.saved_ns, files)
    (folder / "manifest.json").write_bytes(sealed.to_bytes())


def start(root):
    torch.manual_seed(0)
    layer = torch.nn.Linear(300, 300)
    optimizer = torch.optim.Adam(layer.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return Checkpointer(root, model=layer, optimizer=optimizer, scheduler=scheduler, policy=NEVER)


def refused(root, match):
    run = start(root)
    before = {name: value.clone() for name, value in run._run.model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CheckpointBroken, match=match):
            run.resume()
    assert all(torch.equal(value, before[name]) for name, value in run._run.model.state_dict().items())


def packed(path):
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, bytes(1 << 22))


@pytest.mark.parametrize(
    "write",
    [
        packed,
        lambda path: path.write_bytes(pickle.dumps({"weight": 1}, protocol=4)),
        lambda path: torch.save({"weight": torch.ones(300, 300)}, path, _use_new_zipfile_serialization=False),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"PK\x05\x06" + bytes(18)),
        lambda path: path.write_bytes(pickle.dumps({"weight": 1}, protocol=4) + path.read_bytes()),
    ],
    ids=["packed", "raw pickle", "older format", "empty", "empty archive", "pickle before an archive"],
)
def test_a_part_that_is_no_plain_archive_is_refused_without_a_warning_or_unpacking(tmp_path, write):
    folder = start(tmp_path).save()
    write(folder / "model.pt")
    seal(folder)
    refused(tmp_path, r"model\.pt is no plain archive")


def nested(depth):
    tree: dict = {}
    for _ in range(depth):
        tree = {"a": tree}
    return tree


def tensors(name, change):
    def write(folder):
        tree = torch.load(folder / name, weights_only=True)
        torch.save(change(tree), folder / name)

    return write


def record(name, change):
    def write(folder):
        (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))

    return write


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (tensors("model.pt", lambda tree: [1]), r"model\.pt: a list"),
        (tensors("model.pt", lambda tree: {3: tree["bias"]}), r"model\.pt: the key 3"),
        (tensors("optimizer.pt", lambda tree: [1]), r"optimizer\.pt: a list"),
        (tensors("optimizer.pt", lambda tree: tree | {"format": "detdata.optimizer/9"}), "optimizer/9"),
        (tensors("optimizer.pt", lambda tree: tree | {"state": {"nobody": {}}}), "'nobody', which is in no group"),
        (tensors("optimizer.pt", lambda tree: tree | {"groups": [3]}), "without the names"),
        (tensors("optimizer.pt", lambda tree: tree | {"groups": [{"names": ["weight"]}]}), "without hyperparameters"),
        (tensors("scheduler.pt", lambda tree: tree | {"states": []}), "do not fit"),
        (tensors("rng_rank00000.pt", lambda tree: tree | {"torch": torch.zeros(3, dtype=torch.uint8)}), "torch is no"),
        (tensors("rng_rank00000.pt", lambda tree: {"format": tree["format"]}), "python is missing"),
        (record("meta.json", lambda meta: {"format": meta["format"]}), "topology is missing"),
        (record("meta.json", lambda meta: meta | {"config": nested(400)}), "nested more than 100 deep"),
        (record("meta.json", lambda meta: meta | {"probe": {"values": ["x"]}}), "probe has no values"),
        (record("meta.json", lambda meta: meta | {"best": {"step": 3}}), "best is no metric"),
        (record("meta.json", lambda meta: meta | {"model": {"frozen": [3]}}), "frozen"),
        (record("data.json", lambda data: data | {"loader": [3]}), "loader is a list"),
    ],
)
def test_a_part_of_another_form_is_a_broken_checkpoint_and_no_traceback(tmp_path, write, match):
    folder = start(tmp_path).save()
    write(folder)
    seal(folder)
    refused(tmp_path, match)


def test_a_root_that_is_a_link_to_nowhere_is_no_reason_to_start_from_nothing(tmp_path):
    (tmp_path / "root").symlink_to(tmp_path / "not mounted")
    with pytest.raises(FileNotFoundError, match=r"is a link to .*not mounted, which is not there"):
        Checkpointer(tmp_path / "root", model=model()).resume()


def test_a_root_that_cannot_be_listed_is_no_reason_to_start_from_nothing(tmp_path, monkeypatch):
    def denied(path):
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr("pathlib.Path.iterdir", denied)
    monkeypatch.setattr("pathlib.Path.exists", lambda path: False)  # as newer releases of Python say of it
    with pytest.raises(PermissionError):
        Checkpointer(tmp_path, model=model()).resume()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize("name", ["manifest.json", "model.pt"])
def test_a_newest_one_that_this_process_may_not_read_is_not_passed_over_and_then_replaced(
    tmp_path, monkeypatch, name, code
):
    run = start(tmp_path)
    run.save("periodic")
    run.step()
    newest = run.save("periodic")
    open_file = os.open

    def denied(path, *arguments, **options):
        if os.fspath(path) == os.fspath(newest / name):
            raise OSError(code, os.strerror(code), os.fspath(path))
        return open_file(path, *arguments, **options)

    monkeypatch.setattr("detdata.checkpoint.files.os.open", denied)
    with pytest.raises(OSError, match="does not mean that it is broken"):
        start(tmp_path).resume()

    run.step()
    (tmp_path / "ckpt_step_0").rename(tmp_path / "ckpt_step_1.previous")  # as if a kill had left it
    with pytest.raises(CheckpointNotSaved, match=os.strerror(code)):
        run.save()
    monkeypatch.setattr("detdata.checkpoint.files.os.open", open_file)
    assert verify_checkpoint(newest).ok


def test_one_checkpoint_is_verified_beside_its_writer(tmp_path, monkeypatch):
    from detdata.checkpoint import verify

    run = start(tmp_path)
    path = run.save()
    check, saves = verify.find_problems, [1, 2, 3]

    def beside(folder, manifest):
        if saves:
            torch.nn.init.constant_(run._run.model.weight, saves.pop())
            run.save()
        return check(folder, manifest)

    monkeypatch.setattr(verify, "find_problems", beside)
    assert verify_checkpoint(path).ok
    assert not saves

    path.rename(tmp_path / "ckpt_latest.previous")
    monkeypatch.setattr(verify.time, "sleep", lambda seconds: (tmp_path / "ckpt_latest.previous").rename(path))
    assert verify_checkpoint(path).ok
    with pytest.raises(FileNotFoundError):
        verify_checkpoint(tmp_path / "ckpt_step_3")
