"""Saved against present, field by field, before anything is loaded.

| field           | differs when                             | accept          | accepting                         |
| --------------- | ---------------------------------------- | --------------- | --------------------------------- |
| world_size      | another number of data-parallel ranks    | world_size      | goes on at the next unseen sample |
| topology        | another recorded size (tp_size, …)       | topology        | goes on                           |
| model           | names or shapes of the state differ;     | never           |                                   |
|                 | tied now, and of other values there      |                 |                                   |
| precision       | dtypes of the state, or the declared one | precision       | casts to the present dtypes       |
| optimizer       | class or groups; on one side only        | optimizer       | the present one starts afresh     |
| scheduler       | classes; on one side only                | scheduler       | the present one starts afresh     |
| scaler          | on one side only (disabled is none)      | scaler          | the present one starts afresh     |
| extra           | a named part on one side only; class or  | extra           | that part starts afresh           |
|                 | groups of an optimizer among them        |                 |                                   |
| loader          | on one side only                         | loader          | the present one stays as it is    |
| order, seed, …  | what `loader.check_state` says           | never           |                                   |
| batch_size      | of the loader's plan, from here on       | batch_size      | goes on at the next unseen sample |
| dataset_version | another; declared on one side only       | dataset_version | goes on with the present data     |
| rng             | more devices or generators saved than    | rng             | restores those that are there     |
|                 | are here                                 |                 |                                   |
| micro_step      | inside a window, by another world size   | never           |                                   |
| probe           | after loading, another number            | probe           | goes on with a warning            |

Versions of libraries, deterministic switches and the config are no reason to refuse: one warning lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from detdata.checkpoint import rng
from detdata.checkpoint.deepspeed import engine_differences
from detdata.checkpoint.environment import switches, versions
from detdata.checkpoint.extras import extra_differences
from detdata.checkpoint.members import rng_name
from detdata.checkpoint.meta import frozen, structure_of
from detdata.checkpoint.optimizer import (
    class_name,
    group_names,
    groups_text,
    match_groups,
    optimizer_difference,
    parameter_names,
)
from detdata.checkpoint.run import Run, layout_sizes
from detdata.checkpoint.saved import Saved
from detdata.checkpoint.schedulers import describe, group_order_known, last_rates
from detdata.errors import ArgumentTypeError, ArgumentValueError, Difference, StateMismatch

ACCEPTABLE = (
    "world_size",
    "topology",
    "precision",
    "optimizer",
    "scheduler",
    "scaler",
    "extra",
    "loader",
    "batch_size",
    "dataset_version",
    "rng",
    "probe",
)
_SHOWN = 5


def check_accept(accept: object) -> tuple[str, ...]:
    """Return `accept` as a tuple of known names. Raises TypeError, ValueError listing the known ones."""
    if isinstance(accept, str) or not isinstance(accept, Iterable):
        raise ArgumentTypeError(f'accept must be a tuple of names such as ("world_size",), got {accept!r}')
    names = tuple(accept)
    unknown = [name for name in names if name not in ACCEPTABLE]
    if unknown:
        raise ArgumentValueError(f"accept: {unknown} cannot be accepted; what can be: {', '.join(ACCEPTABLE)}")
    return names


def compare(run: Run, saved: Saved, rank: int) -> tuple[Difference, ...]:
    """Return every difference between a checkpoint and the present set-up. Changes nothing."""
    return (
        *_layout(run, saved),
        *_model(run, saved),
        *engine_differences(run.model, saved.trees["model.pt"], rank),
        *_optimizer(run, saved),
        *_scheduler(run, saved),
        *_one_sided(run, saved),
        *_loader(run, saved),
        *_declared(run, saved),
        *_rng(run, saved, rank),
    )


def _layout(run: Run, saved: Saved) -> list[Difference]:
    before, now = dict(saved.meta["topology"]), run.layout()
    found = []
    if before.get("world_size") != now.get("world_size"):
        found.append(_difference("world_size", before.get("world_size"), now.get("world_size"), "world_size"))
        micro = saved.progress.micro_step
        if micro:
            found.append(
                Difference(
                    "micro_step",
                    f"{micro}, with the gradients of {before.get('world_size')} ranks",
                    f"{now.get('world_size')} ranks; resume inside a window with as many as before",
                    None,
                )
            )
    sizes = [
        {name: value for name, value in layout_sizes(side).items() if name != "world_size"} for side in (before, now)
    ]
    if sizes[0] != sizes[1]:
        texts = [side or "nothing recorded" for side in sizes]
        found.append(_difference("topology", texts[0], texts[1], "topology"))
    return found


def _model(run: Run, saved: Saved) -> list[Difference]:
    state = run.bare_model().state_dict()
    before, now = _entries(saved.trees["model.pt"]), _entries(state)
    names = [*before, *(name for name in now if name not in before)]
    absent = (None, None)
    shapes = [name for name in names if before.get(name, absent)[0] != now.get(name, absent)[0]]
    dtypes = [name for name in names if name not in shapes and before[name][1] != now[name][1]]
    found = []
    if shapes:
        found.append(
            Difference("model", _listed(shapes, before, "none named"), _listed(shapes, now, "none named"), None)
        )
    if dtypes:
        found.append(
            Difference("precision", _listed(dtypes, before, "none"), _listed(dtypes, now, "none"), "precision")
        )
    return found or _tied(state, saved.trees["model.pt"])


def _entries(state: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return name -> (shape, dtype) of everything in a model's state; a module's extra state has neither."""
    found: dict[str, tuple[Any, Any]] = {
        name: ("extra state", "") for name, value in state.items() if not isinstance(value, torch.Tensor)
    }
    return found | {name: (shape, dtype) for name, shape, dtype in structure_of(state)}


