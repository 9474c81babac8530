"""Training as people write it: which optimizers and schedulers come back to the bit, and go on the same way."""

from __future__ import annotations

import warnings

import pytest
import torch

from detdata import Checkpointer, CheckpointMismatch, SavePolicy

NEVER = SavePolicy(latest_every_seconds=None, on_signal=False, on_exit=False)
FIXED = torch.linspace(-1, 1, 64).reshape(16, 4)
rates = torch.optim.lr_scheduler

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "a tensor as rate": lambda p: torch.optim.Adam(p, torch.tensor(0.01), foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "rprop": torch.optim.Rprop,
    "asgd": torch.optim.ASGD,
    "nadam": torch.optim.NAdam,
    "lbfgs": lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3, history_size=5),
}
SCHEDULERS = {
    "lambda": lambda o: [rates.LambdaLR(o, lambda epoch: 0.9**epoch)],
    "multiplicative": lambda o: [rates.MultiplicativeLR(o, lambda epoch: 0.9)],
    "plateau": lambda o: [rates.ReduceLROnPlateau(o, patience=0, cooldown=1)],
    "one cycle": lambda o: [rates.OneCycleLR(o, 0.1, total_steps=50)],
    "restarts": lambda o: [rates.CosineAnnealingWarmRestarts(o, 3)],
    "sequential": lambda o: [
        rates.SequentialLR(o, [rates.LinearLR(o, 0.1, total_iters=3), rates.CosineAnnealingLR(o, 20)], [5])
    ],
    "chained": lambda o: [rates.ChainedScheduler([rates.ConstantLR(o, 0.5), rates.ExponentialLR(o, 0.9)])],
    "cyclic": lambda o: [rates.CyclicLR(o, 0.01, 0.1, 3, scale_fn=lambda x: 0.9**x)],
    "averaged": lambda o: [torch.optim.swa_utils.SWALR(o, 0.05)],
    "two": lambda o: [rates.ExponentialLR(o, 0.9), rates.ReduceLROnPlateau(o, patience=0)],
}


class Training:
    def __init__(self, optimizer, schedulers=lambda optimizer: [], **more):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        self.optimizer = optimizer(self.model.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's schedulers warn of each other
            self.schedulers = schedulers(self.optimizer)

    def loss(self):
        self.optimizer.zero_grad()
        loss = self.model(FIXED).square().mean()
        loss.backward()
        return loss

    def steps(self, count):
        losses = []
        for _ in range(count):
            losses.append(self.optimizer.step(self.loss).item())
            for scheduler in self.schedulers:
                plateau = isinstance(scheduler, rates.ReduceLROnPlateau)
                scheduler.step(losses[-1]) if plateau else scheduler.step()
        return losses, [p.detach().clone() for p in self.model.parameters()], self.optimizer.param_groups[0]["lr"]

    def checkpointer(self, root, **more):
        schedulers = self.schedulers or None
        return Checkpointer(
            root, model=self.model, optimizer=self.optimizer, scheduler=schedulers, policy=NEVER, **more
        )


def goes_on_the_same(root, background, *build):
    straight = Training(*build)
    straight.steps(5)
    with straight.checkpointer(root, background=background) as checkpointer:
        checkpointer.save()
        expected = straight.steps(6)  # while it is written
    again = Training(*build)
    again.checkpointer(root).resume()
    found = again.steps(6)
    assert found[0] == expected[0]
    assert all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True))
    assert found[2] == expected[2]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_kind_of_optimizer_goes_on_to_the_bit(tmp_path, name, background):
    goes_on_the_same(tmp_path, background, OPTIMIZERS[name])


@pytest.mark.parametrize("name", SCHEDULERS)
def test_each_kind_of_scheduler_goes_on_to_the_bit(tmp_path, name):
    goes_on_the_same(tmp_path, False, OPTIMIZERS["momentum"], SCHEDULERS[name])


def test_what_was_accumulated_since_is_no_part_of_a_checkpoint_of_a_boundary(tmp_path):
    run = Training(OPTIMIZERS["sgd"])
    checkpointer = run.checkpointer(tmp_path)
    checkpointer.save()
    run.loss()
    checkpointer.resume()
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_gradients_need_a_loader_that_says_where_the_window_is(tmp_path):
    with pytest.raises(ValueError, match="gradients=True needs a loader"):
        Training(OPTIMIZERS["sgd"]).checkpointer(tmp_path, gradients=True)


