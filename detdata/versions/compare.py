"""What `detdata diff` does: compare two datasets, each given as a manifest or as the data itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from detdata.versions.diff import diff
from detdata.versions.manifest import Manifest
from detdata.versions.means import Means
from detdata.versions.own_files import HEAD_BYTES, MANIFEST_ENDINGS, is_manifest_head
from detdata.versions.remote import is_url
from detdata.versions.report import Report
from detdata.versions.scan import scan_paths
from detdata.versions.verify import scan_as, verify_manifest, with_offsets, with_scans


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
        return with_scans(diff(scan.manifest, after), means, scan)
    first, second = (scan_paths(side, means=means, **ways) for side in (old, new))
    report = with_scans(diff(first.manifest, second.manifest), means, first, second)
    if report.ok or is_url(old) or is_url(new):
        return report
    if report.rows is None:
        return replace(report, changed=with_offsets(report.changed, first.root, second.root))
    from detdata.versions.verify_rows import first_rows

    return first_rows(report, (first.root, first.manifest), (second.root, second.manifest))


def _manifest(text: str) -> Manifest | None:
    """The manifest in this file; None if it is data. What looks like a manifest, by name or content, must be one."""
    path = Path(text)
    if is_url(text) or not path.is_file():
        return None
    with path.open("rb") as file:
        looks = is_manifest_head(file.read(HEAD_BYTES))
    return Manifest.load(path) if looks or path.name.endswith(MANIFEST_ENDINGS) else None