def _tied(state: Mapping[str, Any], saved: Mapping[str, Any]) -> list[Difference]:
    """What is one tensor now and was saved as several that differ: of them the last would win, without a word."""
    first: dict[tuple[Any, ...], str] = {}
    for name, value in state.items():
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            continue
        if value.is_meta or value.is_quantized or not value.numel():
            continue
        one = first.setdefault((value.device, value.data_ptr(), value.shape, value.stride(), value.dtype), name)
        if one != name and not _same_bits(saved[one], saved[name]):
            return [Difference("model", f"{one} and {name} of other values", "one tensor under both names", None)]
    return []


def _same_bits(a: Any, b: Any) -> bool:
    if a is b or a.data_ptr() == b.data_ptr():
        return True
    flat = [one.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for one in (a, b)]
    return torch.equal(*flat)


def _listed(names: Sequence[str], side: Mapping[str, tuple[Any, Any]], none: str) -> str:
    shown = [f"{name} {side[name][0]} {side[name][1]}" if name in side else f"no {name}" for name in names[:_SHOWN]]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(shown) or none) + more


def _optimizer(run: Run, saved: Saved) -> list[Difference]:
    tree = saved.trees.get("optimizer.pt")
    if run.optimizer is None or tree is None:
        return _presence("optimizer", tree is not None, run.optimizer is not None, "optimizer")
    sides = optimizer_difference(tree, run.optimizer, parameter_names(run.bare_model()))
    return [] if sides is None else [Difference("optimizer", *sides, "optimizer")]


