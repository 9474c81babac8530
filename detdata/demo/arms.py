"""How each run begins: from nothing, or from what the kill left, in three ways.

Every function returns the number of steps that are done; where it leaves the loader is where the data go on.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detdata.errors import DetdataError

if TYPE_CHECKING:
    from detdata.demo.train import Run

PLAIN = "checkpoint.pt"


class NothingToResume(DetdataError, FileNotFoundError):
    """The interrupted run left no checkpoint."""


def save_plain(run: Run, folder: Path, step: int) -> None:
    """Save by hand what scripts usually save: everything that has a state_dict, random state, step, and no position."""
    version, words, gauss = random.getstate()
    _, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    state = {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "scaler": None if run.scaler is None else run.scaler.state_dict(),
        "python": (version, words, gauss),
        "numpy": ([int(key) for key in keys], int(place), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if run.device.type == "cuda" else [],
        "step": step,
    }
    torch.save(state, folder / f"{PLAIN}.new")
    os.replace(folder / f"{PLAIN}.new", folder / PLAIN)  # noqa: PTH105


def from_nothing(_run: Run, _folder: Path) -> int:
    """Begin."""
    return 0


def weights_only(run: Run, folder: Path) -> int:
    """Load the weights; optimizer, schedule, random state and data begin anew. Steps are counted on for comparison."""
    state = _load_plain(folder)
    run.model.load_state_dict(state["model"])
    return int(state["step"])


def all_but_position(run: Run, folder: Path) -> int:
    """Load all state and the step; the loader begins its epoch again."""
    state = _load_plain(folder)
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.scheduler.load_state_dict(state["scheduler"])
    if run.scaler is not None:
        run.scaler.load_state_dict(state["scaler"])
    random.setstate(tuple(state["python"]))
    keys, *rest = state["numpy"]
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if run.device.type == "cuda":
        torch.cuda.set_rng_state_all(state["cuda"])
    step = int(state["step"])
    _to_epoch_start(run, step)
    return step


def exact(run: Run, folder: Path) -> int:
    """Let the Checkpointer resume from a copy of the interrupted run's checkpoints."""
    shutil.copytree(folder.parent / "interrupted" / "checkpoints", folder / "checkpoints", dirs_exist_ok=True)
    progress = run.checkpointer.resume()
    if progress is None:
        raise NothingToResume(f"no checkpoint in {folder / 'checkpoints'}")
    if run.settings.fault == "rng":
        torch.manual_seed(run.settings.seed)
    elif run.settings.fault == "position":
        _to_epoch_start(run, progress.global_step)
    return progress.global_step


def _to_epoch_start(run: Run, step: int) -> None:
    plan = run.loader.plan
    run.loader.resume(plan.consumed(plan.first_step(plan.epoch(step))))


def _load_plain(folder: Path) -> Mapping[str, Any]:
    path = folder.parent / "interrupted" / PLAIN
    state: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


START: Mapping[str, Callable[[Run, Path], int]] = {
    "straight": from_nothing,
    "interrupted": from_nothing,
    "weights": weights_only,
    "no-position": all_but_position,
    "detdata": exact,
}
