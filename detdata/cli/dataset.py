"""`detdata hash`, `verify`, `diff` and `merge`: versions of datasets, for people and for CI."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from detdata.cli.codes import CANNOT_TELL, DIFFERENT, INTERRUPTED, SAME
from detdata.errors import ArgumentValueError, DetdataError

if TYPE_CHECKING:
    from detdata.versions.manifest import Manifest
    from detdata.versions.means import Means
    from detdata.versions.report import Report

LOCK = "data.lock.json"
_F = TypeVar("_F", bound=Callable[..., Any])


def _reading(command: _F) -> _F:
    """Add the options of every command that reads data."""
    for option in reversed(
        [
            click.option(
                "--quick", is_flag=True, help="Trust digests of files whose size, times and inode are unchanged."
            ),
            click.option(
                "--cache", type=click.Path(path_type=Path), help="Folder of those digests.  [default: the user's cache]"
            ),
            click.option("--no-cache", is_flag=True, help="Remember no digests."),
            click.option(
                "--workers",
                type=click.IntRange(1, 1024),
                help="Large files read at a time.  [default: one a core, up to 4]",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON for machines."),
            click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
        ]
    ):
        command = option(command)
    return command


def _choosing(command: _F) -> _F:
    """Add the options that say how data is hashed."""
    for option in reversed(
        [
            click.option(
                "--algorithm", "-a", default="xxh3-128", show_default=True, help="xxh3-128, sha256 or blake3."
            ),
            click.option(
                "--content",
                type=click.Choice(["bytes", "rows"]),
                default="bytes",
                show_default=True,
                help="Bytes of files, or logical rows of tables.",
            ),
            click.option(
                "--include",
                multiple=True,
                metavar="PATTERN",
                help="Only what matches (gitignore syntax; may be repeated).",
            ),
            click.option(
                "--exclude",
                multiple=True,
                metavar="PATTERN",
                help="Not what matches (gitignore syntax; may be repeated).",
            ),
            click.option(
                "--symlinks",
                type=click.Choice(["follow", "record", "refuse"]),
                default="follow",
                show_default=True,
                help="What a symbolic link counts as.",
            ),
            click.option(
                "--piece-size",
                type=click.IntRange(0),
                default=0,
                metavar="BYTES",
                help="Hash files as trees of pieces; other digests than without.",
            ),
        ]
    ):
        command = option(command)
    return command


@click.command("hash")
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--output",
    "-o",
    default=LOCK,
    show_default=True,
    help="Where to write the manifest; - for the terminal, .gz for the compact form.",
)
@click.option(
    "--part", metavar="I/N", help="Hash every N-th file only, beginning with the I-th; put together by `detdata merge`."
)
@_choosing
@_reading
def hash_(paths: tuple[str, ...], output: str, part: str | None, **options: Any) -> None:
    """Hash files, folders, globs or URLs, and write the manifest.

    Prints the digest of it all. Exit code: 0 done, 2 something could not be read.
    """
    with _errors("hash", options):
        from detdata.versions.scan import scan_paths

        target = None if output == "-" else Path(output)
        share = _part(part)
        with _means(options, () if target is None else (str(target.absolute()),)) as means:
            scan = scan_paths(list(paths) if len(paths) > 1 else paths[0], part=share, means=means, **_ways(options))
        manifest = scan.manifest
        if target is None:
            click.echo(manifest.to_text(), nl=False)
            return
        manifest.save(target)
        if options["as_json"]:
            click.echo(
                json.dumps(
                    {
                        "digest": manifest.digest,
                        "files": len(manifest),
                        "rows" if manifest.content == "rows" else "bytes": manifest.bytes,
                        "read": scan.read,
                        "trusted": scan.trusted,
                        "notes": list(scan.notes),
                        "manifest": output,
                    }
                )
            )
        elif not options["quiet"]:
            for note in scan.notes:
                click.echo(f"note: {note}", err=True)
            click.echo(_told(manifest, output))


@click.command()
@click.argument("manifest", default=LOCK)
@click.option(
    "--root",
    help="The folder (or URL) that was hashed.  [default: data for data.lock.json, else the manifest's folder]",
)
@click.option(
    "--compare-to",
    type=click.Path(path_type=Path),
    help="A good copy: says at which byte a changed file begins to differ.",
)
@click.option("--summary", type=click.Path(path_type=Path), help="Append the report as Markdown to this file, for CI.")
@click.option(
    "--allow-growth", is_flag=True, help="Exit 0 also where files or rows were only added after all old ones."
)
@_reading
def verify(
    manifest: str,
    root: str | None,
    compare_to: Path | None,
    summary: Path | None,
    allow_growth: bool,
    **options: Any,
) -> None:
    """Hash the data again and say what differs from MANIFEST (data.lock.json).

    Reads every byte, but for --quick. Exit code: 0 same, 1 different, 2 could not tell.
    """
    with _errors("verify", options):
        from detdata.versions.manifest import Manifest
        from detdata.versions.verify import verify_manifest

        lock = Manifest.load(manifest)
        with _means(options) as means:
            report = verify_manifest(lock, root or _root(Path(manifest), lock), means, compare_to=compare_to)
        _show(report, options, summary)
        grown = report.grown or (report.rows is not None and report.rows.kind == "grown")
        sys.exit(SAME if report.ok or (grown and allow_growth) else DIFFERENT)


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--summary", type=click.Path(path_type=Path), help="Append the report as Markdown to this file, for CI.")
@_choosing
@_reading
def diff(old: str, new: str, summary: Path | None, **options: Any) -> None:
    """Say what differs between OLD and NEW: manifests, or data, which is hashed.

    Data beside a manifest is hashed in the manifest's way. Exit code: 0 same, 1 different, 2 could not tell.
    """
    with _errors("diff", options):
        from detdata.versions.compare import compare

        with _means(options) as means:
            report = compare(old, new, ways=_ways(options), means=means)
        _show(report, options, summary)
        sys.exit(SAME if report.ok else DIFFERENT)


@click.command()
@click.argument("parts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", "-o", default=LOCK, show_default=True, help="Where to write the whole manifest.")
def merge(parts: tuple[Path, ...], output: str) -> None:
    """Put the manifests of `detdata hash --part` together.

    Exit code: 0 done, 2 a part is missing, there twice or of other data.
    """
    with _errors("merge", {"as_json": False}):
        from detdata.versions.manifest import Manifest
        from detdata.versions.merge import merge as put_together

        manifest = put_together([Manifest.load(part) for part in parts])
        manifest.save(Path(output))
        click.echo(_told(manifest, output))


def _root(path: Path, lock: Manifest) -> str:
    """Where the data lies if nobody says so: in the folder that the manifest is named after, else around it."""
    beside = path.absolute().parent
    named = beside / path.name.removesuffix(".gz").removesuffix(".lock.json")
    if named.is_dir():
        return str(named)
    if any((beside / name).exists() for name in lock.paths[:100]):
        return str(beside)
    raise ArgumentValueError(f"the data of {path} is neither in {named} nor in {beside}; say where: --root FOLDER")


def _told(manifest: Manifest, output: str) -> str:
    unit = "rows" if manifest.content == "rows" else "bytes"
    return f"{manifest.digest}  {len(manifest):,} files, {manifest.bytes:,} {unit} -> {output}"


def _ways(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("algorithm", "content", "include", "exclude", "symlinks", "piece_size")}


@contextmanager
def _means(options: dict[str, Any], exclude_files: tuple[str, ...] = ()) -> Iterator[Means]:
    from detdata.cli.progress import bar
    from detdata.versions.cache import default_folder
    from detdata.versions.means import Means

    if options["no_cache"] and (options["quick"] or options["cache"]):
        raise ArgumentValueError("--no-cache: not together with --quick or --cache")
    with bar(not (options["quiet"] or options["as_json"]) and sys.stderr.isatty()) as progress:
        yield Means(
            cache=None if options["no_cache"] else options["cache"] or default_folder(),
            quick=options["quick"],
            workers=options["workers"],
            progress=progress,
            exclude_files=exclude_files,
        )


def _show(report: Report, options: dict[str, Any], summary: Path | None) -> None:
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(report.to_markdown())
    if options["as_json"]:
        click.echo(json.dumps(report.to_dict(), indent=1))
    elif not options["quiet"]:
        for line in str(report).splitlines():
            click.echo(_coloured(line))


def _coloured(line: str) -> str:
    colours = {"same": "green", "different": "red", "added": "green", "removed": "red", "changed": "yellow"}
    colour = colours.get(line.split(":", maxsplit=1)[0], "cyan" if line == "renamed" else None)
    return click.style(line, fg=colour, bold=True) if colour else line


def _part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    i, slash, n = text.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal()):
        raise ArgumentValueError(f"--part must be I/N, as in 1/4 for the first of four; got {text!r}")
    return int(i), int(n)


@contextmanager
def _errors(command: str, options: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        hint = "" if options.get("no_cache", True) else "; what is hashed is remembered: --quick goes on from there"
        click.echo(f"\ndetdata {command}: stopped{hint}", err=True)
        sys.exit(INTERRUPTED)
    except (DetdataError, OSError) as error:
        if options["as_json"]:
            click.echo(json.dumps({"error": str(error), "kind": type(error).__name__}))
        click.echo(f"detdata {command}: {error}", err=True)
        sys.exit(CANNOT_TELL)
    except Exception as error:  # exit code 1 would mean "different"
        if os.environ.get("DETDATA_TRACEBACK"):
            raise
        told = f"{type(error).__name__}: {error}"
        click.echo(f"detdata {command}: {told} (DETDATA_TRACEBACK=1 shows where)", err=True)
        sys.exit(CANNOT_TELL)