def _scheduler(run: Run, saved: Saved) -> list[Difference]:
    tree = saved.trees.get("scheduler.pt")
    if not run.schedulers or tree is None:
        return _presence("scheduler", tree is not None, bool(run.schedulers), "scheduler")
    before, now = tree["classes"], [describe(scheduler) for scheduler in run.schedulers]
    if before != now:
        return [_difference("scheduler", ", ".join(before), ", ".join(now), "scheduler")]
    old = saved.trees.get("optimizer.pt")
    if run.optimizer is None or old is None:
        return []
    saved_groups = [group["names"] for group in old["groups"]]
    present = group_names(run.optimizer, parameter_names(run.bare_model()))
    order = match_groups(saved_groups, present)
    moved = order is not None and order != sorted(order) and not group_order_known(now)
    resized = len(saved_groups) != len(present) and any(last_rates(one) is not None for one in run.schedulers)
    if moved or resized:
        return [
            Difference("scheduler", f"for {groups_text(saved_groups)}", f"for {groups_text(present)}", "scheduler"),
        ]
    return []


def _one_sided(run: Run, saved: Saved) -> list[Difference]:
    found = _presence("scaler", "scaler.pt" in saved.trees, run.scaler_state() is not None, "scaler")
    extra = saved.trees.get("extra.pt", {})
    for name in [*extra, *(name for name in run.extra if name not in extra)]:
        found += _presence(f"extra[{name!r}]", name in extra, name in run.extra, "extra")
    return found + extra_differences(run, extra)


def _loader(run: Run, saved: Saved) -> list[Difference]:
    state = saved.data["loader"]
    if run.loader is None or state is None:
        return _presence("loader", state is not None, run.loader is not None, "loader")
    check = getattr(run.loader, "check_state", None)
    if check is None:
        return []
    try:
        found = [Difference(str(field), str(before), str(now), None) for field, before, now in check(state)]
        change = getattr(run.loader, "batch_size_change", None)
        sizes = None if found or change is None else change(state)
        return found if sizes is None else [_difference("batch_size", sizes[0], sizes[1], "batch_size")]
    except StateMismatch as error:
        return [Difference("loader", "a state that this loader cannot read", str(error), None)]


def _declared(run: Run, saved: Saved) -> list[Difference]:
    found = []
    before = saved.data["dataset_version"]
    if before != run.dataset_version:
        found.append(_difference("dataset_version", before, run.dataset_version, "dataset_version"))
    declared = saved.meta["precision"]["declared"]
    if declared != run.precision:
        found.append(_difference("precision", declared, run.precision, "precision"))
    return found


def _rng(run: Run, saved: Saved, rank: int) -> list[Difference]:
    tree = saved.trees.get(rng_name(rank))
    if tree is None:
        return []  # this rank gets derived states, and a warning says so
    found = []
    for name, count in rng.devices_saved(tree).items():
        here = rng.devices_here(name)
        if count > here:
            found.append(_difference("rng", f"{count} {name} devices", f"{here} {name} devices", "rng"))
    gone = sorted(set(tree["generators"]) - set(run.generators))
    if gone:
        found.append(_difference("rng", f"generators {', '.join(gone)}", "not among the registered ones", "rng"))
    return found


def _presence(field: str, before: bool, now: bool, accept: str) -> list[Difference]:
    words = {True: "present", False: "none"}
    return [] if before == now else [Difference(field, words[before], words[now], accept)]


def _difference(field: str, before: object, now: object, accept: str) -> Difference:
    texts = ["not declared" if side is None else str(side) for side in (before, now)]
    return Difference(field, texts[0], texts[1], accept)


def notes(run: Run, saved: Saved, rank: int, skip: Sequence[str] = ()) -> list[str]:
    """Return what differs without being a reason to refuse, one line each: versions, switches, config.

    skip: parts that are not loaded.
    """
    lines = []
    for title, before, now in (
        ("versions", saved.meta["versions"], versions()),
        ("switches", saved.meta["switches"], switches()),
        ("config", saved.meta["config"], run.config),
    ):
        old, new = _flat(before), _flat(now)
        changed = [name for name in {**old, **new} if old.get(name, "absent") != new.get(name, "absent")]
        for name in changed[:_SHOWN]:
            lines.append(f"{title}{name}: saved {old.get(name, 'absent')!r}, now {new.get(name, 'absent')!r}")
        if len(changed) > _SHOWN:
            lines.append(f"{title}: {len(changed) - _SHOWN} more")
    if rng_name(rank) not in saved.trees:
        lines.append(
            f"it has no random states of rank {rank}: they are derived from rank 0's, so what this rank draws "
            "(dropout, say) is reproducible, and not what it would have drawn without the stop"
        )
    else:
        lines += _derived(run, saved.trees[rng_name(rank)])
    return lines + _frozen(run, saved) + _hyperparameters(run, saved, skip)


