"""The parts of a checkpoint: objects -> trees (capture), and back (restore). Between them lie the files (saved)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from detdata.checkpoint import rng
from detdata.checkpoint.errors import CheckpointNotLoaded
from detdata.checkpoint.extras import capture_extras, extra_names, group_orders, is_named, restore_extra
from detdata.checkpoint.gradients import capture_gradients, clear_gradients, gradients_name, restore_gradients
from detdata.checkpoint.members import DATA_FORMAT, rng_name
from detdata.checkpoint.optimizer import (
    capture_optimizer,
    group_names,
    match_groups,
    parameter_names,
    restore_optimizer,
)
from detdata.checkpoint.run import Run
from detdata.checkpoint.saved import Saved
from detdata.checkpoint.schedulers import capture_schedulers, last_rates, put_back, restore_schedulers, scheduled
from detdata.checkpoint.sharded import Anywhere, Like, is_sharded, pieces_tree, shards_name, split
from detdata.checkpoint.trees import plain
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.records import canonical_json


def capture(run: Run, rank: int, *, gradients: bool = False) -> dict[str, Any]:
    """Return file name -> plain tree of every tensor part that `rank` knows; tensors share memory with the run's.

    Every rank has its own random states and gradients; rank 0 has what is the same on all of them. Where tensors are
    sharded every rank has that, with marks for them, and all pieces that it holds.
    Raises TypeError, ValueError for what could not be loaded without running code. Changes nothing.
    """
    # Random states first: whatever a user's state_dict() may draw comes after the saved state.
    trees: dict[str, Any] = {rng_name(rank): plain(rng.capture_rng(run.generators), "rng")}
    model = run.bare_model()
    sharded = run.is_sharded()
    if gradients and sharded:
        raise ArgumentValueError(
            "gradients inside an accumulation window cannot be saved where parameters are sharded: save at the boundary"
        )
    if gradients:
        trees[gradients_name(rank)] = capture_gradients(model)
    if rank and not sharded:
        return trees
    of_this_rank = set(trees)
    trees["model.pt"] = plain(model.state_dict(), "model")
    if run.optimizer is not None:
        trees["optimizer.pt"] = capture_optimizer(run.optimizer, parameter_names(model))
    if run.schedulers:
        trees["scheduler.pt"] = plain(capture_schedulers(run.schedulers), "scheduler")
    scaler = run.scaler_state()
    if scaler is not None:
        trees["scaler.pt"] = plain(scaler, "scaler")
    if run.extra:
        trees["extra.pt"] = plain(capture_extras(run), "extra", arrays=True)
    return _taken_apart(trees, rank, of_this_rank, sharded=sharded)


def _taken_apart(trees: dict[str, Any], rank: int, of_this_rank: set[str], *, sharded: bool) -> dict[str, Any]:
    result, pieces = {}, []
    for name, tree in trees.items():
        if name in of_this_rank:
            result[name] = tree
        else:
            result[name], own = split(tree, name)
            pieces += own
    if pieces and not sharded:  # the other ranks do not know
        raise ArgumentTypeError(
            f"{pieces[0].key.partition('#')[0]} holds a DTensor, and neither the model nor a module or optimizer among "
            "the extra parts does: give the module that it belongs to as an extra part, too"
        )
    if pieces:
        result[shards_name(rank)] = pieces_tree(pieces)
    return result


def present_tensors(run: Run) -> Like:
    """Return what says, for a place in a saved part, which present tensor has the layout that it should have.

    State that the present objects do not have yet (an optimizer's before its first step) is wanted, too: Anywhere.
    """
    model = run.bare_model()
    state: dict[str, Any] = model.state_dict()
    parameters = dict(model.named_parameters())
    extras: dict[str, Any] = {}
    named_ids = extra_names(run)
    modules = [part for part in run.extra.values() if isinstance(part, torch.nn.Module)]
    named = {named_ids[id(one)]: one for module in (model, *modules) for one in module.parameters()}
    sharded: list[Any] = [one for one in (*parameters.values(), *named.values()) if is_sharded(one)]
    anywhere = Anywhere(sharded[0].device_mesh if sharded else None)

    def like(part: str, path: tuple[Any, ...]) -> torch.Tensor | Anywhere | None:
        if part == "model.pt":
            found = state.get(path[0]) if len(path) == 1 else anywhere
        elif part == "optimizer.pt" and path[:1] == ("state",):  # the moments of a parameter lie as it does
            found = parameters.get(path[1]) if len(path) > 1 else None
        elif part == "extra.pt":
            if not path or path[0] not in run.extra:
                return None  # nobody loads it
            part_of_run = run.extra[path[0]]
            if is_named(part_of_run, named_ids):
                return named.get(path[2]) if len(path) > 2 and path[1] == "state" else None
            if path[0] not in extras:
                extras[path[0]] = part_of_run.state_dict()
            found = extras[path[0]]
            for key in path[1:]:
                found = _item(found, key)
            return found if isinstance(found, torch.Tensor) else anywhere
        else:
            found = anywhere
        return found if isinstance(found, (torch.Tensor, Anywhere)) else None

    return like


def _item(value: Any, key: Any) -> Any:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return None


def data_record(run: Run) -> dict[str, Any]:
    """Return the content of data.json. Raises TypeError if the loader's state is not plain JSON."""
    state = None if run.loader is None else dict(run.loader.state_dict())
    if state is not None:
        state.pop("dataset_version", None)  # it is the checkpoint's own field, where a change can be accepted by name
    try:
        canonical_json(state)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"loader: state_dict() must return plain JSON: {error}") from error
    return {"format": DATA_FORMAT, "dataset_version": run.dataset_version, "loader": state}


