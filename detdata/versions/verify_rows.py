"""Reports on rows that only the data itself can give: which rows differ, and which files are no table any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from detdata.errors import ArgumentValueError
from detdata.rows import (
    Faults,
    RowsError,
    RowsReport,
    RowsVersion,
    compare_rows,
    find_faults,
    first_row_differences,
    hash_rows,
    is_table,
    system_trouble,
)
from detdata.versions.diff import diff
from detdata.versions.errors import DatasetError
from detdata.versions.manifest import Manifest
from detdata.versions.report import Change, Report
from detdata.versions.scan import Scan
from detdata.versions.tables import check_unchanged
from detdata.versions.walk import Listing, Selection

Side: TypeAlias = tuple[str | os.PathLike[str], Manifest]  # where tables lie, and their manifest


def verify_rows(
    manifest: Manifest, chosen: Selection, listing: Listing, scan: Callable[[], Scan]
) -> tuple[Report, Scan | None]:
    """Return what differs between a manifest of rows and the listed files, which `scan` hashes as one table.

    Where they are none, the report says which files are at fault, and there is no scan. Raises DatasetError for what
    the operating system does not let one read, and for files that change meanwhile.
    """
    names = [path for path in listing.paths if is_table(path)]
    if names and len(names) == len(listing.paths):
        try:
            made = scan()
        except RowsError:
            return _broken(manifest, chosen, listing), None
        return diff(manifest, made.manifest), made
    return _broken(manifest, chosen, listing), None


def first_rows(report: Report, old: Side, new: Side) -> Report:
    """Return the report of two tables that are at hand, with the first rows that differ, if values of any do."""
    rows = report.rows
    if rows is None or rows.kind != "changed" or not rows.blocks:
        return report
    before, after = ([(path, f"{os.fspath(root)}/{path}") for path in manifest.paths] for root, manifest in (old, new))
    try:
        found = first_row_differences(before, after)
    except (RowsError, ArgumentValueError) as error:
        return replace(report, notes=(*report.notes, f"which rows differ could not be told: {error}"))
    if (found.old_rows, found.new_rows) != (rows.old_rows, rows.new_rows):
        note = f"which rows differ could not be told: {os.fspath(old[0])} does not hold the old rows"
        return replace(report, notes=(*report.notes, note))
    return replace(report, rows=replace(rows, differences=found, unproved=0))


def _broken(manifest: Manifest, chosen: Selection, listing: Listing) -> Report:
    """Return the report on files that are not one table."""
    old = manifest.rows
    if old is None:
        raise ArgumentValueError("the manifest has no version of rows: its content is bytes")
    files = [(path, f"{chosen.root}/{path}") for path in listing.paths]
    rest: RowsReport | None = None
    try:
        found = find_faults(files, old.schema)
        if not {fault.file for fault in found.faults} & set(manifest.paths) and found.rows:
            sound = [file for file in files if file[0] in found.rows]
            rest = compare_rows(old, hash_rows(sound, manifest.algorithm, stop=old.rows))
    except RowsError as error:
        check_unchanged(str(chosen.root), listing)
        where = f"{chosen.root}/{error.path}"
        raise DatasetError(where, f"cannot be read ({system_trouble(error) or error.reason})") from error
    check_unchanged(str(chosen.root), listing)
    return _told(manifest, old, listing, found, rest)


def _told(manifest: Manifest, old: RowsVersion, listing: Listing, found: Faults, rest: RowsReport | None) -> Report:
    before, now = dict(zip(manifest.paths, manifest.sizes, strict=True)), set(listing.paths)
    rows = RowsReport(
        kind="unreadable",
        old_rows=old.rows,
        new_rows=sum(found.rows.values()),
        old_digest=old.digest,
        new_digest="",
        faults=found.faults,
    )
    notes = [] if rest is None else [f"without the files that are no part of it: {str(rest).splitlines()[0]}"]
    if not listing.paths:
        notes.append("nothing of what was hashed is there any more")
    return Report(
        old_digest=manifest.digest,
        new_digest="",
        files=len(listing.paths),
        bytes=rows.new_rows,
        added=tuple(path for path in listing.paths if path not in before),
        removed=tuple(path for path in manifest.paths if path not in now),
        changed=tuple(
            Change(path, size, found.rows[path], "", "", "size")
            for path, size in before.items()
            if found.rows.get(path, size) != size
        ),
        read=len(listing.paths),
        trusted=0,
        read_files=tuple(listing.paths),
        notes=(*notes, *listing.notes),
        rows=rows,
    )
