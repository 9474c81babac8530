"""Where commands on datasets write to, looked at before anything is hashed; and what they print."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detdata.checks import visible
from detdata.errors import ArgumentValueError

if TYPE_CHECKING:
    from detdata.versions.manifest import Manifest
    from detdata.versions.report import Report

_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def manifest_target(output: str) -> Path | None:
    """Return where a manifest may be written to, None for standard output.

    Raises ValueError where that would replace something that is no manifest, or cannot be done.
    """
    if output in _STDOUT:
        return None
    path = Path(output)
    real = Path(os.path.realpath(path))  # of a link, what it leads to is written
    _check_folder(path, real.parent)
    try:
        mode = real.stat().st_mode
    except FileNotFoundError:
        return path
    if stat.S_ISDIR(mode):
        raise ArgumentValueError(f"--output {output} is a folder: name a file in it")
    if not stat.S_ISREG(mode):
        raise ArgumentValueError(f"--output {output} is no regular file: name one, or - for standard output")
    from detdata.versions.own_files import HEAD_BYTES, is_manifest_head

    with real.open("rb") as file:
        if not is_manifest_head(file.read(HEAD_BYTES)):
            raise ArgumentValueError(
                f"--output {output} is there and is no manifest, so it is not replaced: name another file, or move it"
            )
    return path


def check_summary(summary: Path | None) -> None:
    """Raise ValueError if a summary cannot be appended to this file."""
    if summary is None:
        return
    if summary.is_dir():
        raise ArgumentValueError(f"--summary {summary} is a folder: name a file in it")
    if not summary.exists():
        _check_folder(summary, summary.absolute().parent)
    elif not os.access(summary, os.W_OK):
        raise ArgumentValueError(f"--summary {summary} may not be written to")


def _check_folder(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise ArgumentValueError(f"{path} cannot be written: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ArgumentValueError(f"{path} cannot be written: nothing may be made in the folder {folder}")


def put_manifest(manifest: Manifest, target: Path | None, options: dict[str, Any], **told: Any) -> None:
    """Write a manifest to where `manifest_target` said, and say what it is. told: more for machines."""
    if target is None:
        click.echo(manifest.to_text().encode(), nl=False)  # UTF-8 wherever it goes, and line ends as they are
    else:
        manifest.save(target)
    if not (options["as_json"] or options["quiet"]):
        for note in told.get("notes", ()):
            click.echo(f"note: {note}", err=True)
    if target is None:
        return
    unit = "rows" if manifest.content == "rows" else "bytes"
    files = "file" if len(manifest) == 1 else "files"
    with reader_may_leave():
        if options["as_json"]:
            record = {"digest": manifest.digest, "files": len(manifest), unit: manifest.bytes}
            click.echo(json.dumps(record | told | {"manifest": str(target)}))
        elif not options["quiet"]:
            how = f" ({told['read']:,} read, {told['trusted']:,} taken from the cache)" if options.get("quick") else ""
            click.echo(f"{manifest.digest}  {len(manifest):,} {files}, {manifest.bytes:,} {unit}{how} -> {target}")


def show_report(report: Report, options: dict[str, Any], summary: Path | None) -> None:
    """Print a report, and append it to the summary."""
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(report.to_markdown())
    with reader_may_leave():
        if options["as_json"]:
            click.echo(json.dumps(report.to_dict(), indent=1))
        elif not options["quiet"]:
            for line in str(report).splitlines():
                click.echo(_coloured(line))


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """Go on where whoever read has had enough of it (`| head`): what is done is done, and the exit code still tells."""
    try:
        yield
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - else Python fails at its exit


def take_any_text() -> None:
    """Let the standard streams take whatever text there is: what their encoding hasn't got stands as an escape.

    By default it would be an error, and the exit code that of "could not tell", where a name has an odd character.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")


def put_json(record: Mapping[str, Any]) -> None:
    """Print a record as JSON."""
    with reader_may_leave():
        click.echo(json.dumps(record, indent=1))


def put_lines(lines: Iterable[str]) -> None:
    """Print lines of a report, with what no terminal should be sent made visible."""
    with reader_may_leave():
        for line in lines:
            click.echo(_coloured(visible(line)))


def _coloured(line: str) -> str:
    colours = {"same": "green", "different": "red", "added": "green", "removed": "red", "changed": "yellow"}
    colours |= {"whole": "green", "broken": "red"}
    colour = colours.get(line.split(":", maxsplit=1)[0], "cyan" if line == "renamed" else None)
    return click.style(line, fg=colour, bold=True) if colour and not os.environ.get("NO_COLOR") else line
