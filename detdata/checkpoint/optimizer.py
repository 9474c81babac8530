"""Optimizer state by parameter name.

torch keys it by position, so that a parameter added, or groups swapped, moves moments to the wrong parameters with no
error where shapes agree. Here each parameter's state and each group carry the names that the model gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from detdata.checkpoint.trees import plain
from detdata.errors import ArgumentValueError

FORMAT = "detdata.optimizer/1"
_SHOWN = 5


def parameter_names(model: torch.nn.Module) -> dict[int, str]:
    """Return id(parameter) -> its (first) name in `model`."""
    return {id(parameter): name for name, parameter in model.named_parameters()}


def group_names(optimizer: Any, names: Mapping[int, str]) -> list[list[str]]:
    """Return the parameter names of each group. Raises ValueError naming a parameter that the model does not have."""
    groups = []
    for index, group in enumerate(optimizer.param_groups):
        found = []
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                raise ArgumentValueError(
                    f"optimizer: parameter {place} of group {index}, of shape {tuple(parameter.shape)}, is not among "
                    "model.named_parameters(), so its state has no name to be saved under. Build the optimizer from "
                    "the parameters of the model that the Checkpointer gets (after moving and wrapping it)"
                )
            found.append(names[id(parameter)])
        groups.append(found)
    return groups


def capture_optimizer(optimizer: Any, names: Mapping[int, str], part: str = "optimizer") -> dict[str, Any]:
    """Return the optimizer's state as a plain tree: class, groups (names, hyperparameters), state by name.

    part: what it is called in messages.
    Raises TypeError or ValueError for state that could not be loaded without running code.
    """
    groups = group_names(optimizer, names)
    packed = optimizer.state_dict()
    by_index = {
        index: name
        for group, named in zip(packed["param_groups"], groups, strict=True)
        for index, name in zip(group["params"], named, strict=True)
    }
    state = {by_index[key]: value for key, value in packed["state"].items() if key in by_index}
    tree = {
        "format": FORMAT,
        "class": class_name(optimizer),
        "groups": [
            # param_names repeats the names in torch's order of position, which is what must not be relied on
            {"names": named, "hyperparameters": {k: v for k, v in group.items() if k not in ("params", "param_names")}}
            for group, named in zip(packed["param_groups"], groups, strict=True)
        ],
        "state": state,
        "shared": {key: value for key, value in packed["state"].items() if key not in by_index},
        "more": {key: value for key, value in packed.items() if key not in ("state", "param_groups")},
    }
    checked: dict[str, Any] = plain(tree, part)
    return checked


def match_groups(saved: list[list[str]], present: list[list[str]]) -> list[int] | None:
    """Return for each present group the index of the saved group with the same names, or None if one has none.

    >>> match_groups([["a", "b"], ["c"]], [["c"], ["b", "a"]])
    [1, 0]
    """
    if len(saved) != len(present):
        return None
    free = {index: sorted(names) for index, names in enumerate(saved)}
    matched = []
    for names in present:
        index = next((index for index, others in free.items() if others == sorted(names)), None)
        if index is None:
            return None
        del free[index]
        matched.append(index)
    return matched


def optimizer_difference(saved: Mapping[str, Any], optimizer: Any, names: Mapping[int, str]) -> tuple[str, str] | None:
    """Return in words what was saved and what is here, if `restore_optimizer` must not be called; else None."""
    before, now = saved["class"], class_name(optimizer)
    if before != now:
        return before, now
    old, present = [group["names"] for group in saved["groups"]], group_names(optimizer, names)
    same = old == present if positional(now) else match_groups(old, present) is not None
    return None if same else (groups_text(old), groups_text(present))


def groups_text(groups: Sequence[Sequence[str]]) -> str:
    """Return the first names of the first groups.

    >>> groups_text([["a", "b"], ["c"]])
    '2 group(s): [a, b] [c]'
    """
    shown = [", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") for names in groups[:_SHOWN]]
    more = " …" if len(groups) > _SHOWN else ""
    return f"{len(groups)} group(s): " + " ".join(f"[{names}]" for names in shown) + more


def restore_optimizer(optimizer: Any, names: Mapping[int, str], saved: Mapping[str, Any]) -> None:
    """Load what `capture_optimizer` returned: each state to the parameter of its name, in the dtype it was saved in."""
    present = group_names(optimizer, names)
    matched = match_groups([group["names"] for group in saved["groups"]], present)
    if matched is None:
        raise ArgumentValueError("optimizer: its groups do not hold the parameters of the saved ones")
    order = [name for group in present for name in group]
    index = {name: place for place, name in enumerate(order)}
    groups = [
        {**saved["groups"][source]["hyperparameters"], "params": [index[name] for name in named]}
        for source, named in zip(matched, present, strict=True)
    ]
    state = {index[name]: value for name, value in saved["state"].items()}
    optimizer.load_state_dict({**saved["more"], "state": {**state, **saved["shared"]}, "param_groups": groups})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for name, kept in saved["state"].items():
        # torch has cast all but `step` to the parameter's dtype: fp32 moments of bf16 parameters would lose bits
        parameter = parameters[index[name]]
        optimizer.state[parameter] = _as_saved(optimizer.state[parameter], kept)


def _as_saved(loaded: Any, saved: Any) -> Any:
    if isinstance(saved, torch.Tensor) and isinstance(loaded, torch.Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
    if isinstance(saved, Mapping) and isinstance(loaded, dict):
        for key in loaded:
            if key in saved:
                loaded[key] = _as_saved(loaded[key], saved[key])
        return loaded
    if isinstance(saved, (list, tuple)) and type(loaded) is type(saved) and len(loaded) == len(saved):
        return type(saved)(_as_saved(one, other) for one, other in zip(loaded, saved, strict=True))
    return loaded


def positional(name: str) -> bool:
    """Whether an optimizer of class `name` keeps state that runs over all parameters in their order."""
    return name.rpartition(".")[2] == "LBFGS"


def class_name(thing: object) -> str:
    """Return the importable name of the class of `thing`; torch's own without the module that happens to hold it.

    >>> class_name(torch.optim.SGD([torch.zeros(1)], lr=1.0))
    'torch.optim.SGD'
    """
    kind = type(thing)
    module = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
    return f"{module}.{kind.__qualname__}"
