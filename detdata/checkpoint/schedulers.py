"""Learning rate schedulers: described by class, restored to groups by name.

Their state has lists with one value a parameter group, in the order of the groups: where the groups now come in another
order, those lists are put into that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from detdata.checkpoint.optimizer import class_name

FORMAT = "detdata.scheduler/1"
_PER_GROUP = ("base_lrs", "_last_lr", "lr_lambdas", "min_lrs", "max_lrs", "base_momentums", "max_momentums")

_IN_GROUPS = ("lr", "initial_lr", "max_lr", "min_lr", "swa_lr", "momentum", "base_momentum", "max_momentum", "betas")


def describe(scheduler: Any) -> str:
    """Return the class of `scheduler`, with those it is composed of.

    >>> import torch
    >>> from torch.optim.lr_scheduler import ChainedScheduler, LinearLR
    >>> describe(ChainedScheduler([LinearLR(torch.optim.SGD([torch.zeros(1)], lr=1.0))]))
    'torch.optim.ChainedScheduler(torch.optim.LinearLR)'
    """
    parts = getattr(scheduler, "_schedulers", None)
    inner = f"({', '.join(describe(part) for part in parts)})" if isinstance(parts, (list, tuple)) else ""
    return class_name(scheduler) + inner


def capture_schedulers(schedulers: Sequence[Any]) -> dict[str, Any]:
    """Return classes and states."""
    return {
        "format": FORMAT,
        "classes": [describe(scheduler) for scheduler in schedulers],
        "states": [scheduler.state_dict() for scheduler in schedulers],
    }


def restore_schedulers(
    schedulers: Sequence[Any], saved: Mapping[str, Any], orders: Sequence[Sequence[int] | None]
) -> None:
    """Load the states. orders: for each scheduler and present group of its optimizer the index of the saved group."""
    for scheduler, state, order in zip(schedulers, saved["states"], orders, strict=True):
        scheduler.load_state_dict(state if order is None else reorder(state, order))


def reorder(state: Mapping[str, Any], groups: Sequence[int]) -> dict[str, Any]:
    """Return `state` with its lists of one value a group in the order that `groups` says.

    >>> reorder({"base_lrs": [0.1, 0.2], "milestones": [3, 7]}, [1, 0])
    {'base_lrs': [0.2, 0.1], 'milestones': [3, 7]}
    """
    copy = dict(state)
    for key in _PER_GROUP:
        if isinstance(copy.get(key), (list, tuple)) and len(copy[key]) == len(groups):
            copy[key] = type(copy[key])(copy[key][index] for index in groups)
    if isinstance(copy.get("_schedulers"), (list, tuple)):
        copy["_schedulers"] = [reorder(part, groups) for part in copy["_schedulers"]]
    return copy


def group_order_known(classes: Sequence[str]) -> bool:
    """Whether all of these classes keep per-group values under the names that `reorder` knows: torch's own do."""
    names = ", ".join(classes).replace("(", ", ").replace(")", "").split(", ")
    return all(name.startswith("torch.optim.") for name in names if name)


def scheduled(optimizers: Sequence[Any]) -> list[tuple[Any, list[dict[str, Any]]]]:
    """Return for each optimizer what its schedulers have set in its groups so far."""
    return [
        (one, [{key: group[key] for key in _IN_GROUPS if key in group} for group in one.param_groups])
        for one in optimizers
    ]


def put_back(before: Sequence[tuple[Any, list[dict[str, Any]]]]) -> None:
    """Set what `scheduled` returned: for schedulers that start afresh, beside an optimizer that was loaded."""
    for optimizer, groups in before:
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            for key in _IN_GROUPS:
                group.pop(key, None)
            group.update(values)


def last_rates(scheduler: Any) -> list[float] | None:
    """Return the learning rate of each group that the scheduler set last, if it says so."""
    rates = getattr(scheduler, "_last_lr", None)
    return list(rates) if isinstance(rates, (list, tuple)) else None
