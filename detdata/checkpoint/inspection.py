"""Looking at checkpoints without loading them: which one, its three records, what its files are; no torch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from detdata.checkpoint.errors import CheckpointNotFound
from detdata.checkpoint.files import DIGEST, FileRecord, read_bounded
from detdata.checkpoint.listing import CheckpointEntry, list_checkpoints
from detdata.checkpoint.manifest import MANIFEST, Manifest, ManifestError, read_manifest
from detdata.checkpoint.members import MAX_JSON_BYTES, RECORDS, REQUIRED, rank_of
from detdata.checkpoint.remote_path import AnyPath, RemotePath, StoreError, as_path
from detdata.checkpoint.store import LATEST, PERIODIC, PREVIOUS, Candidate, look
from detdata.checkpoint.verify import compare_records, find_problems, is_there, require, verify_checkpoint
from detdata.errors import ArgumentValueError, CheckpointBroken, UnknownFormat


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint that was found. passed_over: path -> problems of those before it in a root, all of them broken.

    verified: whether every byte of it was read; else names and sizes are as they were written.
    """

    path: AnyPath
    manifest: Manifest
    passed_over: Mapping[str, list[str]] = field(default_factory=dict)
    verified: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint of a root. What cannot be read is None. foreign: only another release can judge it."""

    path: AnyPath
    kind: str
    step: int | None
    epoch: int | None
    consumed_samples: int | None
    world_size: int | None
    files: int | None
    size_bytes: int | None
    saved_ns: int | None
    problems: tuple[str, ...]
    foreign: bool

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            "name": self.path.name,
            "path": str(self.path),
            "kind": self.kind,
            "step": self.step,
            "epoch": self.epoch,
            "consumed_samples": self.consumed_samples,
            "world_size": self.world_size,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "saved": when(self.saved_ns),
            "saved_ns": self.saved_ns,
            "ok": not self.problems,
            "foreign": self.foreign,
            "problems": list(self.problems),
        }


def when(saved_ns: int | None) -> str | None:
    """Return nanoseconds since 1970 as the date and time in UTC.

    >>> when(0)
    '1970-01-01T00:00:00Z'
    """
    if saved_ns is None:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(saved_ns // 10**9))
    except (OverflowError, ValueError, OSError):  # no year that this machine knows
        return f"{saved_ns} ns after 1970"


def is_checkpoint(folder: AnyPath) -> bool:
    """Whether `folder` is, by its name or its manifest, one checkpoint and no root of several."""
    stem = folder.name.removesuffix(PREVIOUS)
    named = stem == LATEST or (stem.startswith(PERIODIC) and stem.removeprefix(PERIODIC).isdecimal())
    return named or is_there(folder / MANIFEST)


def rows(root: AnyPath, *, checksums: bool) -> list[Row]:
    """Return the checkpoints of `root`, newest first. checksums: read every byte, not names and sizes only.

    Raises CheckpointNotFound where there is no such folder, ValueError where it is itself a checkpoint.
    """
    check_folder(root)
    if is_checkpoint(root):
        raise ArgumentValueError(
            f"{root} is one checkpoint, and a folder of checkpoints is expected: name the folder around it, or see "
            "`detdata ckpt show`"
        )
    return [_row(entry) for entry in list_checkpoints(root, checksums=checksums)]


def check_folder(path: AnyPath) -> None:
    """Raise CheckpointNotFound unless `path` is a folder."""
    if not is_there(path):
        raise CheckpointNotFound(f"there is no folder {path}")
    if not path.is_dir():
        raise CheckpointNotFound(f"{path} is no folder: name a checkpoint, or the folder with the checkpoints of a run")


def open_checkpoint(path: str | os.PathLike[str] | RemotePath) -> Opened:
    """Return the checkpoint at `path`; of a root the one that a resume would take.

    Of a folder reads the manifest, of a root every byte of the checkpoints up to the first whole one. Raises
    CheckpointNotFound, CheckpointBroken, UnknownFormat if only another release reads it.
    """
    folder = as_path(path, "path")
    check_folder(folder)
    if not is_checkpoint(folder):
        return look(folder, lambda candidates: _newest(folder, candidates))
    try:
        return Opened(folder, read_manifest(folder))
    except ManifestError as error:
        raise CheckpointBroken(str(folder), {str(folder): [str(error)]}) from None
    except UnknownFormat as error:
        raise UnknownFormat(f"{folder}: {error}") from None


def verified_rows(path: AnyPath) -> list[Row]:
    """Return a row for the checkpoint at `path`, or for each one in the root `path`; every byte was read.

    Raises CheckpointNotFound where there is none.
    """
    check_folder(path)
    if is_checkpoint(path):
        report = verify_checkpoint(path)
        kind = "latest" if path.name.removesuffix(PREVIOUS) == LATEST else "periodic"
        return [_row(CheckpointEntry(path, kind, report.step, report.ok, report.problems))]
    found = rows(path, checksums=True)
    if not found:
        raise CheckpointNotFound(f"there is no checkpoint in {path}")
    return found


def read_record(folder: AnyPath, manifest: Manifest, name: str) -> dict[str, Any]:
    """Return the JSON object in `name`, verified, without its format. Raises CheckpointBroken."""
    expected = manifest.files.get(name)
    if expected is None:
        raise _broken(folder, require(manifest, {name: REQUIRED.get(name, "a record")}))
    try:
        data = read_bounded(manifest.members_in(folder) / name, MAX_JSON_BYTES)
        problems = compare_records(name, FileRecord(len(data), DIGEST + xxhash.xxh3_128_hexdigest(data)), expected)
        record = None if problems else json.loads(data)
    except FileNotFoundError:
        problems = [f"{name} is missing"]
    except StoreError:
        raise
    except OSError as error:
        problems = [f"{name} cannot be read: {error}"]
    except (ValueError, RecursionError) as error:
        problems = [f"{name} is no JSON: {error}"]
    if problems:
        raise _broken(folder, problems)
    format = RECORDS.get(name)
    if not isinstance(record, dict) or (format is not None and record.pop("format", None) != format):
        raise _broken(folder, [f"{name} is not of the format {format!r}"])
    return record


def describe(opened: Opened) -> dict[str, Any]:
    """Return what is in a checkpoint as plain JSON: progress, data, meta, sizes; `problems` says what is wrong."""
    path, manifest = opened.path, opened.manifest
    problems = require(manifest, REQUIRED) + find_problems(path, manifest, checksums=False)
    records: dict[str, Any] = {}
    for name in RECORDS:
        try:
            records[name] = read_record(path, manifest, name)
        except CheckpointBroken as error:
            records[name] = None
            problems += [why for whys in error.broken.values() for why in whys if why not in problems]
    return {
        "path": str(path),
        "kind": manifest.kind,
        "step": manifest.step,
        "saved": when(manifest.saved_ns),
        "saved_ns": manifest.saved_ns,
        "size_bytes": sum(file.size for file in manifest.files.values()),
        "ok": not problems,
        "problems": problems,
        "verified": opened.verified,
        "passed_over": {name: list(whys) for name, whys in opened.passed_over.items()},
        "progress": records["progress.json"],
        "data": records["data.json"],
        "meta": records["meta.json"],
        "parts": {name: file.size for name, file in sorted(manifest.files.items())},
        "random_states_of_ranks": _ranks("rng", manifest.files),
    }


def _newest(root: AnyPath, candidates: list[Candidate]) -> tuple[Opened, bool]:
    broken: dict[str, list[str]] = {}
    for candidate in candidates:
        path, manifest = candidate.path, candidate.manifest
        if candidate.foreign:  # a resume stops here too
            raise UnknownFormat(f"{path}: {candidate.problem}")
        problems = [candidate.problem]
        if manifest is not None:
            problems = require(manifest, REQUIRED) + find_problems(path, manifest)
            if not problems:
                return Opened(path, manifest, broken, verified=True), not broken
        broken[str(path)] = problems
    if broken:
        raise CheckpointBroken(str(root), broken)
    raise CheckpointNotFound(f"there is no checkpoint in {root}")


def _row(entry: CheckpointEntry) -> Row:
    kind, files, size, saved_ns = entry.kind, None, None, None
    progress: Mapping[str, Any] = {}
    meta: Mapping[str, Any] = {}
    foreign = False
    try:
        manifest = read_manifest(entry.path)
        kind, files, saved_ns = manifest.kind, len(manifest.files), manifest.saved_ns
        size = sum(file.size for file in manifest.files.values())
        progress = read_record(entry.path, manifest, "progress.json")
        meta = read_record(entry.path, manifest, "meta.json")
    except UnknownFormat:
        foreign = True
    except (ManifestError, CheckpointBroken):
        pass  # the entry says what is wrong
    topology = meta.get("topology")
    world = topology.get("world_size") if isinstance(topology, Mapping) else None
    return Row(
        path=entry.path,
        kind=kind,
        step=entry.step,
        epoch=_integer(progress.get("epoch")),
        consumed_samples=_integer(progress.get("consumed_samples")),
        world_size=_integer(world),
        files=files,
        size_bytes=size,
        saved_ns=saved_ns,
        problems=entry.problems,
        foreign=foreign,
    )


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _ranks(kind: str, names: Iterable[str]) -> list[int]:
    found = [rank_of(name) for name in names]
    return sorted(one[1] for one in found if one is not None and one[0] == kind)


def _broken(folder: AnyPath, problems: list[str]) -> CheckpointBroken:
    return CheckpointBroken(str(folder), {str(folder): problems})