def _frozen(run: Run, saved: Saved) -> list[str]:
    """Parameters that are trained on one side only: no part of a checkpoint, and the script's to set."""
    before, now = saved.meta["model"]["frozen"], frozen(run.bare_model())
    lines = []
    for names, others, words in ((before, set(now), "trained now, frozen then"), (now, set(before), "frozen only now")):
        only = [name for name in names if name not in others]
        more = f" and {len(only) - _SHOWN} more" if len(only) > _SHOWN else ""
        lines += [f"requires_grad, which this script sets: {words}: {', '.join(only[:_SHOWN])}{more}"] if only else []
    return lines


def _derived(run: Run, tree: Mapping[str, Any]) -> list[str]:
    """What has no random state in the checkpoint of this rank, though the rank has one."""
    lines = []
    for name, count in rng.devices_saved(tree).items():
        if count < rng.devices_here(name):
            lines.append(
                f"random states of {count} {name} devices were saved, {rng.devices_here(name)} are here: the others' "
                "are derived from torch's saved state, all different"
            )
    saved = tree["generators"]
    for name, stream in run.generators.items():
        kind = rng.generator_class(stream)
        if name not in saved or saved[name]["class"] != kind:
            before = f"a {saved[name]['class']}" if name in saved else "none"
            lines.append(f"generator {name!r}: saved {before}, here a {kind}: it is seeded from torch's saved state")
    return lines


def _hyperparameters(run: Run, saved: Saved, skip: Sequence[str]) -> list[str]:
    """What the script sets another way than the checkpoint: the saved values will be in force."""
    lines = []
    tree = saved.trees.get("optimizer.pt")
    names = parameter_names(run.bare_model())
    if run.optimizer is not None and tree is not None and tree["class"] == class_name(run.optimizer):
        old = [group["names"] for group in tree["groups"]]
        order = match_groups(old, group_names(run.optimizer, names)) or []
        # A schedule moves lr and whatever else it likes; its own settings are compared below.
        moving = {"lr", "initial_lr", "params", "momentum", "betas"} if run.schedulers else {"params"}
        for index, group in zip(order, run.optimizer.param_groups, strict=False):
            before = tree["groups"][index]["hyperparameters"]
            lines += _changed(f"optimizer group {index}", before, group, skip=moving)
    for number, scheduler in enumerate(run.schedulers if "scheduler" not in skip else ()):
        states = saved.trees.get("scheduler.pt", {}).get("states", [])
        if number < len(states) and isinstance(states[number], Mapping):
            moving = {"last_epoch", "num_bad_epochs", "best", "cooldown_counter", "T_cur", "T_i"}
            lines += _changed(f"scheduler {number}", states[number], scheduler.state_dict(), skip=moving)
    return lines


def _changed(title: str, before: Mapping[str, Any], now: Mapping[str, Any], *, skip: set[str]) -> list[str]:
    plain = (bool, int, float, str, tuple)
    return [
        f"{title}: {name} was {before[name]!r} and is in force again; this script sets {now[name]!r}"
        for name in before
        if name in now
        and name not in skip
        and not name.startswith("_")
        and isinstance(before[name], plain)
        and isinstance(now[name], plain)
        and before[name] != now[name]
    ]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        return {key: item for name, part in value.items() for key, item in _flat(part, f"{path}.{name}").items()}
    return {path: value}
