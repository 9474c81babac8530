"""`detdata hash`, `verify`, `diff` and `merge`: versions of datasets, for people and for CI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detdata.cli.codes import DIFFERENT, SAME
from detdata.cli.options import choosing, part, printing, reading, summary, ways
from detdata.cli.output import check_summary, manifest_target, put_manifest, show_report
from detdata.cli.running import errors, means
from detdata.errors import ArgumentValueError

if TYPE_CHECKING:
    from detdata.versions.manifest import Manifest

LOCK = "data.lock.json"


@click.command("hash")
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    default=LOCK,
    show_default=True,
    help="Where to write the manifest; - for standard output, .gz for the compact form. Replaces manifests only.",
)
@click.option(
    "--part", metavar="I/N", help="Hash every N-th file only, beginning with the I-th; put together by `detdata merge`."
)
@choosing
@reading
def hash_(paths: tuple[str, ...], output: str, **options: Any) -> None:
    """Hash files, folders, globs or a URL, and write the manifest.

    Prints the digest of it all. Exit code: 0 done, 2 something could not be read.

    \b
    Example:
      detdata hash data -o data.lock.json
    """
    with errors("hash", options):
        from detdata.versions.means import quick_notes
        from detdata.versions.scan import scan_paths

        target, share = manifest_target(output), part(options["part"])
        with means(options, () if target is None else (str(target.absolute()),)) as with_these:
            asked = list(paths) if len(paths) > 1 else paths[0]
            scan = scan_paths(asked, part=share, means=with_these, **ways(options))
        notes = [*scan.notes, *quick_notes(with_these, scan.trusted > 0)]
        put_manifest(scan.manifest, target, options, read=scan.read, trusted=scan.trusted, notes=notes)


@click.command()
@click.argument("manifest", default=LOCK)
@click.option(
    "--root",
    help="The folder (or URL) that was hashed.  [default: data for data.lock.json, else the manifest's folder]",
)
@click.option(
    "--compare-to",
    help="Folder with a good copy: says at which byte a changed file begins to differ.",
)
@summary
@click.option(
    "--allow-growth", is_flag=True, help="Exit 0 also where files or rows were only added after all old ones."
)
@reading
def verify(
    manifest: str,
    root: str | None,
    compare_to: str | None,
    summary: Path | None,
    allow_growth: bool,
    **options: Any,
) -> None:
    """Hash the data again and say what differs from MANIFEST (data.lock.json).

    Reads every byte, but for --quick. Exit code: 0 same, 1 different, 2 could not tell.

    \b
    Example:
      detdata verify data.lock.json --root data
    """
    with errors("verify", options):
        from detdata.versions.manifest import Manifest
        from detdata.versions.verify import verify_manifest

        check_summary(summary)
        lock = Manifest.load(manifest)
        where = _root(Path(manifest), lock) if root is None else root  # "" is a variable of a script that isn't set
        with means(options) as with_these:
            report = verify_manifest(lock, where, with_these, compare_to=compare_to)
        show_report(report, options, summary)
        grown = report.grown or (report.rows is not None and report.rows.kind == "grown")
        sys.exit(SAME if report.ok or (grown and allow_growth) else DIFFERENT)


@click.command()
@click.argument("old")
@click.argument("new")
@summary
@choosing
@reading
def diff(old: str, new: str, summary: Path | None, **options: Any) -> None:
    """Say what differs between OLD and NEW: manifests, or data, which is hashed.

    Data beside a manifest is hashed in the manifest's way. Exit code: 0 same, 1 different, 2 could not tell.

    \b
    Example:
      detdata diff data.lock.json other-copy
    """
    with errors("diff", options):
        from detdata.versions.compare import compare

        check_summary(summary)
        with means(options) as with_these:
            report = compare(old, new, ways=ways(options), means=with_these)
        show_report(report, options, summary)
        sys.exit(SAME if report.ok else DIFFERENT)


@click.command()
@click.argument("parts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    default=LOCK,
    show_default=True,
    help="Where to write the whole manifest; - for standard output, .gz for the compact form. Replaces manifests only.",
)
@printing
def merge(parts: tuple[Path, ...], output: str, **options: Any) -> None:
    """Put the manifests of `detdata hash --part` together.

    Exit code: 0 done, 2 a part is missing, there twice or of other data.

    \b
    Example:
      detdata merge part-1.lock.json part-2.lock.json -o data.lock.json
    """
    with errors("merge", options):
        from detdata.versions.manifest import Manifest
        from detdata.versions.merge import merge as put_together

        target = manifest_target(output)
        put_manifest(put_together([Manifest.load(file) for file in parts]), target, options)


def _root(path: Path, lock: Manifest) -> str:
    """Where the data lies if nobody says so: in the folder that the manifest is named after, else around it."""
    beside = path.absolute().parent
    named = beside / path.name.removesuffix(".gz").removesuffix(".lock.json")
    if named.is_dir():
        return str(named)
    if any((beside / name).exists() for name in lock.paths[:100]):
        return str(beside)
    raise ArgumentValueError(f"the data of {path} is neither in {named} nor in {beside}; say where: --root FOLDER")
