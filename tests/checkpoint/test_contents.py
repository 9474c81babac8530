"""What is captured comes back bit for bit: optimizer by name, scaler, accumulation, random states."""

import random

import numpy as np
import pytest
import torch

from detdata.checkpoint import Checkpointer, CheckpointNotLoaded
from detdata.checkpoint.parts import capture
from detdata.checkpoint.run import unwrap
from detdata.progress import Progress
from tests.checkpoint.fakes import Box, FakeLoader, FakeTopology, PlainLoader, bits, make_model, save_steps, train

SCALER_STATE = {"scale": 256.0, "_growth_tracker": 7}


class Pair(torch.nn.Module):
    def __init__(self, order="ab"):
        super().__init__()
        for name in order:
            self.register_parameter(name, torch.nn.Parameter(torch.ones(3)))


def stepped(order, grouped):
    """A model with two parameters of one shape and Adam over them, one step done with gradients 1 and 5."""
    model = Pair(order)
    optimizer = pair_optimizer(model, order, grouped)
    model.a.grad, model.b.grad = torch.full((3,), 1.0), torch.full((3,), 5.0)
    optimizer.step()
    return model, optimizer


def pair_optimizer(model, order, grouped):
    rates = {"a": 0.1, "b": 0.2}
    if grouped:
        return torch.optim.Adam([{"params": [getattr(model, name)], "lr": rates[name]} for name in order])
    return torch.optim.Adam([(name, getattr(model, name)) for name in order], lr=0.1)


@pytest.mark.parametrize("grouped", [False, True])
def test_o_cc1_optimizer_state_follows_the_names(tmp_path, grouped):
    model, optimizer = stepped("ab", grouped)
    expected = {name: bits(optimizer.state[getattr(model, name)]) for name in "ab"}
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=scheduler).save()

    other = Pair("ba")
    swapped = pair_optimizer(other, "ba", grouped)
    later = torch.optim.lr_scheduler.StepLR(swapped, 1, gamma=0.5)
    Checkpointer(tmp_path, model=other, optimizer=swapped, scheduler=later).resume()

    assert {name: bits(swapped.state[getattr(other, name)]) for name in "ab"} == expected
    assert torch.allclose(swapped.state[other.a]["exp_avg"], torch.tensor(0.1))
    for both in ((optimizer, scheduler), (swapped, later)):
        both[0].step()
        both[1].step()
    rates = {name: group["lr"] for name, group in zip("ab", optimizer.param_groups, strict=False)}
    assert rates == {
        name: group["lr"] for name, group in zip("ba" if grouped else "a", swapped.param_groups, strict=False)
    }


def test_a_parameter_that_the_model_does_not_have_is_refused_by_place_and_shape(tmp_path):
    model = make_model()
    optimizer = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.zeros(7, 2))], lr=0.1)

    with pytest.raises(ValueError, match=r"parameter 4 of group 0, of shape \(7, 2\)"):
        Checkpointer(tmp_path, model=model, optimizer=optimizer).save()


def test_fp32_moments_of_bf16_parameters_keep_dtype_and_bits(tmp_path):
    def build():
        model = make_model().to(torch.bfloat16)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = build()
    for number, parameter in enumerate(model.parameters()):
        moments = {name: torch.rand(parameter.shape) / 3 for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": torch.tensor(number + 1.0), "count": 3, **moments}
    expected = [bits(optimizer.state[parameter]) for parameter in model.parameters()]
    Checkpointer(tmp_path, model=model, optimizer=optimizer).save()

    model, optimizer = build()
    Checkpointer(tmp_path, model=model, optimizer=optimizer).resume()

    assert [bits(optimizer.state[parameter]) for parameter in model.parameters()] == expected


OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "SparseAdam", "Muon")
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_torch_optimizer_goes_on_as_if_never_interrupted(tmp_path, name):
    def build(seed):
        model = make_model(seed)
        return model, OPTIMIZERS[name](model.parameters(), lr=0.01)

    def run(model, optimizer, steps):
        def closure():
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            return loss

        for _ in range(steps):
            inputs = torch.rand(8, 4)
            optimizer.step(closure)
        return bits(model.state_dict()), bits(optimizer.state_dict()["state"])

    torch.manual_seed(3)
    model, optimizer = build(0)
    run(model, optimizer, 3)
    Checkpointer(tmp_path, model=model, optimizer=optimizer).save()
    expected = run(model, optimizer, 3)

    model, optimizer = build(1)
    Checkpointer(tmp_path, model=model, optimizer=optimizer).resume()

    assert run(model, optimizer, 3) == expected


def test_o_cc2_the_scaler_comes_back_with_scale_and_tracker(tmp_path):
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict({**scaler.state_dict(), **SCALER_STATE})
    Checkpointer(tmp_path, model=make_model(), scaler=scaler).save()

    fresh = torch.amp.GradScaler("cpu")
    Checkpointer(tmp_path, model=make_model(), scaler=fresh).resume()

    assert fresh.state_dict() == scaler.state_dict()
    assert {key: fresh.state_dict()[key] for key in SCALER_STATE} == SCALER_STATE


