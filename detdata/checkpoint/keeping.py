"""What a save leaves in a root, and what is said of checkpoints in it that are another run's."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection

from detdata.checkpoint.manifest import ManifestError, read_manifest
from detdata.checkpoint.place import retain
from detdata.checkpoint.policy import SavePolicy
from detdata.checkpoint.remote_path import AnyPath
from detdata.checkpoint.store import LATEST, periodic_steps
from detdata.errors import UnknownFormat


def retain_periodic(root: AnyPath, policy: SavePolicy, best: Collection[int], kept: Collection[AnyPath]) -> None:
    """Remove the periodic checkpoints that the policy does not keep. best: their steps always stay; so does `kept`.

    Failure is a warning: the save that this follows is on disk.
    """
    keep, every = policy.keep_periodic, policy.keep_every_steps
    if keep is None:
        return
    try:
        steps = periodic_steps(root)
        for_ever = {path for path, step in steps.items() if step in best or (every is not None and step % every == 0)}
        retain(root, keep, {*kept, *for_ever})
    except OSError as error:
        warnings.warn(f"could not look for old checkpoints in {root}: {error}; the next save tries again", stacklevel=5)


def warn_of_higher(root: AnyPath, step: int) -> bool:
    """Warn if `root` holds periodic checkpoints of higher steps than the one just saved; return whether it did."""
    try:
        higher = sorted((other, path.name) for path, other in periodic_steps(root).items() if other > step)
    except OSError:  # a first save behind the training has yet to make the root
        return False
    if higher:
        names = ", ".join(name for _, name in higher[:3])
        warnings.warn(
            f"{root} holds checkpoints of higher steps than the {step} just saved ({names}): "
            "resume() takes the highest step. If they are an old run's, move them away",
            stacklevel=5,
        )
    return bool(higher)


def warn_of_unresumed(root: AnyPath, step: int) -> None:
    """Warn if `root` holds a latest checkpoint of a higher step, which a run that did not resume would replace."""
    with contextlib.suppress(OSError, ManifestError, UnknownFormat):
        there = read_manifest(root / LATEST)
        if there.step > step:
            warnings.warn(
                f"{root} holds {LATEST} of global step {there.step}, and this run has not called resume(): it trains "
                f"from the beginning, and its saves replace that checkpoint. Call resume() before the first step, or "
                "give this run a root of its own",
                stacklevel=4,
            )
