"""Every scheduler of torch goes on as if never interrupted, in whatever order things were built."""

import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from detdata.checkpoint import Checkpointer
from tests.checkpoint.fakes import bits, make_model

SCHEDULERS = {
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, [0.01, 0.02], [0.1, 0.2], step_size_up=2),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, [lambda e: 0.9**e, lambda e: 0.8**e]),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=6),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4, 4]),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda e: 0.9),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, [0.1, 0.2], total_steps=20),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=8, power=2.0),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 6)], [4]
    ),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


def build(name, *, swapped=False, seed=0):
    model = make_model(seed)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.2}]
    optimizer = torch.optim.SGD(groups[::-1] if swapped else groups, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR steps its parts by itself
        return model, optimizer, SCHEDULERS[name](optimizer)


def rates(optimizer, scheduler, steps):
    """[(lr, momentum) by group] over `steps` steps."""
    seen = []
    for _ in range(steps):
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(1.0)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SequentialLR passes an epoch to its parts
                scheduler.step()
        seen.append([(float(group["lr"]).hex(), group["momentum"]) for group in optimizer.param_groups])
    return seen


def test_every_scheduler_of_torch_is_here():
    torchs = {
        name
        for name, kind in vars(lr_scheduler).items()
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler) and name != "LRScheduler"
    }

    assert {name for name in torchs if not name.startswith("_")} - {"SWALR"} <= set(SCHEDULERS)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_goes_on_as_if_never_interrupted(tmp_path, name):
    model, optimizer, scheduler = build(name)
    rates(optimizer, scheduler, 5)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=scheduler).save()
    now = [group["lr"] for group in optimizer.param_groups]
    expected = rates(optimizer, scheduler, 6)

    model, optimizer, scheduler = build(name, seed=1)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=[scheduler]).resume()

    assert [group["lr"] for group in optimizer.param_groups] == now
    assert rates(optimizer, scheduler, 6) == expected


@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - {"LambdaLR", "CyclicLR", "OneCycleLR"}))
def test_swapped_groups_keep_their_own_rates(tmp_path, name):
    model, optimizer, scheduler = build(name)
    rates(optimizer, scheduler, 3)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=scheduler).save()
    expected = rates(optimizer, scheduler, 4)

    model, optimizer, scheduler = build(name, swapped=True, seed=1)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=scheduler).resume()

    assert [row[::-1] for row in rates(optimizer, scheduler, 4)] == expected


def test_several_schedulers_are_saved_in_their_order(tmp_path):
    def pair():
        model, optimizer, first = build("StepLR")
        return model, optimizer, (first, lr_scheduler.ExponentialLR(optimizer, 0.5))

    model, optimizer, schedulers = pair()
    for scheduler in schedulers:
        rates(optimizer, scheduler, 3)
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=schedulers).save()
    expected = [bits(scheduler.state_dict()) for scheduler in schedulers]

    model, optimizer, schedulers = pair()
    Checkpointer(tmp_path, model=model, optimizer=optimizer, scheduler=schedulers).resume()

    assert [bits(scheduler.state_dict()) for scheduler in schedulers] == expected
