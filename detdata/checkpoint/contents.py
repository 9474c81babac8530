"""Whether what was read from a checkpoint has the form that this release writes, before anything relies on it.

The manifest says that the files are those that were written; not by whom. A part of another form is a problem of the
checkpoint like a flipped bit, and no traceback in the middle of a resume.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from detdata.checkpoint import gradients, optimizer, rng, schedulers
from detdata.checkpoint.members import rank_of
from detdata.checkpoint.saved import Saved

MAX_DEPTH = 100
_FORMATS = {
    "optimizer": optimizer.FORMAT,
    "scheduler": schedulers.FORMAT,
    "rng": rng.FORMAT,
    "gradients": gradients.FORMAT,
}
_PARTS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "optimizer": {"class": str, "groups": list, "state": Mapping, "shared": Mapping, "more": Mapping},
    "scheduler": {"classes": list, "states": list},
    "rng": {"python": Mapping, "numpy": Mapping, "torch": torch.Tensor, "accelerators": Mapping, "generators": Mapping},
    "gradients": {"gradients": Mapping},
    "meta.json": {
        "topology": Mapping,
        "model": Mapping,
        "versions": Mapping,
        "switches": Mapping,
        "precision": Mapping,
        "config": object,
        "probe": (Mapping, type(None)),
        "best": (Mapping, type(None)),
    },
    "data.json": {"loader": (Mapping, type(None)), "dataset_version": (str, type(None))},
}
_HEX = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}|-?0x[01]\.0p\+0|-?inf|nan")


def wrong_contents(saved: Saved) -> list[str]:
    """Return what is not of its form, one line for each file; empty if all is."""
    problems = []
    for name, tree in saved.trees.items():
        found = rank_of(name)
        kind = name.removesuffix(".pt") if found is None else found[0]
        problems += [f"{name}: {why}" for why in _part(kind, tree)[:1]]
    for name, record in (("data.json", saved.data), ("meta.json", saved.meta)):
        problems += [f"{name}: {why}" for why in (_fields(name, record) or _values(name, record))[:1]]
    return problems


def _part(kind: str, tree: Any) -> list[str]:
    if not isinstance(tree, Mapping):
        return [f"a {type(tree).__name__} and no dictionary"]
    if kind == "model":
        return [f"the key {name!r}" for name in tree if not isinstance(name, str)]
    expected = _FORMATS.get(kind)
    if expected is not None and tree.get("format") != expected:
        return [f"of the format {tree.get('format')!r}, and this release reads {expected!r}"]
    return _fields(kind, tree) or _values(kind, tree)


def _fields(kind: str, tree: Mapping[str, Any]) -> list[str]:
    fields = _PARTS.get(kind, {})
    return [
        f"{name} is missing" if name not in tree else f"{name} is a {type(tree[name]).__name__}"
        for name, types in fields.items()
        if name not in tree or not isinstance(tree[name], types)
    ]


def _values(kind: str, tree: Mapping[str, Any]) -> list[str]:
    if kind == "optimizer":
        return _groups(tree["groups"], tree["state"])
    if kind == "scheduler":
        states, classes = tree["states"], tree["classes"]
        sound = len(states) == len(classes) and all(isinstance(one, Mapping) for one in states)
        return [] if sound and all(isinstance(one, str) for one in classes) else ["classes and states do not fit"]
    if kind == "rng":
        sound = tree["torch"].dtype == torch.uint8 and tree["torch"].shape == torch.get_rng_state().shape
        return [] if sound else ["torch is no random state"]
    if kind == "meta.json":
        declared = [] if "declared" in tree["precision"] else ["precision says nothing of what was declared"]
        return (
            _frozen(tree["model"].get("frozen"))
            + _probe(tree["probe"])
            + _best(tree["best"])
            + declared
            + _too_deep(tree)
        )
    return []


def _groups(groups: list[Any], state: Mapping[Any, Any]) -> list[str]:
    named = set()
    for group in groups:
        names = group.get("names") if isinstance(group, Mapping) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return ["a group without the names of its parameters"]
        if not isinstance(group.get("hyperparameters"), Mapping):
            return ["a group without hyperparameters"]
        named |= set(names)
    return [f"state of {name!r}, which is in no group" for name in state if name not in named]


def _frozen(names: Any) -> list[str]:
    sound = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return [] if sound else ["model has no names of frozen parameters"]


def _probe(probe: Mapping[str, Any] | None) -> list[str]:
    values = [] if probe is None else probe.get("values")
    sound = isinstance(values, list) and all(isinstance(one, str) and _HEX.fullmatch(one) for one in values)
    return [] if sound and (probe is None or values) else ["probe has no values"]


def _best(best: Mapping[str, Any] | None) -> list[str]:
    sound = best is None or (
        isinstance(best.get("metric"), str) and isinstance(best.get("value"), float) and type(best.get("step")) is int
    )
    return [] if sound else ["best is no metric with its value and step"]


def _too_deep(record: Any) -> list[str]:
    level = [record]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value)]
        if not level:
            return []
    return [f"nested more than {MAX_DEPTH} deep"]


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []
