"""What differs between two checkpoints: parts, tensors, elements; what counts as state, and what is only recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detdata.checkpoint.inspection import open_checkpoint
from detdata.checkpoint.members import rank_of
from detdata.checkpoint.reading import Parts
from detdata.checkpoint.remote_path import AnyPath, RemotePath
from detdata.checkpoint.tree_difference import StateDifference, diff_trees

NOT_COMPARED = ("time", "host", "pid", "processes")  # of meta.json: when, where and by whom it was saved
_SHOWN = 20  # lines for a part in the text; all are in `differences`
_TITLES = {"rng": "random states of rank", "gradients": "gradients of rank"}


@dataclass(frozen=True, slots=True)
class PartDiff:
    """One part of two checkpoints. name: its file. differences: all of them.

    tensors: how many there are on either side, differing: how many of them differ; tensors is None where the files are
    equal, so that nobody counted.
    """

    name: str
    differences: tuple[StateDifference, ...]
    tensors: int | None = None
    differing: int = 0

    @property
    def same(self) -> bool:
        """Whether the part is the same on both sides, to the bit."""
        return not self.differences

    @property
    def title(self) -> str:
        """What people call the part."""
        found = rank_of(self.name)
        if found is None:
            return self.name.rpartition(".")[0] or self.name
        return f"{_TITLES.get(found[0], found[0] + ' of rank')} {found[1]}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "same": self.same,
            "tensors": self.tensors,
            "differing": self.differing,
            "differences": [difference.to_dict() for difference in self.differences],
        }

    def __str__(self) -> str:
        if self.same:
            return f"{self.title}: equal to the bit"
        if rank_of(self.name) is not None and self.name.startswith("rng_") and self.differences[0].name:
            streams = dict.fromkeys(_stream(difference.name) for difference in self.differences)
            return f"{self.title}: not equal: {', '.join(streams)}"
        counted = f"{self.differing:,} of {self.tensors:,} tensors differ" if self.tensors else "differs"
        lines = [f"{self.title}: {counted}"] + [f"  {difference}" for difference in self.differences[:_SHOWN]]
        more = len(self.differences) - _SHOWN
        return "\n".join([*lines, f"  … {more:,} more"] if more > 0 else lines)


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """What `diff_checkpoints` found between the checkpoints at `a` and `b`, of the global steps `step_a` and `step_b`.

    parts: every part of either side, with all that differs in it. recorded: differences of meta.json (versions, config,
    git, …), which are no state and don't count.
    """

    a: AnyPath
    b: AnyPath
    step_a: int
    step_b: int
    parts: tuple[PartDiff, ...]
    recorded: tuple[StateDifference, ...]

    @property
    def same(self) -> bool:
        """Whether all state is equal to the bit: a run that goes on from either is the same run."""
        return not self.differing

    @property
    def differing(self) -> tuple[PartDiff, ...]:
        """The parts that differ."""
        return tuple(part for part in self.parts if not part.same)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "same": self.same,
            "a": {"path": str(self.a), "step": self.step_a},
            "b": {"path": str(self.b), "step": self.step_b},
            "parts": [part.to_dict() for part in self.parts],
            "recorded": [difference.to_dict() for difference in self.recorded],
            "not_compared": list(NOT_COMPARED),
        }

    def __str__(self) -> str:
        if self.same:
            lines = [f"same: all state of {len(self.parts)} parts is equal to the bit"]
        else:
            names = ", ".join(part.title for part in self.differing)
            lines = [f"different: {len(self.differing)} of {len(self.parts)} parts: {names}"]
        lines += [f"  a  step {self.step_a}  {self.a}", f"  b  step {self.step_b}  {self.b}"]
        lines += [str(part) for part in sorted(self.parts, key=lambda part: part.same)]
        if self.recorded:
            lines.append("recorded with it, no state, does not count:")
            lines += [f"  {difference}" for difference in self.recorded[:_SHOWN]]
            more = len(self.recorded) - _SHOWN
            lines += [f"  … {more:,} more"] if more > 0 else []
        lines.append(f"not compared: {', '.join(NOT_COMPARED)} of meta.json; when and as what kind it was saved")
        return "\n".join(lines)


def diff_checkpoints(a: str | os.PathLike[str] | RemotePath, b: str | os.PathLike[str] | RemotePath) -> CheckpointDiff:
    """Return what differs between two checkpoints: parts, tensors, by how much; progress, plan and random states too.

    a, b: checkpoint folders, or roots: then the checkpoint that a resume would take. Needs no model and runs no code
    from the files. State is the same when every bit of it is: NaNs equal NaNs of the same bits, 0.0 is not -0.0.
    meta.json is no state: what differs in it is listed, and doesn't count. A tensor in pieces on several ranks is
    compared whole, so another layout of the same values is the same.

    Reads and verifies every byte of both sides. Parts whose files are equal are not loaded; the others one at a time,
    so that it takes the memory of the largest part of each side (of sharded ones, and of one rank's pieces).
    Raises CheckpointNotFound (a FileNotFoundError), CheckpointBroken with all that is wrong, UnknownFormat if only
    another release reads it.

    >>> import detdata, tempfile, torch
    >>> model = torch.nn.Linear(2, 2)
    >>> a, b = (detdata.Checkpointer(tempfile.mkdtemp(), model=model).save() for _ in range(2))
    >>> diff_checkpoints(a, b).same
    True
    """
    left, right = Parts(open_checkpoint(a)), Parts(open_checkpoint(b))
    meta_a, meta_b = left.record("meta.json"), right.record("meta.json")
    found = [_of_records(left, right, name) for name in ("progress.json", "data.json")]
    found += [_of_parts(left, right, name) for name in _names(left.names, right.names)]
    found += [_of_bytes(left, right, name) for name in _names(left.others, right.others)]
    left.finish()
    right.finish()
    return CheckpointDiff(
        a=left.path,
        b=right.path,
        step_a=left.manifest.step,
        step_b=right.manifest.step,
        parts=tuple(found),
        recorded=diff_trees(_compared(meta_a), _compared(meta_b), "meta.json").differences,
    )


def _names(a: list[str], b: list[str]) -> list[str]:
    return list(dict.fromkeys([*a, *b]))


def _compared(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key not in NOT_COMPARED}


def _of_records(a: Parts, b: Parts, name: str) -> PartDiff:
    return PartDiff(name, diff_trees(a.record(name), b.record(name), name).differences)


def _of_parts(a: Parts, b: Parts, name: str) -> PartDiff:
    if name not in a.manifest.files or name not in b.manifest.files:
        return _one_sided(a, b, name)
    if a.digests(name) == b.digests(name):
        a.check(name)
        b.check(name)
        return PartDiff(name, ())
    found = diff_trees(a.tree(name), b.tree(name), name)
    return PartDiff(name, found.differences, found.tensors, found.differing)


def _of_bytes(a: Parts, b: Parts, name: str) -> PartDiff:
    """Compare a file that this release knows nothing of: the same bytes or not."""
    files = a.manifest.files.get(name), b.manifest.files.get(name)
    if files[0] is None or files[1] is None:
        return _one_sided(a, b, name)
    if files[0] == files[1]:
        return PartDiff(name, ())
    return PartDiff(name, (StateDifference(name, "", "value", files[0].digest, files[1].digest),))


def _one_sided(a: Parts, b: Parts, name: str) -> PartDiff:
    sizes = [f"{side.manifest.files[name].size:,} bytes" if name in side.manifest.files else None for side in (a, b)]
    kind = "only_b" if sizes[0] is None else "only_a"
    return PartDiff(name, (StateDifference(name, "", kind, sizes[0], sizes[1]),))


def _stream(name: str) -> str:
    """Return which random stream a difference is in: python, numpy, generators/mine, accelerators/cuda/[0]."""
    keys = name.split("/")
    return "/".join(keys[: {"generators": 2, "accelerators": 3}.get(keys[0], 1)])
