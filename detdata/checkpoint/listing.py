"""What is in a root: the list for people and tools."""

from __future__ import annotations

import os
from dataclasses import dataclass

from detdata.checkpoint.remote_path import AnyPath, RemotePath, as_path
from detdata.checkpoint.store import Candidate, look
from detdata.checkpoint.verify import find_problems


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One published checkpoint. kind: "latest" or "periodic". step: None if its manifest cannot be read."""

    path: AnyPath
    kind: str
    step: int | None
    ok: bool
    problems: tuple[str, ...]


def list_checkpoints(root: str | os.PathLike[str] | RemotePath, *, checksums: bool = True) -> list[CheckpointEntry]:
    """Return the checkpoints published in `root`, newest first: by global step, then by the time of saving.

    root: a folder or URL. checksums: True reads every byte of each; False looks at manifests, names and sizes only.
    A root that is saved to meanwhile is looked at again, until nothing moves.
    One whose step cannot be read comes first, as resume looks at it first. A root that does not exist has none.

    >>> import detdata, tempfile, torch
    >>> root = tempfile.mkdtemp()
    >>> path = detdata.Checkpointer(root, model=torch.nn.Linear(2, 2)).save()
    >>> [(entry.kind, entry.step, entry.ok) for entry in list_checkpoints(root)]
    [('latest', 0, True)]
    """

    def judge(candidates: list[Candidate]) -> tuple[list[CheckpointEntry], bool]:
        entries = [_entry(candidate, checksums) for candidate in candidates]
        return entries, bool(entries) and all(entry.ok for entry in entries)

    return look(as_path(root), judge)


def _entry(candidate: Candidate, checksums: bool) -> CheckpointEntry:
    problems = [candidate.problem]
    if candidate.manifest is not None:
        problems = find_problems(candidate.path, candidate.manifest, checksums=checksums)
    return CheckpointEntry(candidate.path, candidate.kind, candidate.step, not problems, tuple(problems))