def restore(run: Run, saved: Saved, skip: Sequence[str], rank: int) -> None:
    """Load every part of `rank` but those named in `skip` ("optimizer", …) into the run's objects, random states last.

    Raises CheckpointNotLoaded, naming the part and what had been loaded before it, if an object refuses its state.
    """
    done: list[str] = []
    for name, load in _loaders(run, saved, skip, rank):
        try:
            load()
        except Exception as error:
            before = ", ".join(done) or "nothing"
            raise CheckpointNotLoaded(
                f"loading {name} from {saved.path} failed: {type(error).__name__}: {error}. "
                f"Loaded before it: {before}. The objects of this process are now part old, part new: "
                "do not train on; start the process anew"
            ) from error
        done.append(name)


def _loaders(run: Run, saved: Saved, skip: Sequence[str], rank: int) -> list[tuple[str, Callable[[], object]]]:
    trees, loads = saved.trees, list[tuple[str, Callable[[], object]]]()
    names = parameter_names(run.bare_model())
    present = [] if run.optimizer is None else group_names(run.optimizer, names)
    if run.loader is not None and saved.data["loader"] is not None and "loader" not in skip:
        loader, state = run.loader, saved.data["loader"]
        loads.append(("loader", lambda: loader.load_state_dict(state)))  # first: it may still refuse
    loads.append(("model", lambda: run.bare_model().load_state_dict(trees["model.pt"], strict=True)))
    if run.engine is not None:
        loads.append(("engine", partial(run.engine.load, saved.path)))
    order = list(range(len(present)))
    with_optimizer = run.optimizer is not None and "optimizer.pt" in trees and "optimizer" not in skip
    if with_optimizer:
        tree = trees["optimizer.pt"]
        order = match_groups([group["names"] for group in tree["groups"]], present) or order
        loads.append(("optimizer", lambda: restore_optimizer(run.optimizer, names, tree)))
    orders = group_orders(run, trees, order)
    if run.schedulers and "scheduler.pt" in trees and "scheduler" not in skip:
        loads.append(("scheduler", lambda: restore_schedulers(run.schedulers, trees["scheduler.pt"], orders)))
        if run.optimizer is not None and not with_optimizer:
            loads.append(("learning rates", lambda: _apply_rates(run)))
    if run.scaler is not None and "scaler.pt" in trees and "scaler" not in skip:
        loads.append(("scaler", lambda: run.scaler.load_state_dict(trees["scaler.pt"])))
    extra, every_name = trees.get("extra.pt", {}), extra_names(run)
    for name, part in run.extra.items():
        if name in extra:
            loads.append((f"extra[{name!r}]", partial(restore_extra, part, every_name, extra[name])))
    if "scheduler" in skip and run.schedulers:
        before = scheduled([one for one in (run.optimizer, *run.extra.values()) if hasattr(one, "param_groups")])
        loads.append(("learning rates", lambda: put_back(before)))
    if gradients_name(rank) in trees:
        loads.append(("gradients", lambda: restore_gradients(run.bare_model(), trees[gradients_name(rank)])))
    elif run.engine is None:  # what a process that goes back has accumulated since is no part of it
        loads.append(("gradients", lambda: clear_gradients(run.bare_model())))
    if rng_name(rank) in trees:  # last: loading may have drawn
        loads.append(("rng", lambda: rng.restore_rng(trees[rng_name(rank)], run.generators, rank)))
    elif rng_name(0) in trees:
        loads.append(("rng", lambda: rng.derive_rng(trees[rng_name(0)], rank, run.generators)))
    return loads


def _apply_rates(run: Run) -> None:
    # The optimizer starts afresh on purpose and the schedule goes on: the rates are the schedule's.
    for scheduler in run.schedulers:
        if getattr(scheduler, "optimizer", run.optimizer) is not run.optimizer:
            continue
        for group, rate in zip(run.optimizer.param_groups, last_rates(scheduler) or (), strict=False):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
