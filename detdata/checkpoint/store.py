"""The folder of checkpoints: how one is published, found, and removed, so that a whole one exists at every instant.

    write .tmp-…/ (each file synced) · manifest · sync folder · rename · sync root · remove what was replaced

A folder cannot replace another in one step, so the old one is renamed aside (`ckpt_latest.previous`) before the new one
takes its name; whoever looks between the two finds it there. `.previous` counts only where the folder it gave way to is
missing or broken. What a cut save leaves is ignored by the finder and removed by the next save. One process writes to
a root at a time (detdata.checkpoint.lock).

What a killed process did last may not be on the disk yet, though everybody sees it: so nothing is removed before the
root is synced. Network file systems: a reply that was lost makes a rename that was done report a missing source, and
a file that somebody still reads stays behind as `.nfs…`; neither fails a save.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from detdata.checkpoint import lock
from detdata.checkpoint.errors import CheckpointNotFound
from detdata.checkpoint.files import FileRecord, remove_tree, write_file
from detdata.checkpoint.manifest import MANIFEST, Manifest, ManifestError, read_manifest
from detdata.checkpoint.remote_path import AnyPath, RemotePath
from detdata.checkpoint.verify import is_in_use_elsewhere, whole
from detdata.disk import sync_folder
from detdata.errors import UnknownFormat

LATEST = "ckpt_latest"
PERIODIC = "ckpt_step_"
PREVIOUS = ".previous"
TEMPORARY = ".tmp-"
_NAME = re.compile(rf"(?:{LATEST}|{PERIODIC}(0|[1-9][0-9]{{0,18}}))")
_LOOKS = 20
_T = TypeVar("_T")
_counter = itertools.count()
_known: set[Path] = set()  # roots that this process has found or made, and whose paths it has synced


def folder_name(kind: str, step: int) -> str:
    """Return the name of the folder that a checkpoint goes by."""
    return LATEST if kind == "latest" else f"{PERIODIC}{step}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A published folder. manifest is None where `problem` says why; step is then that of its name, or None.

    foreign: the manifest is sound but of a format that this release does not know. here: it is this process that may or
    can not read it.
    """

    path: AnyPath
    kind: str
    step: int | None
    manifest: Manifest | None
    problem: str
    foreign: bool = False
    here: bool = False

    @property
    def order(self) -> tuple[float, int]:
        """The key by which the newest is found: global step, then the time of saving. Unknown counts as newest."""
        saved = self.manifest.saved_ns if self.manifest is not None else 0
        return (math.inf if self.step is None else self.step, saved)


def find(root: AnyPath) -> list[Candidate]:
    """Return what is published in `root`, newest first: by global step, then by time of saving. Reads manifests only.

    A `.previous` folder comes right after the one that it gave way to, or takes its place if that is missing.
    """
    try:
        names = {path.name for path in root.iterdir()}
    except FileNotFoundError:
        if isinstance(root, Path) and root.is_symlink():  # no reason to start from nothing
            raise CheckpointNotFound(f"{root} is a link to {os.readlink(root)}, which is not there") from None
        return []
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


def look(root: AnyPath, judge: Callable[[list[Candidate]], tuple[_T, bool]]) -> _T:
    """Return the first part of what `judge` says of `find(root)`; its second part is whether that is as it should be.

    If it is not, and the root has changed meanwhile, a writer has moved things under the reader, who looks again.
    """
    for _ in range(_LOOKS):
        before = None if isinstance(root, RemotePath) else _places(root)
        found = find(root)
        result, sound = judge(found)
        if sound:
            break
        if isinstance(root, RemotePath):
            if found == find(root):  # every save has a place of its own there, which its manifest names
                break
        elif before is not None and _places(root) == before:
            break
    return result


def _places(root: Path) -> dict[str, tuple[int, int]] | None:
    """Which folder stands under which name, and when it was last moved; None if they move right now."""
    places = {}
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return {}
    try:
        for name in names:
            if _NAME.fullmatch(name.removesuffix(PREVIOUS)):
                found = os.lstat(root / name)
                places[name] = found.st_ino, found.st_ctime_ns
    except FileNotFoundError:
        return None
    return places


def _look(path: AnyPath, step: int | None) -> Candidate:
    kind = "latest" if step is None else "periodic"
    try:
        manifest = read_manifest(path)
    except ManifestError as error:
        return Candidate(path, kind, step, None, str(error), here=error.here)
    except UnknownFormat as error:
        return Candidate(path, kind, step, None, str(error), foreign=True)
    return Candidate(path, kind, manifest.step if step is None else step, manifest, "")


