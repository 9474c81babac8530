"""Which checkpoint to resume from: the newest that is whole, read into memory and not yet loaded into anything."""

from __future__ import annotations

import warnings
from pathlib import Path

from detdata.checkpoint.errors import CheckpointNotFound
from detdata.checkpoint.saved import Damaged, Saved, read
from detdata.checkpoint.store import Candidate, find
from detdata.checkpoint.tensors import Unreadable
from detdata.errors import CheckpointBroken, UnknownFormat


def select(root: Path, step: int | None, *, rank: int, strict: bool) -> Saved | None:
    """Return the newest whole checkpoint of `root`, or that of `step`; None if nothing was ever published.

    One warning for each broken one passed over (strict: CheckpointBroken instead). Raises CheckpointBroken if none is
    whole, CheckpointNotFound for a step that is not there, UnknownFormat for one that only another release reads.
    """
    candidates = find(root)
    if step is not None:
        there = candidates
        candidates = [candidate for candidate in there if candidate.step == step]
        if not candidates:
            steps = sorted({one.step for one in there if one.step is not None})
            raise CheckpointNotFound(f"no checkpoint of step {step} in {root}; there are steps {steps}")
    broken: dict[str, list[str]] = {}
    for candidate in candidates:
        saved, problems = _open(candidate, rank)
        if saved is not None:
            for path, whys in broken.items():
                warnings.warn(f"passed over the broken checkpoint {path}: {'; '.join(whys)}", stacklevel=3)
            if step is None:
                _warn_of_newer(candidate, [one for one in candidates if str(one.path) not in broken])
            return saved
        broken[str(candidate.path)] = problems
        if strict:
            break
    if broken:
        raise CheckpointBroken(str(root), broken)
    return None


def _warn_of_newer(chosen: Candidate, candidates: list[Candidate]) -> None:
    """Say so if a checkpoint of a lower step was saved later: somebody went back and trained on from there."""
    saved_ns = chosen.order[1]
    later = [one for one in candidates if one.order[1] > saved_ns and one.order[0] < chosen.order[0]]
    if later:
        warnings.warn(
            f"resuming from {chosen.path}, the highest step, but {later[0].path.name} of step {later[0].step} was "
            f"saved later. To go on from there: resume(step={later[0].step}); to keep doing so, move the higher steps "
            "of the run that was given up away",
            stacklevel=4,
        )


def _open(candidate: Candidate, rank: int) -> tuple[Saved | None, list[str]]:
    if candidate.foreign:  # whole, and newer than what is left: falling back would overwrite it
        raise UnknownFormat(f"{candidate.path}: {candidate.problem}")
    manifest = candidate.manifest
    if manifest is None:
        return None, [candidate.problem]
    try:
        saved = read(candidate.path, manifest, rank)
    except Damaged as damaged:
        return None, list(damaged.problems)
    except (Unreadable, OSError) as error:
        return None, [str(error)]
    if saved.progress.global_step != manifest.step:
        return None, [f"progress.json is of step {saved.progress.global_step}, the manifest of step {manifest.step}"]
    return saved, []
