"""What does not fit is refused before anything is loaded, all of it in one error, and accepted only by name."""

import contextlib
import json
import random

import numpy as np
import pytest
import torch

from detdata.checkpoint import Checkpointer, SavePolicy
from detdata.checkpoint.compare import ACCEPTABLE
from detdata.checkpoint.parts import capture
from detdata.errors import CheckpointMismatch
from tests.checkpoint.fakes import Box, FakeLoader, FakeTopology, bits, make_model, train


def run(**changes):
    """The arguments of a Checkpointer, all parts present, less what `changes` says."""
    model = changes.pop("model", None) or make_model(changes.pop("seed", 0))
    optimizer = changes.pop("optimizer", torch.optim.AdamW)
    optimizer = None if optimizer is None else optimizer(model.parameters(), lr=0.01)
    parts = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": None if optimizer is None else torch.optim.lr_scheduler.StepLR(optimizer, 2),
        "scaler": torch.amp.GradScaler("cpu"),
        "loader": FakeLoader(),
        "extra": {"ema": Box(1)},
        "topology": FakeTopology(0, 2, {"tp_size": 4, "tp_rank": 1}),
        "dataset_version": "xxh3-128:aa",
        "precision": "fp32",
    }
    return {**parts, **changes}


def saved(root):
    parts = run()
    train(parts["model"], parts["optimizer"], parts["scheduler"], 3)
    parts["loader"].advance(3)
    Checkpointer(root, **parts).save()


def more_groups(parameters, lr):
    first, *rest = parameters
    return torch.optim.AdamW([{"params": [first]}, {"params": rest}], lr=lr)


def wider():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1)
    )


class Version:
    digest = "xxh3-128:bb"


