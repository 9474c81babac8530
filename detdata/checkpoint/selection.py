"""Which checkpoint to resume from: the newest that is whole, read into memory and not yet loaded into anything."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field

from detdata.checkpoint.contents import wrong_contents
from detdata.checkpoint.errors import CheckpointNotFound
from detdata.checkpoint.files import is_of_this_process
from detdata.checkpoint.group import Group
from detdata.checkpoint.remote_path import AnyPath, StoreError
from detdata.checkpoint.saved import Damaged, Saved, read
from detdata.checkpoint.sharded import Like
from detdata.checkpoint.store import Candidate, find, look
from detdata.checkpoint.tensors import Unreadable
from detdata.errors import CheckpointBroken, UnknownFormat

PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # between two looks of ranks that do not see the same


def select(root: AnyPath, step: int | None, group: Group, *, strict: bool, like: Like | None = None) -> Saved | None:
    """Return the newest whole checkpoint of `root`, or that of `step`; None if nothing was ever published.

    Whole means that no rank of `group` finds anything wrong in what it reads; together they read every byte. like: how
    present tensors are sharded.

    Where another process saves to the root meanwhile it looks again, until what it reads is at rest.
    One warning for each broken one passed over (strict: CheckpointBroken instead). Raises CheckpointBroken if none is
    whole, CheckpointNotFound for a step that is not there, UnknownFormat for one that only another release reads, and
    StoreError where a store fails, or this process may not read: an older checkpoint is no answer to that.
    """

    def judge(there: list[Candidate]) -> tuple[_Choice, bool]:
        choice = _choose(_same_everywhere(root, there, group), step, group, strict=strict, like=like)
        return choice, group.size > 1 or (choice.chosen is not None and not choice.broken)  # ranks look equally often

    choice = look(root, judge)
    if step is not None and not choice.candidates:
        steps = sorted({one.step for one in choice.there if one.step is not None})
        raise CheckpointNotFound(f"no checkpoint of step {step} in {root}; there are steps {steps}")
    if choice.chosen is None:
        if choice.broken:
            raise CheckpointBroken(str(root), choice.broken)
        return None
    for path, whys in choice.broken.items():
        warnings.warn(f"passed over the broken checkpoint {path}: {'; '.join(whys)}", stacklevel=3)
    if step is None:
        _warn_of_newer(choice.chosen, [one for one in choice.candidates if str(one.path) not in choice.broken])
    return choice.saved


@dataclass(slots=True)
class _Choice:
    """there: what is published. candidates: of the wanted step. broken: problems of those before the chosen one."""

    there: list[Candidate]
    candidates: list[Candidate]
    chosen: Candidate | None = None
    saved: Saved | None = None
    broken: dict[str, list[str]] = field(default_factory=dict)


def _choose(there: list[Candidate], step: int | None, group: Group, *, strict: bool, like: Like | None) -> _Choice:
    choice = _Choice(there, there if step is None else [one for one in there if one.step == step])
    for candidate in choice.candidates:
        try:
            saved, problems, failed = _open(candidate, group, like)
        except UnknownFormat:
            raise
        except Exception as error:
            if group.size == 1:
                raise
            saved, problems, failed = None, [f"{type(error).__name__}: {error}"], True  # the others wait for this rank
        problems, failed = _of_all_ranks(problems, group, failed=failed)
        if failed:
            raise StoreError(
                f"nothing was loaded, as {candidate.path} could not be read, which does not mean that it is broken: "
                f"{'; '.join(problems)}. To go on from an older one would replace it. Try again when it can be read"
            )
        if saved is not None and not problems:
            choice.chosen, choice.saved = candidate, saved
            break
        choice.broken[str(candidate.path)] = problems
        if strict:
            break
    return choice


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


def _same_everywhere(root: AnyPath, candidates: list[Candidate], group: Group) -> list[Candidate]:
    """Return the candidates; raise CheckpointBroken on all ranks unless every rank finds the same ones, in the end.

    Network file systems show some hosts for seconds what was there before: all ranks look again, half a minute long.
    """
    for pause in (*PAUSES_S, None):
        mine = [[one.path.name, one.order[1]] for one in candidates]
        found = group.all_gather(mine, "looking for checkpoints")
        if all(others == found[0] for others in found):
            return candidates
        if pause is not None:
            time.sleep(pause)
            candidates = find(root)
    names = {
        f"rank {rank}": [f"finds {', '.join(name for name, _ in rows) or 'nothing'}"] for rank, rows in enumerate(found)
    }
    raise CheckpointBroken(f"{root}, which the ranks do not see alike", names)


def _of_all_ranks(problems: list[str], group: Group, *, failed: bool) -> tuple[list[str], bool]:
    found = group.all_gather([problems, failed], "verifying a checkpoint")
    if group.size == 1:
        return problems, failed
    named = [f"rank {rank}: {problem}" for rank, (rows, _) in enumerate(found) for problem in rows]
    return named, any(other for _, other in found)


def _open(candidate: Candidate, group: Group, like: Like | None) -> tuple[Saved | None, list[str], bool]:
    """Return what was read, what is wrong with it, and whether it is the store or this process that fails, not it."""
    if candidate.foreign:  # whole, and newer than what is left: falling back would overwrite it
        raise UnknownFormat(f"{candidate.path}: {candidate.problem}")
    manifest = candidate.manifest
    if manifest is None:
        return None, [candidate.problem], candidate.here
    try:
        saved = read(candidate.path, manifest, group.rank, size=group.size, like=like)
    except Damaged as damaged:
        return None, list(damaged.problems), False
    except StoreError as error:
        return None, [str(error)], True
    except OSError as error:
        return None, [str(error)], is_of_this_process(error)
    except Unreadable as error:
        return None, [str(error)], False
    if saved.progress.global_step != manifest.step:
        wrong = f"progress.json is of step {saved.progress.global_step}, the manifest of step {manifest.step}"
        return None, [wrong], False
    wrongs = wrong_contents(saved)
    return (None, wrongs, False) if wrongs else (saved, [], False)
