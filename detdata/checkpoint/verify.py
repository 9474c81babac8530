"""Whether a checkpoint folder is whole: every byte of it is what was written, and nothing else is there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detdata.checkpoint.errors import CheckpointNotFound
from detdata.checkpoint.files import FileRecord, hash_file, is_of_this_process, open_regular
from detdata.checkpoint.manifest import MANIFEST, Manifest, ManifestError, read_manifest
from detdata.checkpoint.remote_path import AnyPath, RemotePath, StoreError, as_path
from detdata.errors import UnknownFormat

_LOOKS = 20
_SILLY = re.compile(r"\.nfs[0-9A-Fa-f]{1,64}")


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify_checkpoint` found. path; step: None if unreadable; files, size_bytes: by the manifest; problems."""

    path: AnyPath
    step: int | None
    files: int
    size_bytes: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the checkpoint is whole."""
        return not self.problems

    def __str__(self) -> str:
        step = "unknown step" if self.step is None else f"step {self.step}"
        head = f"{self.path}: {step}, {self.files} files, {self.size_bytes} bytes"
        if self.ok:
            return f"{head}: whole"
        return "\n".join([f"{head}: {len(self.problems)} problem(s)", *(f"  - {problem}" for problem in self.problems)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "step": self.step,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "problems": list(self.problems),
        }


def verify_checkpoint(path: str | os.PathLike[str] | RemotePath) -> Report:
    """Check one checkpoint folder byte for byte against its manifest, without loading or changing anything.

    path: the folder or URL (`root/ckpt_latest`, `root/ckpt_step_100`). Returns a Report: `.ok`, `.problems`, `str()`
    for people, `.to_dict()` for machines. Reads every byte once; where a save replaces the folder meanwhile, it looks
    at the new one. Raises FileNotFoundError if nothing is there, OSError where a store cannot be reached.

    >>> import detdata, tempfile, torch
    >>> root = tempfile.mkdtemp()
    >>> report = verify_checkpoint(detdata.Checkpointer(root, model=torch.nn.Linear(2, 2)).save())
    >>> report.ok, report.step
    (True, 0)
    """
    folder = as_path(path, "path")
    for _ in range(_LOOKS):
        before = _stands(folder)
        report = _verify(folder) if before is not None else None
        if (report is not None and report.ok) or (_stands(folder) == before and not _is_moving(folder, before)):
            break
    if report is None:
        raise CheckpointNotFound(f"there is no checkpoint folder {folder}")
    return report


def _stands(folder: AnyPath) -> object:
    """What tells a checkpoint from the next one under the same name; None if nothing is there."""
    if isinstance(folder, RemotePath):
        try:
            return read_manifest(folder)
        except (ManifestError, UnknownFormat) as error:
            return str(error) if is_there(folder) else None
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def _is_moving(folder: AnyPath, stands: object) -> bool:
    """Whether a writer has just put a checkpoint aside, and its successor has yet to get the name."""
    if stands is not None or isinstance(folder, RemotePath):
        return False
    time.sleep(0.01)  # between two renames
    return os.path.lexists(folder) or os.path.lexists(folder.with_name(folder.name + ".previous"))


def _verify(folder: AnyPath) -> Report:
    try:
        manifest = read_manifest(folder)
    except (ManifestError, UnknownFormat) as error:
        return Report(folder, None, 0, 0, (str(error),))
    size = sum(file.size for file in manifest.files.values())
    return Report(folder, manifest.step, len(manifest.files), size, tuple(find_problems(folder, manifest)))


def is_there(path: AnyPath) -> bool:
    """Whether there is anything at `path`, a broken link too."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def find_problems(folder: AnyPath, manifest: Manifest, *, checksums: bool = True) -> list[str]:
    """Return what is wrong with the files of `folder`, one line each; empty if it is whole.

    checksums: False compares names and sizes only. Raises StoreError.
    """
    members = manifest.members_in(folder)
    for link in (folder, members):
        if isinstance(link, Path) and link.is_symlink():
            return [f"{link.name} is a symbolic link, not a folder"]
    problems = []
    named = folder.name.removesuffix(".previous").removeprefix("ckpt_step_")
    if named.isdecimal() and int(named) != manifest.step:
        problems.append(f"the folder is named for step {named}, its manifest is of step {manifest.step}")
    sizes = members.sizes() if isinstance(members, RemotePath) else None
    for name, file in sorted(manifest.files.items()):
        problems += _check(members / name, file, checksums, sizes)
    try:
        found = {path.name for path in members.iterdir()} if sizes is None else set(sizes)
    except OSError as error:
        return [*problems, f"the folder cannot be listed: {error}"]
    more = sorted(name for name in found - {MANIFEST, *manifest.files} if not is_in_use_elsewhere(name))
    return problems + [f"{name} is not part of the checkpoint" for name in more]


def is_in_use_elsewhere(name: str) -> bool:
    """Whether a file is what a client of NFS leaves of a removed file that somebody has open: it goes by itself."""
    return _SILLY.fullmatch(name) is not None


def _check(path: AnyPath, expected: FileRecord, checksums: bool, sizes: Mapping[str, int] | None) -> list[str]:
    try:
        if sizes is not None and path.name not in sizes:
            return [f"{path.name} is missing"]
        size = sizes[path.name] if sizes is not None else os.lstat(str(path)).st_size
        if size != expected.size:
            return [f"{path.name} has {size} bytes, {expected.size} were written"]
        if not checksums:
            return []
        found = hash_file(path)
    except FileNotFoundError:
        return [f"{path.name} is missing"]
    except StoreError:
        raise
    except OSError as error:
        return [f"{path.name} cannot be read: {error}"]
    return compare_records(path.name, found, expected)


def compare_records(name: str, found: FileRecord, expected: FileRecord) -> list[str]:
    """Return what is wrong with a file that was read, one line; empty if it is what was written."""
    if found.size != expected.size:
        return [f"{name} has {found.size} bytes, {expected.size} were written"]
    if found != expected:
        return [f"{name} is altered: its digest is {found.digest}, {expected.digest} was written"]
    return []


def whole(folder: Path) -> bool:
    """Whether there is a whole checkpoint in `folder`, or one that only another release can judge. Reads every byte.

    Raises OSError where it is this process that may or can not read it: what is not whole is removed.
    """
    try:
        manifest = read_manifest(folder)
        if not find_problems(folder, manifest):
            return True
    except ManifestError as error:
        if error.here:
            raise OSError(str(error)) from error
        return False
    except UnknownFormat:
        return True
    for name in manifest.files:
        try:
            open_regular(folder / name).close()
        except OSError as error:
            if is_of_this_process(error):
                raise
    return False


def require(manifest: Manifest, names: Mapping[str, str]) -> list[str]:
    """Return a problem for each of `names` (name -> what it holds) that the manifest does not list."""
    return [f"{name} ({what}) is not in the manifest" for name, what in names.items() if name not in manifest.files]
