"""A dataset's version travels in the loader's state and in the checkpoint, and is compared before a resume."""

import json
import pathlib

import pytest
import torch

from detdata import (
    Checkpointer,
    CheckpointMismatch,
    Loader,
    Manifest,
    Plan,
    Shuffle,
    StateMismatch,
    Topology,
    UnknownFormat,
)
from detdata.errors import ArgumentTypeError


class Version:
    """As a Manifest has it."""

    digest = "xxh3-128:aa"


def make_loader(version=None):
    return Loader(list(range(40)), Plan(Shuffle(40, seed=1), 4), Topology(), dataset_version=version)


def make_checkpointer(root, version=None, **more):
    return Checkpointer(root, model=torch.nn.Linear(2, 2), loader=make_loader(version), **more)


def test_the_version_is_part_of_the_loaders_state_as_plain_json():
    state = json.loads(json.dumps(make_loader(Version()).state_dict()))

    assert state["dataset_version"] == "xxh3-128:aa"
    assert "dataset_version" not in make_loader().state_dict()


@pytest.mark.parametrize(("saved", "now"), [("xxh3-128:aa", Version()), (None, None), (None, "xxh3-128:aa")])
def test_the_same_version_or_none_known_before_goes_on(saved, now):
    make_loader(now).load_state_dict(make_loader(saved).state_dict())


@pytest.mark.parametrize("now", [None, "xxh3-128:bb"])
def test_another_version_is_named_and_nothing_moves(now):
    loader = make_loader("xxh3-128:aa")
    next(iter(loader))
    other = make_loader(now)

    with pytest.raises(StateMismatch, match=r"dataset_version: saved xxh3-128:aa, here (xxh3-128:bb|not declared)"):
        other.load_state_dict(loader.state_dict())
    assert other.progress.global_step == 0


@pytest.mark.parametrize("version", ["", None, 3, ["a"]])
def test_a_state_with_a_version_that_is_none_is_refused(version):
    with pytest.raises(UnknownFormat):
        make_loader("a").load_state_dict({**make_loader().state_dict(), "dataset_version": version})


@pytest.mark.parametrize("version", ["", 3, object()])
def test_what_is_no_version_is_a_type_error(version):
    with pytest.raises(TypeError, match=r"dataset_version must be a string or have a \.digest"):
        make_loader(version)


@pytest.mark.parametrize("name", ["data.lock.json", "data.lock", "nowhere/train.lock.json.gz", "DATA.LOCK.JSON"])
def test_the_path_of_a_lock_file_is_no_version(name):
    for version in (name, pathlib.Path(name)):
        with pytest.raises(ArgumentTypeError, match=r"(?i)dataset_version .*: give Manifest\.load\(.*lock"):
            make_loader(version)


def test_a_manifest_under_any_name_is_no_version_and_another_file_of_that_name_is_no_matter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Manifest.build(["a"], [5], ["1" * 32]).save("v1")
    with pytest.raises(ArgumentTypeError, match=r"dataset_version .*: give Manifest\.load\('v1'\)"):
        make_loader("v1")

    (tmp_path / "v1").write_bytes(b"notes")
    assert make_loader("v1").dataset_version == "v1"
    assert make_loader(Manifest.build(["a"], [5], ["1" * 32])).dataset_version.startswith("xxh3-128:")
    assert make_loader("xxh3-128:aa").dataset_version == "xxh3-128:aa"


def test_a_checkpoint_takes_it_from_the_loader_and_refuses_another_by_name(tmp_path):
    make_checkpointer(tmp_path, "xxh3-128:aa").save()

    assert make_checkpointer(tmp_path, Version()).resume() is not None
    with pytest.raises(CheckpointMismatch) as caught:
        make_checkpointer(tmp_path, "xxh3-128:bb").resume()
    (difference,) = caught.value.differences
    assert (difference.field, difference.saved, difference.found) == ("dataset_version", "xxh3-128:aa", "xxh3-128:bb")


def test_another_version_is_accepted_by_name(tmp_path):
    make_checkpointer(tmp_path, "xxh3-128:aa").save()

    assert make_checkpointer(tmp_path, "xxh3-128:bb").resume(accept=("dataset_version",)) is not None


def test_a_checkpointer_that_says_otherwise_than_its_loader_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dataset_version contradicts the loader's"):
        make_checkpointer(tmp_path, "xxh3-128:aa", dataset_version="xxh3-128:bb")
    make_checkpointer(tmp_path / "b", "xxh3-128:aa", dataset_version="xxh3-128:aa").save()
