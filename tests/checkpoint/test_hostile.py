"""What a hostile user found: two writers, moved folders, contradictions, changes that nobody mentions."""

from __future__ import annotations

import socket
import subprocess
import sys
import warnings

import pytest
import torch

from detdata import Checkpointer, Loader, Plan, SavePolicy, Sequential, Topology, list_checkpoints
from tests.checkpoint.fakes import newest_is_the_one_saved_last


def model():
    return torch.nn.Linear(2, 1)


WRITER = """
import sys, torch
from detdata import Checkpointer
checkpointer = Checkpointer(sys.argv[1], model=torch.nn.Linear(2, 1))
checkpointer.save()
print("saved", flush=True)
sys.stdin.readline()
"""


def test_a_second_process_is_refused_by_name_and_a_dead_one_does_not_block(tmp_path):
    root = tmp_path / "run"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert "saved" in writer.stdout.readline()
        with Checkpointer(root, model=model()) as checkpointer:
            assert checkpointer.resume() is not None
            with pytest.raises(OSError, match=rf"another process.*process {writer.pid} on {socket.gethostname()}"):
                checkpointer.save()
            assert [entry.ok for entry in list_checkpoints(root)] == [True]

            writer.kill()
            writer.wait()

            checkpointer.save()
    finally:
        writer.kill()
        writer.communicate()


def test_two_checkpointers_of_one_process_share_the_root(tmp_path):
    first, second = (Checkpointer(tmp_path, model=model()) for _ in range(2))
    first.save()
    second.save()
    first.close()
    second.save()


def test_the_root_stays_where_it_was_when_the_process_changes_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpointer = Checkpointer("run", model=model())
    checkpointer.save()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    checkpointer.save()
    assert not (tmp_path / "sub" / "run").exists()


@pytest.mark.parametrize("root", ["", None, 3])
def test_a_root_that_is_no_folder_name_is_refused(root):
    with pytest.raises(TypeError, match="root"):
        Checkpointer(root, model=model())


def test_a_root_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        Checkpointer(tmp_path / "file", model=model())


def test_a_topology_that_contradicts_the_loaders_is_refused(tmp_path):
    loader = Loader([0, 1, 2, 3], Plan(Sequential(4), 2), Topology(1, 2))
    with pytest.raises(ValueError, match="contradicts the loader's"):
        Checkpointer(tmp_path, model=model(), loader=loader, topology=Topology(0, 1))
    with pytest.raises(TypeError, match="topology"):
        Checkpointer(tmp_path, model=model(), topology=3)


def test_ranks_without_states_of_their_own_get_distinct_derived_ones_that_differ_between_checkpoints(tmp_path):
    drawn = []
    for seed in range(2):
        torch.manual_seed(seed)
        Checkpointer(tmp_path, model=model(), topology=Topology(0, 3)).save()
        for rank in range(3):
            torch.manual_seed(0)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                Checkpointer(tmp_path, model=model(), topology=Topology(rank, 3)).resume()
            assert (rank > 0) == any("derived" in str(one.message) for one in seen)
            drawn.append(float(torch.rand(1)))
    assert len(set(drawn)) == 6


def test_hyperparameters_that_the_script_sets_another_way_are_named(tmp_path):
    def build(rate, decay, step_size):
        layer = model()
        optimizer = torch.optim.AdamW(layer.parameters(), lr=rate, weight_decay=decay)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size)
        return Checkpointer(tmp_path, model=layer, optimizer=optimizer, scheduler=scheduler)

    build(0.1, 0.5, 3).save()
    with pytest.warns(UserWarning, match="weight_decay was 0.5") as seen:
        build(0.1, 0.0, 7).resume()
    assert "step_size was 3" in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(0.1, 0.5, 3).resume()


def test_going_back_and_training_on_is_said_at_the_next_plain_resume(tmp_path):
    policy = SavePolicy(latest_every_seconds=None, periodic_every_steps=10)
    run = Checkpointer(tmp_path, model=model(), policy=policy)
    for _ in range(30):
        run.step()
    back = Checkpointer(tmp_path, model=model(), policy=SavePolicy(latest_every_steps=5))
    back.resume(step=20)
    for _ in range(4):
        back.step()
    with pytest.warns(UserWarning, match="higher steps"):
        back.step()
    with pytest.warns(UserWarning, match="step 25 was saved later"):
        assert Checkpointer(tmp_path, model=model()).resume().global_step == 30


def test_a_clock_that_was_set_back_does_not_make_the_older_of_one_step_the_newest(tmp_path, monkeypatch):
    newest_is_the_one_saved_last(tmp_path, monkeypatch)


def test_metrics_are_those_of_the_step_and_stay_until_others_come(tmp_path):
    import json

    run = Checkpointer(tmp_path, model=model())
    loss = torch.tensor(0.5)
    run.step(loss=loss)
    loss.zero_()
    run.step(accuracy=0.25)
    meta = json.loads((run.save() / "meta.json").read_text())
    assert meta["metrics"] == {"loss": 0.5, "accuracy": 0.25}


def test_what_cannot_be_saved_is_said_at_resume_and_not_at_the_first_save(tmp_path):
    class Part:
        def state_dict(self):
            return {"seen": {1, 2}}

        def load_state_dict(self, state):
            pass

    with pytest.raises(TypeError, match="seen"):
        Checkpointer(tmp_path, model=model(), extra={"part": Part()}).resume()


def test_ctrl_c_in_a_write_stays_a_keyboard_interrupt(tmp_path, monkeypatch):
    from detdata.checkpoint import files

    run = Checkpointer(tmp_path, model=model())
    run.save()
    calls = []

    class Interrupting:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    original = files.HashingFile
    monkeypatch.setattr(files, "HashingFile", lambda file: original(Interrupting(file)))
    with pytest.raises(KeyboardInterrupt):
        run.save()
    monkeypatch.undo()
    assert [entry.ok for entry in list_checkpoints(tmp_path)] == [True]
