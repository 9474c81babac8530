"""The power cut after any operation of a save: what is left holds the last checkpoint that had been saved, whole."""

import pytest
import torch

from detdata.checkpoint import Checkpointer, SavePolicy
from detdata.checkpoint.place import retain
from tests.checkpoint.fakes import FakeLoader
from tests.checkpoint.power import Proof, plain_rank, plain_save, saved_rank, scratch, selected
from tests.checkpoint.recorder import Recorder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


# root, saves before the recording, saves in it, how many periodic ones are kept, states at least
SCENARIOS = {
    "first save": ("runs/one/checkpoints", [], [("latest", 1)], None, 2000),
    "first periodic": ("checkpoints", [], [("periodic", 1)], None, 2000),
    "overwrite of latest": ("checkpoints", [("latest", 1)], [("latest", 2)], None, 900),
    "periodic": ("checkpoints", [("periodic", 1)], [("periodic", 2)], None, 500),
    "periodic replacing itself": ("checkpoints", [("periodic", 5)], [("periodic", 5)], None, 900),
    "retention": ("checkpoints", [("periodic", 1), ("periodic", 2)], [("periodic", 3)], 2, 900),
    "both kinds": ("checkpoints", [("latest", 1)], [("periodic", 2), ("latest", 2)], 1, 1200),
}

# saves of two small members, one after the other: the trees of one save meet what the one before has left unsynced
IN_A_ROW = {
    "overwrites of latest": [("latest", step) for step in (1, 2, 3, 4)],
    "retention": [("periodic", step) for step in (1, 2, 3, 4, 5)],
    "both kinds": [("latest", 1), ("periodic", 2), ("latest", 3), ("periodic", 4), ("latest", 5)],
}


class Run:
    """A run with a tiny model that saves at the steps it is told to."""

    def __init__(self, root, keep):
        self.model, self.loader = torch.nn.Linear(1, 1), FakeLoader(batch_size=1)
        policy = SavePolicy(keep_periodic=keep)
        self.checkpointer = Checkpointer(root, model=self.model, loader=self.loader, policy=policy)

    def save(self, kind, step):
        self.loader.micro = step
        torch.nn.init.constant_(self.model.weight, float(step))
        return self.checkpointer.save(kind)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_last_checkpoint_saved_survives_a_power_cut_after_any_operation(scenario, folder, monkeypatch):
    root, before, saves, keep, least = SCENARIOS[scenario]
    base = folder / "disk"
    base.mkdir()
    run = Run(base / root, keep)
    paths = [run.save(kind, step) for kind, step in before]
    recorder = Recorder(base)
    for path in paths:
        recorder.returned(path)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        for kind, step in saves:
            recorder.returned(run.save(kind, step))
    recorder.finish()
    run.checkpointer.close()
    proof = Proof(folder, root, saved_rank(recorder), selected)

    proof.examine(recorder)

    print(f"\n{scenario}: {len(recorder.operations)} operations, {proof}")
    assert proof.counterexamples == []
    assert proof.prefixes > 20
    assert proof.states > least


@pytest.mark.parametrize("scenario", IN_A_ROW)
def test_saves_one_after_the_other_survive_a_power_cut_after_any_operation(scenario, folder, monkeypatch):
    base = folder / "disk"
    base.mkdir()
    recorder = Recorder(base)
    with monkeypatch.context() as patch:
        recorder.install(patch)
        for kind, step in IN_A_ROW[scenario]:
            recorder.returned(plain_save(base / "root", step, kind))
            if kind == "periodic":
                retain(base / "root", 2, [])
    recorder.finish()
    proof = Proof(folder, "root", plain_rank)

    proof.examine(recorder)

    print(f"\n{scenario}, in a row: {len(recorder.operations)} operations, {proof}")
    assert proof.counterexamples == []
    assert proof.states > 1000
