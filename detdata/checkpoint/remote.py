"""Checkpoints in an object store, where nothing can be renamed: the manifest, written last in one step, is the commit.

    root/data/<kind>-<step>-<time>-<random>/…   the files of one save, under a name that no other save has
    root/ckpt_latest/manifest.json              names the place of its files; so does each ckpt_step_<n>/manifest.json

A save uploads its files to a place of its own, looks whether all are there, replaces the manifest by one request, and
only then removes the place that the old manifest named. Whatever it is cut at, each manifest names whole files. A place
that no manifest names is what a cut save left: the next save removes it, once it is an hour old. There is no lock: two
runs in one root replace each other's latest checkpoint, but never mix or tear one; the later one is warned.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from detdata.checkpoint.files import FileRecord, read_bounded, write_file
from detdata.checkpoint.manifest import (
    MANIFEST,
    MAX_BYTES,
    Manifest,
    ManifestError,
    is_member_name,
    parse_manifest,
    place_of,
)
from detdata.checkpoint.remote_path import RemotePath, StoreError
from detdata.checkpoint.store import PREVIOUS, folder_name, saving_time
from detdata.errors import UnknownFormat

DATA = "data"
OLD_S = 3600  # seconds after which a place that no manifest names is no save under way
_BEGUN = re.compile(r"[a-z]+-[0-9]+-([0-9a-f]{8,16})-[0-9a-f]{16}")
_given_up: set[tuple[int, str]] = set()  # process, place of a save that failed before its commit
_named: set[str] = set()  # places that a manifest was seen to name: no need to look again at each save
_sent: dict[tuple[int, str], set[str]] = {}  # process, manifest's folder -> the places that it may name by our doing


class RemoteStage:
    """A checkpoint in the making: a place in `root` that `publish` makes a manifest name.

    Opening one removes what cut saves have left. Raises OSError.
    """

    def __init__(self, root: RemotePath, kind: str, step: int) -> None:
        sweep(root)
        self._root = root
        self._files: dict[str, FileRecord] = {}
        self._sizes: dict[str, int] | None = None
        self._committing = False
        self.place = f"{DATA}/{kind}-{step}-{int(time.time()):08x}-{os.urandom(8).hex()}"
        self.folder = root / self.place

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        """Add the file `name`, filled by `write`; in the store when this returns."""
        self._files[name] = write_file(self.folder / name, write)

    def add(self, name: str, record: FileRecord) -> None:
        """Count in a file that another process has written to the place."""
        self._files[name] = record

    def has(self, name: str) -> bool:
        """Whether the file `name` is counted in."""
        return name in self._files

    def holds(self, name: str, size: int) -> bool:
        """Whether the file `name`, which another process has written, is there. One listing for all of them."""
        if self._sizes is None:
            self._sizes = self.folder.sizes()
        return self._sizes.get(name) == size

    @property
    def size_bytes(self) -> int:
        """The bytes of all files so far."""
        return sum(file.size for file in self._files.values())

    def publish(self, kind: str, step: int) -> RemotePath:
        """Make the manifest name the place; remove what it named before. Raises OSError.

        Every file must be there, with its size: a save that went on for hours beside another run may have been swept.
        """
        sizes = self.folder.sizes()
        gone = sorted(name for name, file in self._files.items() if sizes.get(name) != file.size)
        if gone:
            raise StoreError(f"{self.folder}: {', '.join(gone)} was written and is not there any more")
        target = self._root / folder_name(kind, step)
        old = _published(target)
        manifest = Manifest(step, kind, saving_time(self._root, step), self._files, self.place)
        self._committing = True
        ours = _sent.setdefault((os.getpid(), target.url), set())
        another = kind == "latest" and old is not None and len(ours) > 0 and old.place not in ours
        ours.add(self.place)
        (target / MANIFEST).put(manifest.to_bytes())
        ours.intersection_update({self.place})
        _named.add(self.folder.url)
        if old is not None:
            _remove_files(target, old)
            if another:
                warnings.warn(
                    f"another run has saved to {target} since this one did: two runs in one root replace each other's "
                    "checkpoints. Give each a root of its own, or end one of them",
                    stacklevel=2,
                )
        return target

    def abandon(self) -> None:
        """Remove the files, unless a manifest names them, or may: one that was sent and not answered may still come."""
        if self._committing:
            return
        _given_up.add((os.getpid(), self.folder.url))
        with suppress(OSError):
            _empty(self.folder)


def sweep(root: RemotePath) -> None:
    """Remove the places that no manifest names and that no save is at work on. What cannot be removed is a warning.

    Those are the ones that this process has given up, and those that are an hour old by this machine's clock. Raises
    StoreError where the store cannot be asked.
    """
    left: dict[str, list[RemotePath]] = {}
    for path in (root / DATA).iterdir():
        begun, found = _BEGUN.fullmatch(path.name), place_of(f"{DATA}/{path.name}")
        if begun is None or found is None or path.url in _named:
            continue
        given_up = (os.getpid(), path.url) in _given_up
        if given_up or time.time() - int(begun[1], 16) > OLD_S:
            left.setdefault(folder_name(*found), []).append(path)
    try:
        for name, places in left.items():
            named = _all_named(root, name)
            if named is None:
                continue
            _named.update(named)
            for path in places:
                if path.url not in named:
                    _empty(path)
                    _given_up.discard((os.getpid(), path.url))
    except OSError as error:
        warnings.warn(
            f"could not remove what cut saves left in {root}: {error}; the next save tries again", stacklevel=3
        )


def discard(path: RemotePath) -> None:
    """Remove a published checkpoint: the manifest first, so that none is found half-removed. Failure is a warning."""
    try:
        manifest = _published(path)
        path.remove([MANIFEST])
        if manifest is not None:
            _remove_files(path, manifest)
    except OSError as error:
        warnings.warn(f"could not remove the old checkpoint {path}: {error}; the next save tries again", stacklevel=3)


def _published(folder: RemotePath) -> Manifest | None:
    """Return the manifest in `folder`; None where it is missing, or says nothing that could be relied on."""
    try:
        return parse_manifest(read_bounded(folder / MANIFEST, MAX_BYTES))
    except (FileNotFoundError, ManifestError, UnknownFormat):
        return None


def _all_named(root: RemotePath, name: str) -> set[str] | None:
    """Return the places that the manifests of a folder name; None where one is broken, and may name any. OSError."""
    found = set()
    for folder in (root / name, root / (name + PREVIOUS)):
        try:
            manifest = parse_manifest(read_bounded(folder / MANIFEST, MAX_BYTES))
        except FileNotFoundError:
            continue
        except (ManifestError, UnknownFormat):
            return None
        if manifest.place is not None:
            found.add((root / manifest.place).url)
    return found


def _remove_files(folder: RemotePath, manifest: Manifest) -> None:
    """Remove the files of a manifest that is not there any more. Failure is a warning."""
    members = folder if manifest.place is None else folder.parent / manifest.place
    _named.discard(members.url)
    try:
        members.remove(manifest.files)
    except OSError as error:
        _given_up.add((os.getpid(), members.url))
        warnings.warn(f"could not remove the old files {members}: {error}; the next save tries again", stacklevel=4)


def _empty(place: RemotePath) -> None:
    """Remove every object in a place whose name could be one of ours."""
    place.remove([name for name in place.sizes() if is_member_name(name)])