CASES = {  # what is there now -> (field, words of saved, words of found, accept)
    "world_size": ({"topology": FakeTopology(0, 1, {"tp_size": 4})}, "world_size", "2", "1", "world_size"),
    "topology": ({"topology": FakeTopology(0, 2, {"tp_size": 8})}, "topology", "4", "8", "topology"),
    "optimizer class": (
        {"optimizer": torch.optim.RAdam},
        "optimizer",
        "torch.optim.AdamW",
        "torch.optim.RAdam",
        "optimizer",
    ),
    "optimizer groups": ({"optimizer": more_groups}, "optimizer", "1 group", "2 group", "optimizer"),
    "no scheduler": ({"scheduler": None}, "scheduler", "present", "none", "scheduler"),
    "no scaler": ({"scaler": None}, "scaler", "present", "none", "scaler"),
    "disabled scaler": ({"scaler": torch.amp.GradScaler("cpu", enabled=False)}, "scaler", "present", "none", "scaler"),
    "no loader": ({"loader": None}, "loader", "present", "none", "loader"),
    "seed": ({"loader": FakeLoader(seed=5)}, "seed", "0", "5", None),
    "batch_size": ({"loader": FakeLoader(batch_size=9)}, "batch_size", "8", "9", None),
    "no extra": ({"extra": {}}, "extra['ema']", "present", "none", "extra"),
    "more extra": ({"extra": {"ema": Box(), "b": Box()}}, "extra['b']", "none", "present", "extra"),
    "dataset": ({"dataset_version": Version()}, "dataset_version", "xxh3-128:aa", "xxh3-128:bb", "dataset_version"),
    "no dataset": ({"dataset_version": None}, "dataset_version", "xxh3-128:aa", "not declared", "dataset_version"),
    "precision": ({"precision": "bf16"}, "precision", "fp32", "bf16", "precision"),
    "dtypes": (
        {"model": make_model().double()},
        "precision",
        "0.weight [4, 4] torch.float32",
        "torch.float64",
        "precision",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mismatch_is_named_with_both_sides_and_accepted_by_name(tmp_path, name):
    changes, field, before, now, accept = CASES[name]
    saved(tmp_path)
    parts = run(**changes)
    checkpointer = Checkpointer(tmp_path, **parts)
    untouched = bits(capture(checkpointer._run, 0))
    loader = parts["loader"]

    with pytest.raises(CheckpointMismatch) as caught:
        checkpointer.resume()

    differences = {difference.field: difference for difference in caught.value.differences}
    assert field in differences
    assert before in differences[field].saved
    assert now in differences[field].found
    assert differences[field].accept == accept
    assert bits(capture(checkpointer._run, 0)) == untouched
    assert loader is None or loader.progress.global_step == 0
    if accept is not None:
        assert f'"{accept}"' in str(caught.value)
        names = {difference.accept for difference in caught.value.differences}
        left = name == "no scheduler"  # its last rate stays in force, and is told
        with pytest.warns(UserWarning, match=r"lr was 0\.001") if left else contextlib.nullcontext():
            assert checkpointer.resume(accept=names).global_step == 3
        meta = json.loads((checkpointer.save() / "meta.json").read_text())
        assert field in [entry["field"] for entry in meta["accepted"]]


def test_another_model_is_never_accepted_and_its_names_and_shapes_are_listed(tmp_path):
    saved(tmp_path)

    with pytest.raises(CheckpointMismatch) as caught:
        Checkpointer(tmp_path, **run(model=wider())).resume(accept=ACCEPTABLE)

    [difference] = caught.value.differences
    assert (difference.field, difference.accept) == ("model", None)
    assert difference.saved == "2.weight [1, 4] torch.float32, 2.bias [1] torch.float32, no 3.weight, no 3.bias"
    assert "3.weight [1, 2] torch.float32" in difference.found


def test_all_mismatches_come_in_one_error(tmp_path):
    saved(tmp_path)
    parts = run(optimizer=torch.optim.RAdam, topology=None, scaler=None, dataset_version="x", loader=FakeLoader(seed=5))

    with pytest.raises(CheckpointMismatch) as caught:
        Checkpointer(tmp_path, **parts).resume()

    fields = {difference.field for difference in caught.value.differences}
    assert fields == {"optimizer", "world_size", "topology", "scaler", "dataset_version", "seed"}


def test_a_part_that_appears_later_is_named_too(tmp_path):
    parts = run(scaler=None, loader=None, optimizer=None, extra=None)
    Checkpointer(tmp_path, **parts).save()

    with pytest.raises(CheckpointMismatch) as caught:
        Checkpointer(tmp_path, **run()).resume()

    fields = {difference.field: difference.saved for difference in caught.value.differences}
    assert fields == dict.fromkeys(("optimizer", "scheduler", "scaler", "loader", "extra['ema']"), "none")


def test_an_accepted_optimizer_starts_afresh_at_the_rate_of_the_schedule(tmp_path):
    saved(tmp_path)
    parts = run(optimizer=torch.optim.RAdam)

    Checkpointer(tmp_path, **parts).resume(accept=("optimizer",))

    assert parts["optimizer"].state == {}
    assert parts["optimizer"].param_groups[0]["lr"] == pytest.approx(0.001)
    assert parts["scheduler"].last_epoch == 3


@pytest.mark.parametrize("accept", [("model",), ("world-size",), ("seed",)])
def test_an_unknown_accept_name_lists_the_known_ones(tmp_path, accept):
    with pytest.raises(ValueError, match="world_size, topology, precision"):
        Checkpointer(tmp_path, **run()).resume(accept=accept)


def test_accept_is_no_string(tmp_path):
    with pytest.raises(TypeError, match="accept must be a tuple"):
        Checkpointer(tmp_path, **run()).resume(accept="world_size")


def test_other_conditions_are_one_warning_and_no_refusal(tmp_path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    Checkpointer(tmp_path, **run(), config={"lr": 0.1, "model": {"depth": 2}}).save()
    monkeypatch.setattr(np, "__version__", "0.0")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")

    with pytest.warns(UserWarning, match="other conditions") as caught:
        Checkpointer(tmp_path, **run(), config={"lr": 0.1, "model": {"depth": 3}}).resume()

    [warning] = caught
    text = str(warning.message)
    assert "versions.numpy" in text
    assert "switches.CUBLAS_WORKSPACE_CONFIG: saved ':4096:8', now None" in text
    assert "config.model.depth: saved 2, now 3" in text
    assert "config.lr" not in text


def test_the_state_of_another_rank_is_not_taken_for_ones_own(tmp_path):
    saved(tmp_path)
    before = random.getstate()
    parts = run(topology=FakeTopology(1, 2, {"tp_size": 4}))

    with pytest.warns(UserWarning, match="no random states of rank 1"):
        Checkpointer(tmp_path, **parts).resume()
    assert random.getstate() != before
    derived = random.getstate()
    with pytest.warns(UserWarning, match="no random states of rank 1"):
        Checkpointer(tmp_path, **parts).resume()
    assert random.getstate() == derived


class TestPolicy:
    def test_both_thresholds_of_latest_must_hold(self):
        policy = SavePolicy(latest_every_seconds=60, latest_every_steps=10)

        assert policy.due(10, 60.0) == ("latest",)
        assert policy.due(10, 59.9) == ()
        assert policy.due(11, 600.0) == ()

    def test_periodic_counts_steps_alone(self):
        assert SavePolicy(latest_every_seconds=None, periodic_every_steps=3).due(6, 0.0) == ("periodic",)
        assert SavePolicy(latest_every_seconds=0, periodic_every_steps=3).due(6, 0.0) == ("periodic", "latest")
        assert SavePolicy(latest_every_seconds=None).due(6, 1e9) == ()

    @pytest.mark.parametrize("name", ["latest_every_steps", "periodic_every_steps", "keep_periodic"])
    @pytest.mark.parametrize(
        ("value", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)]
    )
    def test_a_wrong_number_of_steps_is_refused(self, name, value, error):
        with pytest.raises(error, match=name):
            SavePolicy(**{name: value})

    @pytest.mark.parametrize(
        ("value", "error"), [(-1, ValueError), (float("nan"), ValueError), (True, TypeError), ("1", TypeError)]
    )
    def test_a_wrong_number_of_seconds_is_refused(self, value, error):
        with pytest.raises(error, match="latest_every_seconds"):
            SavePolicy(latest_every_seconds=value)

    def test_step_saves_both_tiers_and_goes_on_counting_after_a_resume(self, tmp_path):
        policy = SavePolicy(latest_every_seconds=None, latest_every_steps=2, periodic_every_steps=3)
        checkpointer = Checkpointer(tmp_path, model=make_model(), policy=policy)
        assert [checkpointer.step() for _ in range(7)] == [False, True, True, True, False, True, False]
        assert sorted(path.name for path in tmp_path.glob("ckpt*")) == ["ckpt_latest", "ckpt_step_3", "ckpt_step_6"]

        checkpointer = Checkpointer(tmp_path, model=make_model(), policy=policy)
        assert checkpointer.resume().global_step == 6
        checkpointer.step()
        assert checkpointer.progress.global_step == 7

    def test_metrics_are_recorded(self, tmp_path):
        checkpointer = Checkpointer(tmp_path, model=make_model())
        checkpointer.step(loss=torch.tensor(0.5), accuracy=np.float32(0.25), best=float("inf"))
        meta = json.loads((checkpointer.save() / "meta.json").read_text())

        assert meta["metrics"] == {"loss": 0.5, "accuracy": 0.25, "best": "inf"}
        with pytest.raises(TypeError, match="metric 'loss'"):
            checkpointer.step(loss=[1, 2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", object()),
        ("optimizer", object()),
        ("scheduler", [object()]),
        ("scaler", 1),
        ("loader", Box()),
        ("extra", [1]),
        ("extra", {1: Box()}),
        ("extra", {"ema": 1}),
        ("dataset_version", 3),
        ("precision", torch.float32),
        ("policy", "often"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, name, value):
    with pytest.raises(TypeError, match=name):
        Checkpointer(tmp_path, **{"model": make_model(), name: value})