class Stage:
    """A checkpoint in the making: a temporary folder in `root` that `publish` turns into a checkpoint.

    Opening one removes what cut saves have left. Raises OSError.
    """

    def __init__(self, root: Path) -> None:
        make_root(root)
        lock.renew(root)
        sweep(root)
        self._root = root
        self._files: dict[str, FileRecord] = {}
        self.folder = _temporary(root)
        self.folder.mkdir()

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Add the file `name`, filled by `write`, synced to disk."""
        self._files[name] = write_file(self.folder / name, write)

    def add(self, name: str, record: FileRecord) -> None:
        """Count in a file that another process has written into the folder and synced."""
        self._files[name] = record

    @property
    def place(self) -> str:
        """Where in the root the other ranks are to write."""
        return self.folder.name

    def has(self, name: str) -> bool:
        """Whether the file `name` is counted in."""
        return name in self._files

    def holds(self, name: str, size: int) -> bool:
        """Whether the file `name`, which another process has written, is there."""
        path = self.folder / name
        return path.exists() and os.lstat(path).st_size == size

    @property
    def size_bytes(self) -> int:
        """The bytes of all files so far."""
        return sum(file.size for file in self._files.values())

    def publish(self, kind: str, step: int) -> Path:
        """Give the folder its manifest and its name, on disk when this returns; remove what it replaces."""
        manifest = Manifest(step, kind, saving_time(self._root, step), self._files)
        write_file(self.folder / MANIFEST, lambda file: file.write(manifest.to_bytes()))
        sync_folder(self.folder)
        target = self._root / folder_name(kind, step)
        aside = target.with_name(target.name + PREVIOUS)
        replaced = os.path.lexists(target)
        if replaced:
            _rename(target, aside)
        try:
            _rename(self.folder, target)
        except OSError:
            if replaced:
                with contextlib.suppress(OSError):  # if it cannot go back, the finder takes it where it is
                    _rename(aside, target)
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


def saving_time(root: AnyPath, step: int) -> int:
    """Return the wall clock in ns, but later than what is there of the same step: a clock may have been set back."""
    now = time.time_ns()
    for name in (folder_name("latest", step), folder_name("periodic", step)):
        with contextlib.suppress(ManifestError, UnknownFormat):
            there = read_manifest(root / name)
            if there.step == step:
                now = max(now, there.saved_ns + 1)
    return now


def make_root(root: Path) -> None:
    """Make the folder of checkpoints if it is not there. When this returns, its path is on disk. Raises OSError.

    The first time in a process every folder above it is synced too: whoever made them may not have. A root that was
    there and has gone is made again, with a warning: the checkpoints in it are lost, the run is not.
    """
    root = root.absolute()
    there = root.is_dir()
    if there and root in _known:
        return
    if root in _known:
        warnings.warn(
            f"the folder of checkpoints {root} was removed or moved while this run saved to it. It is made anew; "
            "what had been saved there is not in it",
            stacklevel=2,
        )
        _known.discard(root)
    made = {folder for folder in (root, *root.parents) if not folder.is_dir()}
    root.mkdir(parents=True, exist_ok=True)
    for folder in (root, *root.parents[:-1]):
        try:
            sync_folder(folder.parent)
        except OSError:
            if folder in made:
                raise  # what others have made is theirs to sync, where we may not
    _known.add(root)


def sweep(root: Path) -> None:
    """Remove what cut saves left in `root`, keeping the whole one of each pair. Raises OSError.

    Reads every byte of a checkpoint only where its `.previous` is still there.
    """
    names = sorted(path.name for path in root.iterdir())
    aside = [name for name in names if name.endswith(PREVIOUS) and _NAME.fullmatch(name.removesuffix(PREVIOUS))]
    if aside:
        sync_folder(root)  # the process that was killed may not have: on disk, what is aside may still be in place
    for name in names:
        if name.startswith(TEMPORARY):
            _remove(root / name)
    for name in aside:
        path, target = root / name, root / name.removesuffix(PREVIOUS)
        if os.path.lexists(target):
            if whole(target) or not whole(path):
                discard(path)
                continue
            discard(target)
        _rename(path, target)
        sync_folder(root)


def discard(path: Path) -> None:
    """Remove a published folder: renamed first, so that a half-removed one is never found. Failure is a warning."""
    hidden = _temporary(path.parent)
    try:
        _rename(path, hidden)
    except OSError as error:
        _warn_of_failure(path, error)
    else:
        _remove(hidden)


def _remove(path: Path) -> None:
    """Remove what nobody looks at any more. Failure is a warning, unless all that is left is in use elsewhere."""
    try:
        remove_tree(path)
    except FileNotFoundError:  # removed already, and the reply was lost
        pass
    except OSError as error:
        if not _is_in_use(path):
            _warn_of_failure(path, error)


def _is_in_use(path: Path) -> bool:
    """Whether all that is in the folder `path` are files that a client of a network file system holds open."""
    try:
        return all(is_in_use_elsewhere(name) for name in os.listdir(path))
    except OSError:
        return False


def _warn_of_failure(path: Path, error: OSError) -> None:
    warnings.warn(f"could not remove the old checkpoint {path}: {error}; the next save tries again", stacklevel=3)


def _rename(source: Path, target: Path) -> None:
    """Rename a folder. Raises OSError, but not where it was done and only the reply was lost."""
    before = os.lstat(source)
    try:
        source.rename(target)
    except FileNotFoundError:
        if not target.exists() or not os.path.samestat(before, os.lstat(target)):
            raise


def periodic_steps(root: AnyPath) -> dict[AnyPath, int]:
    """Return the step of each periodic checkpoint in `root`, by the folders' names alone."""
    matches = ((path, _NAME.fullmatch(path.name)) for path in root.iterdir())
    return {path: int(match[1]) for path, match in matches if match is not None and match[1] is not None}


def _temporary(root: Path) -> Path:
    return root / f"{TEMPORARY}{os.getpid()}-{time.time_ns()}-{next(_counter)}"
