"""What `detdata diff` does: compare two datasets, each given as a manifest or as the data itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from detdata.versions.diff import diff
from detdata.versions.manifest import Manifest
from detdata.versions.means import Means
from detdata.versions.remote import is_url
from detdata.versions.report import Report
from detdata.versions.scan import Scan, scan_paths
from detdata.versions.tree import HEAD_BYTES, MANIFEST_ENDINGS, is_manifest_head
from detdata.versions.verify import scan_as, verify_manifest, with_offsets


def compare(old: str, new: str, *, ways: Mapping[str, Any], means: Means) -> Report:
    """Return what differs between two datasets.

    Data beside a manifest is hashed as the manifest says. Two of data are hashed as `ways` says (arguments of
    `hash_dataset`); then changed files get the offset of their first difference, and tables the rows that differ.
    """
    before, after = _manifest(old), _manifest(new)
    if before is not None and after is not None:
        return diff(before, after)
    if before is not None:
        return verify_manifest(before, new, means)
    if after is not None:
        scan = scan_as(after, old, means)
        return replace(diff(scan.manifest, after), read=scan.read, trusted=scan.trusted)
    first, second = (scan_paths(side, means=means, **ways) for side in (old, new))
    report = replace(
        diff(first.manifest, second.manifest),
        read=first.read + second.read,
        trusted=first.trusted + second.trusted,
        notes=(*first.notes, *second.notes),
    )
    if report.ok or is_url(old) or is_url(new):
        return report
    if report.rows is None:
        return replace(report, changed=with_offsets(report.changed, first.root, second.root))
    return replace(report, notes=(*report.notes, *_changed_rows(first, second))) if report.rows.blocks else report


def _changed_rows(first: Scan, second: Scan) -> list[str]:
    from detdata.rows import first_row_differences

    old, new = ([(path, f"{scan.root}/{path}") for path in scan.manifest.paths] for scan in (first, second))
    return str(first_row_differences(old, new)).splitlines()


def _manifest(text: str) -> Manifest | None:
    """The manifest in this file; None if it is data. What looks like a manifest, by name or content, must be one."""
    path = Path(text)
    if is_url(text) or not path.is_file():
        return None
    with path.open("rb") as file:
        looks = is_manifest_head(file.read(HEAD_BYTES))
    return Manifest.load(path) if looks or path.name.endswith(MANIFEST_ENDINGS) else None
