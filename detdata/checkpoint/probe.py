"""The probe: a number that the user's own function gives, at every save and after a resume: it must be the same."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from detdata.checkpoint import rng
from detdata.checkpoint.errors import ProbeFailed
from detdata.errors import ArgumentTypeError
from detdata.streams import Stream

Probe: TypeAlias = Callable[[], Any]


def run_probe(probe: Probe, model: torch.nn.Module, generators: Mapping[str, Stream] | None = None) -> str:
    """Return what `probe` gives, as hexadecimal text that has every bit of it, isolated from the training.

    Runs without gradients and in evaluation mode, so that no running average moves; random states, also those of
    `generators`, and every module's training flag are put back, whatever it does.
    Raises TypeError if it gives no number, and whatever it raises.
    """
    state = rng.capture_rng(generators)
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            value = probe()
    finally:
        for module, training in modes:
            module.training = training
        rng.restore_rng(state, generators)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentTypeError(f"probe must return a number or a tensor of one element, got {value!r}")
    try:
        return float(value).hex()
    except OverflowError as error:
        raise ArgumentTypeError("probe must return a number that a float can hold") from error


def check_probe(found: str, saved: Mapping[str, Any], rank: int, path: object) -> None:
    """Raise ProbeFailed unless the probe gives what it gave at the save, on this rank or else on rank 0."""
    values = saved["values"]
    before = values[rank] if rank < len(values) else values[0]
    if found != before:
        numbers_ = [float.fromhex(text) for text in (before, found)]
        away = abs(numbers_[1] - numbers_[0])
        distance = f", {away:.3g} away" if math.isfinite(away) else ""
        raise ProbeFailed(
            f"the probe gave {numbers_[0]!r} when {path} was saved and gives {numbers_[1]!r} now{distance}: the loaded "
            "state does not compute what the saved one did. Another machine, library or precision can do that too; to "
            'go on with it: resume(accept=("probe",)). The objects of this process are loaded already: start it anew'
        )
