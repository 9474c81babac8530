"""Extra parts: whatever has a state_dict. An optimizer among them is saved by parameter names, like the run's own.

A second optimizer (of a discriminator, or of the matrices of one model) is given as an extra part. Its parameters get
their names from the model, or from a module among the extra parts; if some have none, its state is torch's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import torch

from detdata.checkpoint.optimizer import (
    FORMAT,
    capture_optimizer,
    group_names,
    match_groups,
    optimizer_difference,
    parameter_names,
    restore_optimizer,
)
from detdata.checkpoint.run import Run, Stateful
from detdata.errors import Difference


def extra_names(run: Run) -> dict[int, str]:
    """Return id(parameter) -> its name in the model, or in a module among the extra parts."""
    names = parameter_names(run.bare_model())
    for name, part in run.extra.items():
        if isinstance(part, torch.nn.Module):
            for key, inside in parameter_names(part).items():
                names.setdefault(key, f"extra[{name!r}].{inside}")
    return names


def is_named(part: object, names: Mapping[int, str]) -> TypeGuard[torch.optim.Optimizer]:
    """Whether a part is an optimizer all of whose parameters have names."""
    return isinstance(part, torch.optim.Optimizer) and all(
        id(parameter) in names for group in part.param_groups for parameter in group["params"]
    )


def capture_extras(run: Run) -> dict[str, Any]:
    """Return name -> state of each extra part."""
    names = extra_names(run)
    return {
        name: capture_optimizer(part, names, f"extra[{name!r}]") if is_named(part, names) else part.state_dict()
        for name, part in run.extra.items()
    }


def extra_differences(run: Run, saved: Mapping[str, Any]) -> list[Difference]:
    """Return how the optimizers among the extra parts differ from the saved ones; accepting leaves them as they are."""
    names, found = extra_names(run), []
    for name, part in run.extra.items():
        tree = saved.get(name)
        if tree is None or not _is_tree(tree):
            continue
        sides: tuple[str, str] | None = tree["class"], "nothing that has its parameters in the model or an extra part"
        if is_named(part, names):
            sides = optimizer_difference(tree, part, names)
        if sides is not None:
            found.append(Difference(f"extra[{name!r}]", *sides, "extra"))
    return found


def restore_extra(part: Stateful, names: Mapping[int, str], saved: Any) -> None:
    """Load what `capture_extras` returned for this part; not if it is of another optimizer."""
    if not _is_tree(saved):
        part.load_state_dict(saved)
    elif is_named(part, names) and optimizer_difference(saved, part, names) is None:
        restore_optimizer(part, names, saved)


def group_orders(run: Run, trees: Mapping[str, Any], order: Sequence[int]) -> list[Sequence[int] | None]:
    """Return for each scheduler where the groups of its optimizer were when saved; None where that is not known.

    order: that of the run's own optimizer.
    """
    orders: list[Sequence[int] | None] = []
    for scheduler in run.schedulers:
        owner = getattr(scheduler, "optimizer", run.optimizer)
        if owner is run.optimizer:
            orders.append(order)
            continue
        names = extra_names(run)
        tree = next((trees.get("extra.pt", {}).get(name) for name, part in run.extra.items() if part is owner), None)
        if tree is None or not _is_tree(tree) or not is_named(owner, names):
            orders.append(None)
        else:
            orders.append(match_groups([group["names"] for group in tree["groups"]], group_names(owner, names)))
    return orders


def _is_tree(saved: Any) -> bool:
    return isinstance(saved, Mapping) and saved.get("format") == FORMAT
