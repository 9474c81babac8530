"""Hash what lies under a root in the way that a manifest records, and say exactly what differs."""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from pathlib import Path

from detdata.errors import ArgumentValueError
from detdata.versions.diff import diff
from detdata.versions.errors import DatasetError
from detdata.versions.files import first_difference
from detdata.versions.manifest import Manifest
from detdata.versions.means import Means, Ways
from detdata.versions.remote import is_url
from detdata.versions.report import Change, Report
from detdata.versions.scan import Scan, scan_listing, scan_url
from detdata.versions.walk import Selection, list_files


def verify_manifest(
    manifest: Manifest, root: str | PathLike[str], means: Means, *, compare_to: str | PathLike[str] | None = None
) -> Report:
    """Return what differs between a manifest and the data under `root` now; see `Manifest.verify`."""
    if compare_to is not None:
        _check_copy(compare_to, root)
    scan = scan_as(manifest, root, means)
    report = diff(manifest, scan.manifest)
    if compare_to is not None:
        report = replace(report, changed=with_offsets(report.changed, compare_to, root))
    return replace(report, read=scan.read, trusted=scan.trusted, notes=(*report.notes, *scan.notes))


def scan_as(manifest: Manifest, root: str | PathLike[str], means: Means) -> Scan:
    """Hash what lies under `root` as the manifest records: selection, rules, algorithm, content, piece size."""
    if manifest.part is not None:
        part, parts, _ = manifest.part
        raise ArgumentValueError(f"the manifest is part {part} of {parts}: merge the parts first (detdata merge)")
    ways = Ways(manifest.algorithm, manifest.content, manifest.piece_size, manifest.rules)
    if isinstance(root, str) and is_url(root):
        return scan_url(root, ways, means)
    folder = Path(root)
    if not folder.is_dir():
        raise DatasetError(str(folder), "no such folder; root is the folder that was hashed")
    own = () if manifest.path is None else (os.fspath(manifest.path.absolute()),)
    listing = list_files(folder, manifest.select, manifest.rules, exclude_files=(*own, *means.exclude_files))
    stop = None if manifest.rows is None else manifest.rows.rows
    return scan_listing(Selection(folder, manifest.select), listing, ways, means, stop=stop)


def with_offsets(changes: tuple[Change, ...], old: str | PathLike[str], new: str | PathLike[str]) -> tuple[Change, ...]:
    """Return the changes with the offset of the first byte that differs, where both folders have the file."""
    return tuple(replace(change, offset=_offset(change, Path(old), Path(new))) for change in changes)


def _check_copy(copy: str | PathLike[str], root: str | PathLike[str]) -> None:
    """Raise, before anything is hashed, where there is nothing to compare with."""
    if is_url(copy) or is_url(root):
        raise ArgumentValueError(f"compare_to: two folders of this machine can be compared, not {copy} and {root}")
    if not Path(copy).is_dir():
        raise DatasetError(os.fspath(copy), "no such folder; compare_to is the folder that holds a good copy")


def _offset(change: Change, old: Path, new: Path) -> int | None:
    if change.kind == "kind":
        return None
    try:
        return first_difference(old / change.path, new / change.path)
    except DatasetError:
        return None
