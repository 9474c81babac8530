"""Saves behind the training: values of the call, one at a time, errors at the next call."""

import threading
import warnings

import pytest
import torch

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, SavePolicy, list_checkpoints, saver
from detdata.checkpoint.snapshot import Buffers
from tests.checkpoint.fakes import bits, stamped

NEVER = SavePolicy(latest_every_seconds=None, latest_every_steps=None, on_signal=False)


class Gate:
    """Holds saves back until it is opened; may fail them."""

    def __init__(self, monkeypatch, error=None):
        self.open, self.entered, self.error = threading.Event(), threading.Event(), error
        write = saver.Writer.write

        def gated(writer, content, kind, step):
            self.entered.set()
            assert self.open.wait(30)
            if self.error is not None:
                raise self.error
            return write(writer, content, kind, step)

        monkeypatch.setattr(saver.Writer, "write", gated)


def fill(model, value):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def resumed_value(root):
    model = stamped(-1)
    Checkpointer(root, model=model, policy=NEVER).resume()
    values = {float(value) for parameter in model.parameters() for value in parameter.detach().flatten()}
    assert len(values) == 1
    return values.pop()


def test_the_values_are_those_at_the_call(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    model = stamped(7)
    checkpointer = Checkpointer(tmp_path, model=model, policy=NEVER, background=True)
    checkpointer.step()

    path = checkpointer.save()
    fill(model, 8)  # training goes on while nothing is written yet
    assert not path.exists()
    gate.open.set()
    checkpointer.wait()

    assert resumed_value(tmp_path) == 7
    report = checkpointer.last_save
    assert (report.path, report.kind, report.step) == (path, "latest", 1)
    assert 0 < report.blocked_s <= report.total_s
    assert report.size_bytes == sum(file.stat().st_size for file in path.iterdir() if file.name != "manifest.json")


def test_a_second_save_waits_for_the_first(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    model = stamped(1)
    checkpointer = Checkpointer(tmp_path, model=model, policy=NEVER, background=True)
    checkpointer.step()
    checkpointer.save()
    fill(model, 2)
    checkpointer.step()
    threading.Timer(0.2, gate.open.set).start()

    checkpointer.save("periodic")
    checkpointer.close()

    assert [(entry.step, entry.ok) for entry in list_checkpoints(tmp_path)] == [(2, True), (1, True)]


def test_a_second_save_is_refused_where_that_is_wanted_and_step_tries_again(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    policy = SavePolicy(latest_every_seconds=None, periodic_every_steps=2, on_signal=False)
    checkpointer = Checkpointer(tmp_path, model=stamped(1), policy=policy, background=True, when_busy="refuse")
    checkpointer.save()
    with pytest.raises(CheckpointNotSaved, match="still being written"):
        checkpointer.save()
    assert [checkpointer.step() for _ in range(2)] == [False, False]  # due at 2, and put off
    gate.open.set()
    checkpointer.wait()
    assert checkpointer.step() is True
    checkpointer.close()

    assert [entry.step for entry in list_checkpoints(tmp_path)] == [3, 0]


def test_an_error_surfaces_at_the_next_call_once(tmp_path, monkeypatch):
    gate = Gate(monkeypatch, CheckpointNotSaved("the disk is full"))
    gate.open.set()
    checkpointer = Checkpointer(tmp_path, model=stamped(1), policy=NEVER, background=True)
    for call in (checkpointer.wait, checkpointer.save, checkpointer.close):
        checkpointer._saver.start(checkpointer._content(), "latest", 0, 0.0)
        checkpointer._saver._thread.join()
        with pytest.raises(CheckpointNotSaved, match="the disk is full"):
            call()
        checkpointer.wait()


def test_a_step_warns_of_a_failed_one_tries_again_and_raises_at_last(tmp_path, monkeypatch):
    monkeypatch.setattr("detdata.checkpoint.schedule.RETRY_S", 0.0)
    gate = Gate(monkeypatch, CheckpointNotSaved("the disk is full"))
    gate.open.set()
    policy = SavePolicy(latest_every_seconds=None, latest_every_steps=1, max_failures=3, on_signal=False)
    checkpointer = Checkpointer(tmp_path, model=stamped(1), policy=policy, background=True)
    checkpointer.step()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            checkpointer._saver._thread.join()
            checkpointer.step()
    assert [str(one.message).count("tried again") for one in seen] == [1, 1]
    checkpointer._saver._thread.join()
    with pytest.raises(CheckpointNotSaved, match="the disk is full"):
        checkpointer.step()


def test_the_copy_is_of_every_value_and_shares_what_was_shared():
    base = torch.arange(12.0).reshape(3, 4)
    tree = {
        "a": base,
        "view": base[1:],
        "tied": base,
        "transposed": base.t(),
        "expanded": torch.ones(1).expand(5),
        "empty": torch.empty(0, 3),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "list": [torch.tensor(1), (2, "x", None)],
    }
    buffers = Buffers()

    copy = buffers.copy(tree)
    assert bits(copy) == bits(tree)
    assert copy["a"].data_ptr() != base.data_ptr()
    assert copy["a"].data_ptr() == copy["tied"].data_ptr()
    assert copy["transposed"].stride() == tree["transposed"].stride()
    base.add_(1)
    assert bits(copy["a"]) != bits(base)
    again = buffers.copy(tree)
    assert bits(again) == bits(tree)
    assert again["a"].data_ptr() == copy["a"].data_ptr()  # the same memory every time
    base.resize_(4, 3)
    assert buffers.copy(tree)["a"].shape == (4, 3)