def test_a_default_device_does_not_draw_the_bookkeeping_to_it(tmp_path):
    run = Training(OPTIMIZERS["amsgrad"])
    run.steps(2)
    torch.set_default_device("meta")
    try:
        with run.checkpointer(tmp_path, background=True) as checkpointer:
            checkpointer.save()
            checkpointer.wait()
            assert checkpointer.resume() is not None
    finally:
        torch.set_default_device(None)


def test_the_probe_moves_no_registered_generator(tmp_path):
    own = torch.Generator().manual_seed(3)
    before = own.get_state()
    checkpointer = Training(OPTIMIZERS["sgd"]).checkpointer(
        tmp_path, generators={"own": own}, probe=lambda: torch.rand(1, generator=own)
    )
    checkpointer.save()
    assert torch.equal(own.get_state(), before)
    checkpointer.resume()
    assert torch.equal(own.get_state(), before)


class Pair(torch.nn.Module):
    """Two parameters of one shape, which positions cannot tell apart."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
        self.a.grad, self.b.grad = torch.ones(3), torch.full((3,), 5.0)


class TestSecondOptimizer:
    """One optimizer is the run's, more of them are extra parts; their state goes by parameter names, too."""

    def make(self, root, order="ab", kind=torch.optim.Adam, inside=False, groups=False):
        pair, model = Pair(), torch.nn.Linear(2, 1)
        parameters = [getattr(pair, name) for name in order]
        if groups:
            parameters = [{"params": [one], "lr": 0.1 if one is pair.a else 0.2} for one in parameters]
        second = kind(parameters, lr=0.1)
        schedulers = [rates.StepLR(second, 3)]
        if inside:
            model.pair = pair
        extra = {"second": second} if inside else {"pair": pair, "second": second}
        run = Checkpointer(
            root,
            model=model,
            optimizer=torch.optim.SGD([model.weight], lr=0.5),
            scheduler=schedulers,
            extra=extra,
            policy=NEVER,
        )
        return pair, second, run

    @pytest.mark.parametrize("inside", [False, True])
    @pytest.mark.parametrize("groups", [False, True])
    def test_state_follows_the_names(self, tmp_path, inside, groups):
        pair, second, run = self.make(tmp_path, inside=inside, groups=groups)
        second.step()
        run.save()
        again, other, run = self.make(tmp_path, "ba", inside=inside, groups=groups)
        run.resume()
        for name in "ab":
            assert torch.equal(
                other.state[getattr(again, name)]["exp_avg"], second.state[getattr(pair, name)]["exp_avg"]
            )
        if groups:
            assert [group["lr"] for group in other.param_groups] == [0.2, 0.1]
            assert run._run.schedulers[0].base_lrs == [0.2, 0.1]

    def test_another_class_or_other_groups_are_mismatches_by_name(self, tmp_path):
        _, second, run = self.make(tmp_path)
        second.step()
        run.save()
        for change in ({"kind": torch.optim.RAdam}, {"groups": True}):
            _, other, run = self.make(tmp_path, **change)
            with pytest.raises(CheckpointMismatch, match=r'extra\[.second.\](.|\n)*accept=\("extra",\)'):
                run.resume()
            assert run.resume(accept=("extra",)) is not None
            assert not other.state

    def test_a_list_of_optimizers_is_refused_with_the_way_to_do_it(self, tmp_path):
        layer = torch.nn.Linear(2, 1)
        optimizers = [torch.optim.SGD([one], lr=0.1) for one in layer.parameters()]
        with pytest.raises(TypeError, match=r"got list\. Give one here, and the others as extra="):
            Checkpointer(tmp_path, model=layer, optimizer=optimizers)

    def test_the_schedule_of_another_optimizer_does_not_set_the_rates_of_one_that_starts_afresh(self, tmp_path):
        _, _, run = self.make(tmp_path)
        run.save()
        run = self.make(tmp_path)[2]
        run._run.optimizer.__class__ = type("Other", (torch.optim.SGD,), {})
        run.resume(accept=("optimizer",))
        assert run._run.optimizer.param_groups[0]["lr"] == 0.5


class Stated(torch.nn.Linear):
    def get_extra_state(self):
        return {"n": 3}

    def set_extra_state(self, state):
        pass


