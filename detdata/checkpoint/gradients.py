"""Gradients inside an accumulation window, by parameter name: what a save between two optimizer steps needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from detdata.checkpoint.trees import plain

FORMAT = "detdata.gradients/1"


def gradients_name(rank: int) -> str:
    """Return the name of the file with the gradients of `rank`: each rank has its own sum until they are reduced."""
    return f"gradients_rank{rank:05d}.pt"


def capture_gradients(model: torch.nn.Module) -> dict[str, Any]:
    """Return the accumulated gradients as a plain tree; a parameter without one is listed with None."""
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"format": FORMAT, "gradients": plain(found, "gradients")}


def restore_gradients(model: torch.nn.Module, tree: Mapping[str, Any]) -> None:
    """Give each parameter the gradient that it had, bit for bit, on its own device."""
    saved = tree["gradients"]
    for name, parameter in model.named_parameters():
        gradient = saved[name]
        parameter.grad = None if gradient is None else gradient.to(parameter.device).clone()


def clear_gradients(model: torch.nn.Module) -> None:
    """Take every parameter's gradient away, as at the start of an accumulation window."""
    for parameter in model.parameters():
        parameter.grad = None