def test_o_cc3_inside_an_accumulation_window_save_is_refused_and_step_waits_for_the_boundary(tmp_path):
    from detdata.checkpoint import SavePolicy

    loader = FakeLoader(batch_size=8, micro_steps=4)
    policy = SavePolicy(latest_every_seconds=0)
    checkpointer = Checkpointer(tmp_path, model=make_model(), loader=loader, policy=policy)
    loader.advance(6)

    with pytest.raises(ValueError, match=r"micro_step is 2 at global step 1.*after optimizer.step"):
        checkpointer.save()
    assert checkpointer.step() is False
    assert not (tmp_path / "ckpt_latest").exists()
    loader.advance(2)
    assert checkpointer.step() is True
    resumed = FakeLoader(batch_size=8, micro_steps=4)
    assert Checkpointer(tmp_path, model=make_model(), loader=resumed).resume() == Progress(2, 0, 16)


def streams():
    return (random.random(), np.random.standard_normal(), np.random.rand(), torch.rand(3).tolist())


def test_o_cc4_random_states_are_restored_last_whatever_loading_draws(tmp_path):
    class Drawing(Box):
        def load_state_dict(self, state):
            random.random(), np.random.rand(), torch.rand(5)

    def build(seed):
        model = make_model(seed)
        optimizer = torch.optim.Adam(model.parameters())
        return model, optimizer, {"loader": FakeLoader(draws=True), "extra": {"noise": Drawing(1)}}

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    np.random.standard_normal()  # leaves the second of a pair behind, which is state too
    random.gauss(0, 1)
    model, optimizer, rest = build(0)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, **rest).save()
    expected = train(model, optimizer, steps=3), streams(), random.gauss(0, 1)

    model, optimizer, rest = build(1)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, **rest).resume()

    assert (train(model, optimizer, steps=3), streams(), random.gauss(0, 1)) == expected


def test_saving_changes_nothing(tmp_path):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    train(model, optimizer, scheduler)
    checkpointer = Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=scheduler)
    state = random.getstate(), np.random.get_state()[1].tolist(), bits(torch.get_rng_state())
    before = bits(capture(checkpointer._run, 0))

    checkpointer.save()

    assert bits(capture(checkpointer._run, 0)) == before
    assert (random.getstate(), np.random.get_state()[1].tolist(), bits(torch.get_rng_state())) == state


def test_o_ci4_tensors_mapped_from_latest_survive_later_saves(tmp_path):
    kept = []
    for step in (1, 2, 3):
        [path] = save_steps(tmp_path, [step], "latest")
        kept.append(torch.load(path / "model.pt", mmap=True, weights_only=True)["weight"])

    assert [weight.unique().tolist() for weight in kept] == [[1.0], [2.0], [3.0]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own, when it first imports its compiler
def test_wrappers_of_the_model_do_not_show(tmp_path):
    model = make_model()
    Checkpointer(tmp_path, model=torch.compile(torch.nn.DataParallel(model), backend="eager")).save()
    other = make_model(1)
    Checkpointer(tmp_path, model=other).resume()

    assert bits(other.state_dict()) == bits(model.state_dict())
    assert unwrap(torch.compile(torch.nn.DataParallel(model), backend="eager")) is model


def test_extra_parts_come_back_and_arrays_as_tensors(tmp_path):
    Checkpointer(tmp_path, model=make_model(), extra={"a": Box(np.arange(3)), "b": Box({"x": (1, 2.5)})}).save()
    a, b = Box(), Box()
    Checkpointer(tmp_path, model=make_model(), extra={"a": a, "b": b}).resume()

    assert torch.equal(a.value, torch.arange(3))
    assert b.value == {"x": (1, 2.5)}


def test_state_that_only_code_could_rebuild_is_refused_before_anything_is_written(tmp_path):
    checkpointer = Checkpointer(tmp_path, model=make_model(), extra={"ema": Box({"deep": [0, {1, 2}]})})

    with pytest.raises(TypeError, match=r"extra\['ema'\]\['value'\]\['deep'\]\[1\] is a builtins.set"):
        checkpointer.save()
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_refuses_its_state_says_what_is_loaded_already(tmp_path):
    class Refusing(Box):
        def load_state_dict(self, state):
            raise KeyError("gone")

    Checkpointer(tmp_path, model=make_model(), extra={"ema": Box(1)}).save()

    with pytest.raises(
        CheckpointNotLoaded, match=r"extra\['ema'\].*KeyError.*before it: model\. .*start the process anew"
    ):
        Checkpointer(tmp_path, model=make_model(), extra={"ema": Refusing()}).resume()


def test_a_loader_without_check_state_is_asked_first(tmp_path):
    Checkpointer(tmp_path, model=make_model(0), loader=PlainLoader(seed=0)).save()
    model = make_model(1)
    before = bits(model.state_dict())

    with pytest.raises(CheckpointNotLoaded, match=r"loader .*seed: saved 0, found 1.*before it: nothing"):
        Checkpointer(tmp_path, model=model, loader=PlainLoader(seed=1)).resume()
    assert bits(model.state_dict()) == before


def test_only_rank_0_saves(tmp_path):
    checkpointer = Checkpointer(tmp_path, model=make_model(), topology=FakeTopology(1, 2))

    assert checkpointer.step() is False
    with pytest.raises(ValueError, match="only rank 0 saves; this is rank 1"):
        checkpointer.save()


def test_a_closed_checkpointer_says_so(tmp_path):
    with Checkpointer(tmp_path, model=make_model()) as checkpointer:
        checkpointer.wait()

    for call in (checkpointer.save, checkpointer.step, checkpointer.resume):
        with pytest.raises(ValueError, match="closed"):
            call()
