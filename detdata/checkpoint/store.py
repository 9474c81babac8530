"""The folder of checkpoints: how one is published, found, and removed, so that a whole one exists at every instant.

    write .tmp-…/ (each file synced) · manifest · sync folder · rename · sync root · remove what was replaced

A folder cannot replace another in one step, so the old one is renamed aside (`ckpt_latest.previous`) before the new one
takes its name; whoever looks between the two finds it there. `.previous` counts only where the folder it gave way to is
missing or broken. What a cut save leaves is ignored by the finder and removed by the next save. One process writes to
a root at a time (detdata.checkpoint.lock).
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from detdata.checkpoint.files import FileRecord, remove_tree, write_file
from detdata.checkpoint.manifest import MANIFEST, Manifest, ManifestError, read_manifest
from detdata.checkpoint.verify import whole
from detdata.disk import sync_folder
from detdata.errors import UnknownFormat

LATEST = "ckpt_latest"
PERIODIC = "ckpt_step_"
PREVIOUS = ".previous"
TEMPORARY = ".tmp-"
_NAME = re.compile(rf"(?:{LATEST}|{PERIODIC}(0|[1-9][0-9]{{0,18}}))")
_counter = itertools.count()


def folder_name(kind: str, step: int) -> str:
    """Return the name of the folder that a checkpoint goes by."""
    return LATEST if kind == "latest" else f"{PERIODIC}{step}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A published folder. manifest is None where `problem` says why; step is then that of its name, or None.

    foreign: the manifest is sound but of a format that this release does not know.
    """

    path: Path
    kind: str
    step: int | None
    manifest: Manifest | None
    problem: str
    foreign: bool = False

    @property
    def order(self) -> tuple[float, int]:
        """The key by which the newest is found: global step, then the time of saving. Unknown counts as newest."""
        saved = self.manifest.saved_ns if self.manifest is not None else 0
        return (math.inf if self.step is None else self.step, saved)


def find(root: Path) -> list[Candidate]:
    """Return what is published in `root`, newest first: by global step, then by time of saving. Reads manifests only.

    A `.previous` folder comes right after the one that it gave way to, or takes its place if that is missing.
    """
    if not root.exists():
        return []
    names = {path.name for path in root.iterdir()}
    stems = {name.removesuffix(PREVIOUS) for name in names}
    chains = []
    for stem in stems:
        match = _NAME.fullmatch(stem)
        if match is None:
            continue
        step = None if match[1] is None else int(match[1])
        chains.append([_look(root / name, step) for name in (stem, stem + PREVIOUS) if name in names])
    chains.sort(key=lambda chain: chain[0].order, reverse=True)
    return [candidate for chain in chains for candidate in chain]


def _look(path: Path, step: int | None) -> Candidate:
    kind = "latest" if step is None else "periodic"
    try:
        manifest = read_manifest(path)
    except ManifestError as error:
        return Candidate(path, kind, step, None, str(error))
    except UnknownFormat as error:
        return Candidate(path, kind, step, None, str(error), foreign=True)
    return Candidate(path, kind, manifest.step if step is None else step, manifest, "")


class Stage:
    """A checkpoint in the making: a temporary folder in `root` that `publish` turns into a checkpoint.

    Opening one removes what cut saves have left. Raises OSError.
    """

    def __init__(self, root: Path) -> None:
        make_root(root)
        sweep(root)
        self._root = root
        self._files: dict[str, FileRecord] = {}
        self.folder = _temporary(root)
        self.folder.mkdir()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Add the file `name`, filled by `write`, synced to disk."""
        self._files[name] = write_file(self.folder / name, write)

    def publish(self, kind: str, step: int) -> Path:
        """Give the folder its manifest and its name, on disk when this returns; remove what it replaces."""
        manifest = Manifest(step, kind, time.time_ns(), self._files)
        write_file(self.folder / MANIFEST, lambda file: file.write(manifest.to_bytes()))
        sync_folder(self.folder)
        target = self._root / folder_name(kind, step)
        aside = target.with_name(target.name + PREVIOUS)
        replaced = os.path.lexists(target)
        if replaced:
            target.rename(aside)
        try:
            self.folder.rename(target)
        except OSError:
            if replaced:
                with contextlib.suppress(OSError):  # if it cannot go back, the finder takes it where it is
                    aside.rename(target)
            raise
        sync_folder(self._root)
        if replaced:
            discard(aside)
        return target

    def abandon(self) -> None:
        """Remove the temporary folder, if it can be removed."""
        with contextlib.suppress(OSError):
            if self.folder.exists():
                remove_tree(self.folder)


def make_root(root: Path) -> None:
    """Make the folder of checkpoints, on disk when this returns, if it is not there. Raises OSError."""
    if not root.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        sync_folder(root.parent)


def sweep(root: Path) -> None:
    """Remove what cut saves left in `root`, keeping the whole one of each pair. Raises OSError.

    Reads every byte of a checkpoint only where its `.previous` is still there.
    """
    for path in sorted(root.iterdir()):
        name = path.name
        if name.startswith(TEMPORARY):
            remove_tree(path)
        elif name.endswith(PREVIOUS) and _NAME.fullmatch(name.removesuffix(PREVIOUS)):
            target = root / name.removesuffix(PREVIOUS)
            if os.path.lexists(target):
                if whole(target) or not whole(path):
                    discard(path)
                    continue
                discard(target)
            path.rename(target)
            sync_folder(root)


def discard(path: Path) -> None:
    """Remove a published folder: renamed first, so that a half-removed one is never found. Failure is a warning."""
    try:
        hidden = _temporary(path.parent)
        path.rename(hidden)
        remove_tree(hidden)
    except OSError as error:
        warnings.warn(f"could not remove the old checkpoint {path}: {error}; the next save tries again", stacklevel=2)


def retain(root: Path, keep: int, protected: Collection[Path]) -> list[Path]:
    """Remove all periodic checkpoints but the `keep` of the highest steps and those `protected`; return the removed."""
    steps = periodic_steps(root)
    old = sorted(steps, key=steps.__getitem__, reverse=True)[keep:]
    removed = [path for path in old if path not in protected]
    for path in removed:
        discard(path)
    return removed


def periodic_steps(root: Path) -> dict[Path, int]:
    """Return the step of each periodic checkpoint in `root`, by the folders' names alone."""
    matches = ((path, _NAME.fullmatch(path.name)) for path in root.iterdir())
    return {path: int(match[1]) for path, match in matches if match is not None and match[1] is not None}


def _temporary(root: Path) -> Path:
    return root / f"{TEMPORARY}{os.getpid()}-{time.time_ns()}-{next(_counter)}"
