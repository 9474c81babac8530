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
from detdata.versions.means import UNPROVED, Means, Ways, check_path, quick_notes
from detdata.versions.names import path_key
from detdata.versions.remote import is_url
from detdata.versions.report import Change, Report
from detdata.versions.scan import Scan, scan_listing, scan_url
from detdata.versions.walk import Listing, Selection, list_files


def verify_manifest(
    manifest: Manifest, root: str | PathLike[str], means: Means, *, compare_to: str | PathLike[str] | None = None
) -> Report:
    """Return what differs between a manifest and the data under `root` now; see `Manifest.verify`."""
    check_path(root, "root", "the folder that was hashed")
    if compare_to is not None:
        _check_copy(compare_to, root)
    if manifest.rows is None or is_url(root):
        scan = scan_as(manifest, root, means)
        report = with_scans(diff(manifest, scan.manifest), means, scan)
        if compare_to is None:
            return report
        return replace(report, changed=with_offsets(report.changed, compare_to, root))
    from detdata.versions.verify_rows import first_rows, verify_rows  # with pyarrow: not for those who hash bytes

    chosen, listing = _listed(manifest, root, means)
    report, made = verify_rows(manifest, chosen, listing, lambda: _scan(manifest, chosen, listing, means))
    if made is not None:
        report = with_scans(report, means, made)
        if compare_to is not None:
            return first_rows(report, (compare_to, manifest), (root, made.manifest))
    return report


def with_scans(report: Report, means: Means, *scans: Scan) -> Report:
    """Return the report with what is known of how the data was read."""
    read, trusted = scans[0].read_files, scans[0].trusted_files
    if len(scans) > 1:  # the same paths below each root
        read, trusted = (
            tuple(sorted((f"{s.root}/{path}" for s in scans for path in getattr(s, name)), key=path_key))
            for name in ("read_files", "trusted_files")
        )
    notes = [*report.notes, *(note for scan in scans for note in scan.notes), *quick_notes(means, bool(trusted))]
    return replace(
        report,
        read=len(read),
        trusted=len(trusted),
        read_files=read,
        trusted_files=trusted,
        quick=means.quick and means.cache is not None,
        unproved=UNPROVED if trusted else "",
        notes=tuple(notes),
    )


def scan_as(manifest: Manifest, root: str | PathLike[str], means: Means) -> Scan:
    """Hash what lies under `root` as the manifest records: selection, rules, algorithm, content, piece size."""
    check_path(root, "root", "the folder that was hashed")
    if isinstance(root, str) and is_url(root):
        _check_whole(manifest)
        return scan_url(root, _ways(manifest), means, manifest.select)
    return _scan(manifest, *_listed(manifest, root, means), means)


def _listed(manifest: Manifest, root: str | PathLike[str], means: Means) -> tuple[Selection, Listing]:
    _check_whole(manifest)
    folder = Path(root)
    if not folder.is_dir():
        raise DatasetError(str(folder), "no such folder; root is the folder that was hashed")
    own = () if manifest.path is None else (os.fspath(manifest.path.absolute()),)
    listing = list_files(folder, manifest.select, manifest.rules, exclude_files=(*own, *means.exclude_files))
    return Selection(folder, manifest.select), listing


def _scan(manifest: Manifest, chosen: Selection, listing: Listing, means: Means) -> Scan:
    stop = None if manifest.rows is None else manifest.rows.rows
    return scan_listing(chosen, listing, _ways(manifest), means, stop=stop)


def _ways(manifest: Manifest) -> Ways:
    return Ways(manifest.algorithm, manifest.content, manifest.piece_size, manifest.rules)


def _check_whole(manifest: Manifest) -> None:
    if manifest.part is not None:
        part, parts, _ = manifest.part
        raise ArgumentValueError(f"the manifest is part {part} of {parts}: merge the parts first (detdata merge)")


def _check_copy(copy: str | PathLike[str], root: str | PathLike[str]) -> None:
    """Raise, before anything is hashed, where there is nothing to compare with."""
    check_path(copy, "compare_to", "the folder that holds a good copy")
    if is_url(copy) or is_url(root):
        raise ArgumentValueError(f"compare_to: two folders of this machine can be compared, not {copy} and {root}")
    if not Path(copy).is_dir():
        raise DatasetError(os.fspath(copy), "no such folder; compare_to is the folder that holds a good copy")


def with_offsets(changes: tuple[Change, ...], old: str | PathLike[str], new: str | PathLike[str]) -> tuple[Change, ...]:
    """Return the changes with the offset of the first byte that differs, where both folders have the file."""
    return tuple(replace(change, offset=_offset(change, Path(old), Path(new))) for change in changes)


def _offset(change: Change, old: Path, new: Path) -> int | None:
    if change.kind == "kind":
        return None
    try:
        return first_difference(old / change.path, new / change.path)
    except DatasetError:
        return None
