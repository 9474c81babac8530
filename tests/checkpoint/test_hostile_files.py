"""What somebody may have put into the root: links and pipes under the names that are written to."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

from detdata import Checkpointer, CheckpointNotSaved, SavePolicy

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