def test_extra_state_of_a_module_on_one_side_only_is_found_before_anything_is_loaded(tmp_path):
    Checkpointer(tmp_path, model=Stated(2, 1)).save()
    with pytest.raises(CheckpointMismatch, match="_extra_state"):
        Checkpointer(tmp_path, model=torch.nn.Linear(2, 1)).resume()
    Checkpointer(tmp_path, model=Stated(2, 1)).resume()


def test_weights_that_are_tied_now_and_were_not_are_a_mismatch(tmp_path):
    def build(tied, seed):
        torch.manual_seed(seed)
        layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3, bias=False) for _ in range(2)))
        if tied:
            layers[1].weight = layers[0].weight
        return layers

    Checkpointer(tmp_path / "two", model=build(tied=False, seed=0)).save()
    with pytest.raises(CheckpointMismatch, match=r"0\.weight and 1\.weight of other values"):
        Checkpointer(tmp_path / "two", model=build(tied=True, seed=1)).resume()

    one, again = build(tied=True, seed=0), build(tied=True, seed=1)
    Checkpointer(tmp_path / "one", model=one).save()
    Checkpointer(tmp_path / "one", model=again).resume()
    assert torch.equal(again[1].weight, one[0].weight)


def test_parameters_that_are_frozen_on_one_side_only_are_named(tmp_path):
    run = Training(OPTIMIZERS["sgd"])
    run.model[0].requires_grad_(False)
    run.checkpointer(tmp_path).save()
    run.checkpointer(tmp_path).resume()
    again = Training(OPTIMIZERS["sgd"])
    again.model[2].bias.requires_grad_(False)
    with pytest.warns(UserWarning, match=r"trained now, frozen then: 0\.weight, 0\.bias\n.*frozen only now: 2\.bias"):
        again.checkpointer(tmp_path).resume()


def test_an_optimizer_without_a_learning_rate_is_resumed(tmp_path, capsys):
    run = Training(lambda parameters: torch.optim.SGD(parameters, 0.1))
    run.optimizer.param_groups[0]["lr"] = None
    checkpointer = run.checkpointer(tmp_path)
    checkpointer.save()
    assert checkpointer.resume() is not None
    assert "learning rate None" in capsys.readouterr().err


def test_the_probe_moves_no_running_average(tmp_path):
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    checkpointer = Checkpointer(tmp_path, model=layers, policy=NEVER, probe=lambda: layers(FIXED).square().mean())
    checkpointer.save()
    checkpointer.resume()
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert layers[1].training


def test_what_is_only_recorded_never_ends_a_run(tmp_path):
    run = Checkpointer(tmp_path, model=torch.nn.Linear(2, 1), config={"n": 10**5000, "\ud800": "\ud800"}, policy=NEVER)
    run.step(count=-(10**5000), note="\ud800", loss=float("inf"))
    run.save()
    assert run.resume().global_step == 1


class TestOtherSchedule:
    """A schedule that starts afresh on purpose starts from its own rates, not from where the old one had come to."""

    def saved(self, root):
        run = Training(OPTIMIZERS["momentum"], lambda o: [rates.StepLR(o, 2)])
        run.steps(5)
        run.checkpointer(root).save()
        return run

    @pytest.mark.parametrize(
        "build", [lambda o: [rates.ExponentialLR(o, 0.5)], lambda o: [rates.OneCycleLR(o, 0.2, total_steps=9)]]
    )
    def test_it_starts_from_its_own_rates(self, tmp_path, build):
        old = self.saved(tmp_path)
        again, fresh = (
            Training(lambda p: torch.optim.SGD(p, 0.5, momentum=0.9, nesterov=True), build) for _ in range(2)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again.checkpointer(tmp_path).resume(accept=("scheduler",))
        assert again.optimizer.state_dict()["state"][0].keys() == old.optimizer.state_dict()["state"][0].keys()
        for _ in range(3):
            for key in ("lr", "initial_lr", "momentum"):
                assert again.optimizer.param_groups[0].get(key) == fresh.optimizer.param_groups[0].get(key)
            again.steps(1)
            fresh.steps(1)

    def test_the_rate_that_a_schedule_leaves_behind_is_told(self, tmp_path):
        self.saved(tmp_path)
        again = Training(lambda p: torch.optim.SGD(p, 0.5, momentum=0.9, nesterov=True))
        with pytest.warns(UserWarning, match=r"lr was 0\.001\d* and is in force again; this script sets 0\.5"):
            again.checkpointer(tmp_path).resume(accept=("scheduler",))
