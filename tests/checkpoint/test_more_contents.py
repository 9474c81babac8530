"""What is saved beside the usual: registered generators, gradients inside a window, a probe, the best metric."""

import json
import random
import warnings

import numpy as np
import pytest
import torch

from detdata.checkpoint import Checkpointer, CheckpointNotSaved, ProbeFailed, SavePolicy, list_checkpoints
from detdata.errors import CheckpointMismatch
from tests.checkpoint.fakes import Box, FakeLoader, FakeTopology, bits, make_model, stamped

NEVER = SavePolicy(latest_every_seconds=None, latest_every_steps=None, on_signal=False)
KINDS = {
    "torch": lambda seed: torch.Generator().manual_seed(seed),
    "pcg": np.random.default_rng,
    "philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "sfc": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "twister": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "legacy": np.random.RandomState,
    "python": random.Random,
}


def draw(generator):
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return [generator.normal() for _ in range(3)]


class TestGenerators:
    def test_every_kind_goes_on_where_it_was(self, tmp_path):
        ours = {name: make(1) for name, make in KINDS.items()}
        for generator in ours.values():
            draw(generator)
        Checkpointer(tmp_path, model=make_model(), generators=ours).save()
        expected = {name: draw(generator) for name, generator in ours.items()}

        others = {name: make(2) for name, make in KINDS.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Checkpointer(tmp_path, model=make_model(), generators=others).resume()

        assert {name: draw(generator) for name, generator in others.items()} == expected

    def test_one_that_is_gone_is_a_mismatch_and_a_new_one_is_derived_with_a_warning(self, tmp_path):
        Checkpointer(tmp_path, model=make_model(), generators={"a": np.random.default_rng(0)}).save()
        fresh = {name: np.random.default_rng(5) for name in ("b", "c")}
        checkpointer = Checkpointer(tmp_path, model=make_model(), generators=fresh)

        with pytest.raises(CheckpointMismatch, match="generators a"):
            checkpointer.resume()
        with pytest.warns(UserWarning, match="generator 'b': saved none.*\n.*generator 'c'"):
            checkpointer.resume(accept=("rng",))
        first = [draw(generator) for generator in fresh.values()]
        assert first[0] != first[1]
        with pytest.warns(UserWarning, match="generator 'b'"):
            checkpointer.resume(accept=("rng",))
        assert [draw(generator) for generator in fresh.values()] == first  # derived the same way again

    @pytest.mark.parametrize("wrong", [[1], {"a": 5}, {1: random.Random(0)}, {"": random.Random(0)}])
    def test_what_is_no_generator_is_refused(self, tmp_path, wrong):
        with pytest.raises(TypeError, match="generators"):
            Checkpointer(tmp_path, model=make_model(), generators=wrong)


class TestGradients:
    def make(self, root, seed=0, **options):
        model = make_model(seed).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        loader = FakeLoader(batch_size=8, micro_steps=4)
        return (
            model,
            optimizer,
            loader,
            Checkpointer(root, model=model, optimizer=optimizer, loader=loader, policy=NEVER, **options),
        )

    def accumulate(self, model, loader, micro_steps):
        for _ in range(micro_steps):
            x = torch.full((2, 4), float(loader.micro + 1), dtype=torch.float64)
            model(x).square().mean().backward()
            loader.advance()

    def test_o_cc3_on_request_a_window_goes_on_bit_for_bit(self, tmp_path):
        model, optimizer, loader, checkpointer = self.make(tmp_path, gradients=True)
        self.accumulate(model, loader, 4)
        optimizer.step()
        optimizer.zero_grad()
        checkpointer.step()
        self.accumulate(model, loader, 2)
        checkpointer.save()
        assert loader.progress.micro_step == 2
        self.accumulate(model, loader, 2)
        optimizer.step()

        again, optimizer2, loader2, checkpointer2 = self.make(tmp_path, seed=5, gradients=True)
        self.accumulate(again, loader2, 1)  # gradients of no meaning, to be replaced
        loader2.micro = 0
        progress = checkpointer2.resume()
        assert (progress.global_step, progress.micro_step, progress.consumed_samples) == (1, 2, 8)
        self.accumulate(again, loader2, 2)
        optimizer2.step()

        assert bits(again.state_dict()) == bits(model.state_dict())
        assert loader2.progress.global_step == 2
        assert loader2.progress.consumed_samples == 16

    def test_a_parameter_without_a_gradient_has_none_again(self, tmp_path):
        model, _, loader, checkpointer = self.make(tmp_path, gradients=True)
        loader.advance(1)
        model[0].weight.grad = torch.ones_like(model[0].weight)
        checkpointer.save()
        again, _, _, checkpointer2 = self.make(tmp_path, gradients=True)
        again[2].weight.grad = torch.ones_like(again[2].weight)
        checkpointer2.resume()

        assert {name for name, one in again.named_parameters() if one.grad is not None} == {"0.weight"}

    def test_by_default_it_is_refused_and_the_message_names_the_way(self, tmp_path):
        _, _, loader, checkpointer = self.make(tmp_path)
        loader.advance(1)
        with pytest.raises(ValueError, match="gradients=True"):
            checkpointer.save()

    def test_a_window_of_another_world_size_is_never_accepted(self, tmp_path):
        _, _, loader, checkpointer = self.make(tmp_path, gradients=True)
        loader.advance(1)
        checkpointer.save()
        *_, other = self.make(tmp_path, gradients=True, topology=FakeTopology(0, 2))
        loader = other._run.loader
        loader.topology = FakeTopology(0, 2)

        with pytest.raises(CheckpointMismatch, match="micro_step"):
            other.resume(accept=("world_size",))


class TestProbe:
    def test_it_draws_in_isolation_and_is_equal_after_a_resume(self, tmp_path):
        model = make_model()
        batch = torch.ones(2, 4)

        def probe():
            model.eval()
            torch.rand(3), random.random(), np.random.rand()
            return model(batch).sum()

        model.train()
        checkpointer = Checkpointer(tmp_path, model=model, probe=probe)
        state = bits(torch.get_rng_state()), random.getstate(), np.random.get_state()[1].tolist()
        path = checkpointer.save()
        assert (bits(torch.get_rng_state()), random.getstate(), np.random.get_state()[1].tolist()) == state
        assert model.training
        [value] = json.loads((path / "meta.json").read_text())["probe"]["values"]
        assert float.fromhex(value) == probe().item()

        torch.rand(5)
        assert Checkpointer(tmp_path, model=model, probe=probe).resume() is not None
        assert bits(torch.get_rng_state()) == state[0]  # the state after resume is still the saved one

    def test_another_value_is_an_error_or_accepted_by_name(self, tmp_path):
        values = iter([0.5, 0.25, 0.25])
        model = make_model()
        Checkpointer(tmp_path, model=model, probe=lambda: next(values)).save()
        checkpointer = Checkpointer(tmp_path, model=model, probe=lambda: next(values))

        with pytest.raises(ProbeFailed, match=r"0\.5 when .* gives 0\.25 now, 0\.25 away"):
            checkpointer.resume()
        with pytest.warns(UserWarning, match="probe: 0.5 was accepted as 0.25"):
            checkpointer.resume(accept=("probe",))

    def test_nan_equals_nan_and_no_number_is_refused(self, tmp_path):
        model = make_model()
        Checkpointer(tmp_path, model=model, probe=lambda: float("nan")).save()
        assert Checkpointer(tmp_path, model=model, probe=lambda: float("nan")).resume() is not None
        with pytest.raises(TypeError, match="probe must return a number"):
            Checkpointer(tmp_path, model=model, probe=lambda: "low").save()
        with pytest.raises(TypeError, match="probe must be a function"):
            Checkpointer(tmp_path, model=model, probe=0.5)

    def test_one_that_is_not_given_any_more_is_said(self, tmp_path):
        Checkpointer(tmp_path, model=make_model(), probe=lambda: 1).save()
        with pytest.warns(UserWarning, match="not compared"):
            Checkpointer(tmp_path, model=make_model()).resume()


class TestBest:
    def test_a_better_metric_saves_and_the_best_stays(self, tmp_path):
        policy = SavePolicy(
            latest_every_seconds=None, periodic_every_steps=4, keep_periodic=1, best="loss", on_signal=False
        )
        checkpointer = Checkpointer(tmp_path, model=stamped(0), policy=policy)
        losses = {1: 3.0, 2: 1.0, 3: 2.0, 5: float("nan"), 6: 1.0, 7: 1.5}
        saved = [checkpointer.step(**({"loss": losses[step]} if step in losses else {})) for step in range(1, 13)]

        assert [step for step, did in enumerate(saved, 1) if did] == [1, 2, 4, 8, 12]
        assert [entry.step for entry in list_checkpoints(tmp_path)] == [12, 2]
        meta = json.loads((tmp_path / "ckpt_step_12" / "meta.json").read_text())
        assert meta["best"] == {"metric": "loss", "value": 1.0, "step": 2}

        again = Checkpointer(tmp_path, model=stamped(0), policy=policy)
        again.resume()
        assert again.step(loss=1.25) is False  # what was best before the stop still is
        assert again.step(loss=torch.tensor(0.5)) is True

    def test_the_higher_the_better_and_every_mth_stays_for_ever(self, tmp_path):
        policy = SavePolicy(
            latest_every_seconds=None,
            periodic_every_steps=1,
            keep_periodic=1,
            keep_every_steps=4,
            best=("accuracy", "max"),
            on_signal=False,
        )
        checkpointer = Checkpointer(tmp_path, model=stamped(0), policy=policy)
        for accuracy in (0.1, 0.9, 0.5, 0.4, 0.6, 0.3, 0.2, 0.8, 0.1, 0.1):
            checkpointer.step(accuracy=accuracy)

        assert [entry.step for entry in list_checkpoints(tmp_path)] == [10, 8, 4, 2]

    def test_a_metric_that_is_no_number_cannot_be_the_best(self, tmp_path):
        checkpointer = Checkpointer(tmp_path, model=stamped(0), policy=SavePolicy(best="loss", on_signal=False))
        with pytest.raises(TypeError, match=r"metric 'loss' decides .* must be a number, got 'low'"):
            checkpointer.step(loss="low")

    @pytest.mark.parametrize("wrong", [5, ("loss",), ("loss", "least"), (1, "min"), ["loss", "min"]])
    def test_a_wrong_best_is_refused(self, wrong):
        with pytest.raises(TypeError, match="best"):
            SavePolicy(best=wrong)


class TestFailures:
    def test_a_failed_save_of_a_step_is_a_warning_tried_again_and_counted_in_a_row(self, tmp_path, monkeypatch):
        monkeypatch.setattr("detdata.checkpoint.schedule.RETRY_S", 1e-6)
        root = tmp_path / "root"
        policy = SavePolicy(latest_every_seconds=None, periodic_every_steps=3, max_failures=3, on_signal=False)
        checkpointer = Checkpointer(root, model=stamped(1), policy=policy)
        root.write_text("in the way")
        assert [checkpointer.step() for _ in range(2)] == [False, False]
        with pytest.warns(UserWarning, match="tried again at the next step"):
            assert checkpointer.step() is False
        with pytest.warns(UserWarning, match="tried again after"):
            assert checkpointer.step() is False
        root.unlink()
        assert checkpointer.step() is True  # not due at step 5 by itself
        assert [entry.step for entry in list_checkpoints(root)] == [5]
        assert checkpointer.step() is True

    def test_enough_failures_in_a_row_are_raised(self, tmp_path):
        (tmp_path / "file").write_text("")
        policy = SavePolicy(latest_every_seconds=None, latest_every_steps=1, max_failures=1, on_signal=False)
        checkpointer = Checkpointer(tmp_path / "file" / "x", model=stamped(1), policy=policy)
        with pytest.raises(CheckpointNotSaved):
            checkpointer.step()


class TestCursor:
    def go(self, root, steps, resume=False):
        loader = FakeLoader(batch_size=8)
        policy = SavePolicy(latest_every_seconds=None, latest_every_steps=5, on_signal=False, on_exit=False)
        checkpointer = Checkpointer(root, model=stamped(0), loader=loader, policy=policy)
        if resume:
            checkpointer.resume()
        for _ in range(steps):
            loader.advance()
            checkpointer.step()
        return checkpointer

    def test_a_resume_says_what_is_done_again_and_records_it(self, tmp_path, capsys):
        self.go(tmp_path, 8)
        checkpointer = self.go(tmp_path, 5, resume=True)

        assert "the run had come to step 8: 3 steps, 24 samples, again" in capsys.readouterr().err
        meta = json.loads((checkpointer.last_save.path / "meta.json").read_text())
        assert meta["resumed"]["repeated"] == {"died_at_step": 8, "steps": 3, "samples": 24}
        assert meta["resumed"]["from"] == "ckpt_latest"

    def test_a_run_that_went_no_further_than_its_checkpoint_repeats_nothing(self, tmp_path, capsys):
        self.go(tmp_path, 5)
        self.go(tmp_path, 0, resume=True)

        assert "the run had come to step 5: nothing is done again" in capsys.readouterr().err

    @pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"format": 1}', b"[" * 300, b"x" * 5000])
    def test_a_torn_note_says_nothing_and_hurts_nothing(self, tmp_path, text):
        self.go(tmp_path, 8)
        (tmp_path / ".cursor").write_bytes(text)
        checkpointer = self.go(tmp_path, 5, resume=True)

        assert json.loads((checkpointer.last_save.path / "meta.json").read_text())["resumed"]["repeated"] is None

    def test_learning_rates_and_loss_scale_are_told(self, tmp_path, capsys):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        Checkpointer(tmp_path, model=model, optimizer=optimizer, scaler=scaler, extra={"a": Box(1)}).save()
        Checkpointer(tmp_path, model=model, optimizer=optimizer, scaler=scaler, extra={"a": Box(1)}).resume()

        assert "learning rate 0.125; loss scale 256" in capsys.readouterr().err
