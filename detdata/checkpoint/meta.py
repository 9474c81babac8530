"""What meta.json says of a checkpoint: enough to check a resume field by field, and to know later what it was."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detdata.checkpoint import sharded
from detdata.checkpoint.environment import autocast, git_state, host, snapshot, switches, versions
from detdata.checkpoint.members import META_FORMAT
from detdata.checkpoint.optimizer import class_name, group_names, parameter_names
from detdata.checkpoint.run import Run
from detdata.checkpoint.schedulers import describe
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.records import canonical_json, digest


def structure_of(state: Mapping[str, Any]) -> list[list[Any]]:
    """Return [name, shape, dtype] of each tensor of a model's state dict, in its order.

    >>> structure_of(torch.nn.Linear(2, 1, bias=False).state_dict())
    [['weight', [1, 2], 'torch.float32']]
    """
    rows: list[list[Any]] = []
    for name, value in state.items():
        if torch.nn.parameter.is_lazy(value):
            raise ArgumentValueError(f"model: {name} has no shape yet; run one forward pass before saving or resuming")
        if isinstance(value, torch.Tensor):
            rows.append([name, list(value.shape), str(value.dtype)])
    return rows


def structure_digest(structure: Sequence[Sequence[Any]]) -> str:
    """Return the digest of a structure: the same for the same names, shapes and dtypes in the same order."""
    return digest(canonical_json(list(structure)))


def frozen(model: torch.nn.Module) -> list[str]:
    """Return the names of the parameters that want no gradient.

    >>> frozen(torch.nn.Linear(2, 1).requires_grad_(False))
    ['weight', 'bias']
    """
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


@dataclass(slots=True)
class History:
    """What a run has been through, as meta.json has it.

    accepted: differences that the last resume went on with. resumed: where from, and what is done again. best: name,
    value and step of the best metric so far.
    """

    metrics: dict[str, Any] = field(default_factory=dict)
    accepted: list[dict[str, Any]] = field(default_factory=list)
    resumed: dict[str, Any] | None = None
    best: dict[str, Any] | None = None


def make_meta(run: Run, structure: list[list[Any]], history: History) -> dict[str, Any]:
    """Return the content of meta.json as plain JSON, but for what only the other ranks know."""
    model = run.bare_model()
    optimizer = None
    if run.optimizer is not None:
        groups = group_names(run.optimizer, parameter_names(model))
        optimizer = {"class": class_name(run.optimizer), "groups": groups}
    return {
        "format": META_FORMAT,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **host(),
        "topology": run.layout(),
        "git": _git_here(),
        "versions": versions(),
        "switches": switches(),
        "model": {
            "class": class_name(model),
            "structure": structure_digest(structure),
            "tensors": len(structure),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "frozen": frozen(model),
        },
        "optimizer": optimizer,
        "schedulers": [describe(scheduler) for scheduler in run.schedulers],
        "precision": {
            "declared": run.precision,
            "parameters": sorted({str(parameter.dtype) for parameter in model.parameters()}),
            "autocast": autocast(),
        },
        "sharding": sharded.describe(model.parameters()),
        "config": run.config,
        "metrics": snapshot(dict(history.metrics)),
        "accepted": [dict(entry) for entry in history.accepted],
        "resumed": history.resumed,
        "best": history.best,
    }


def plain_metric(name: str, value: Any) -> Any:
    """Return a metric as it may be kept until the next save. Raises TypeError for what is no single value."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.detach().clone()  # read at the next save: a look at it now would wait for the device
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return value
    raise ArgumentTypeError(f"metric {name!r} must be a number, a string or a tensor of one element, got {value!r}")


def _git_here() -> dict[str, Any] | None:
    try:
        return git_state(str(Path.cwd()))
    except OSError:  # the folder was removed under us; that is no reason not to save
        return None
