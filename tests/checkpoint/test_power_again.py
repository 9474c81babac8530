"""One misfortune after the other: a save killed or cut, and the power cut while the next one cleans up."""

import itertools
import types

import pytest

from detdata.checkpoint import store
from tests.checkpoint.power import Proof, plain_rank, plain_save, scratch
from tests.checkpoint.recorder import Killed, Recorder

pytestmark = pytest.mark.slow


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Times that count from 1, set back by calling it, so that equal saves are equal in every byte."""
    times = types.SimpleNamespace(ticks=itertools.count(1))
    monkeypatch.setattr(store, "time", types.SimpleNamespace(time_ns=lambda: next(times.ticks)))

    def restart(start):
        times.ticks = itertools.count(start)

    return restart


def record(base, patch, step, kind="latest", kill_at=None, recorder=None):
    """Record a save, killed before the call `kill_at`; a recorder that is given goes on."""
    recorder = recorder or Recorder(base)
    recorder.calls, recorder.kill_at = 0, kill_at
    with patch.context() as within:
        recorder.install(within)
        try:
            recorder.returned(plain_save(base / "root", step, kind))
            killed = False
        except Killed:
            killed = True
    recorder.finish()
    return recorder, killed


@pytest.mark.parametrize("kind", ["latest", "periodic"])
def test_a_power_cut_while_the_next_process_cleans_up_after_a_kill(kind, folder, monkeypatch, clock):
    """What the killed process had not synced is still not synced while its successor removes things."""
    proof = Proof(folder, "root", plain_rank)
    steps = {"latest": (1, 2, 3), "periodic": (5, 5, 5)}[kind]
    for kill_at in itertools.count():
        base = folder / f"disk-{kill_at}"
        base.mkdir()
        clock(1)
        plain_save(base / "root", steps[0], kind)
        recorder, killed = record(base, monkeypatch, steps[1], kind, kill_at)
        before = len(recorder.operations)
        record(base, monkeypatch, steps[2], kind, recorder=recorder)
        proof.examine(recorder, floor=steps[0], skip=before)
        if not killed:
            break

    print(f"\n{kind}, killed before each of {kill_at} calls: {proof}")
    assert proof.counterexamples == []
    assert kill_at > 10
    assert proof.states > 10_000


def test_a_power_cut_while_the_next_process_cleans_up_after_a_power_cut(folder, monkeypatch, clock):
    proof = Proof(folder, "root", plain_rank)
    base = folder / "disk"
    base.mkdir()
    plain_save(base / "root", 1)
    first, _ = record(base, monkeypatch, 2)
    trees = proof.trees(first)
    for number, tree in enumerate(trees):
        again = folder / f"again-{number}"
        proof.build(tree, again)
        clock(1000)
        recorder, _ = record(again, monkeypatch, 3)
        proof.examine(recorder, floor=1)

    print(f"\n{len(trees)} trees left by a first cut, cut again: {proof}")
    assert proof.counterexamples == []
    assert proof.states > 10_000
