"""How a command on datasets runs: with which means, and what becomes of errors and Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detdata.checks import visible
from detdata.cli.codes import CANNOT_TELL, INTERRUPTED
from detdata.errors import ArgumentValueError, DetdataError

if TYPE_CHECKING:
    from detdata.versions.means import Means


@contextmanager
def means(options: dict[str, Any], exclude_files: tuple[str, ...] = ()) -> Iterator[Means]:
    """Give what the options say to hash with; the progress bar is drawn inside this `with`."""
    from detdata.cli.progress import bar
    from detdata.versions.cache import default_folder
    from detdata.versions.means import Means

    given = options["cache"]
    if options["no_cache"] and (options["quick"] or given is not None):
        raise ArgumentValueError("--no-cache: not together with --quick or --cache")
    cache = None if options["no_cache"] else default_folder() if given is None else given
    before = _digests(cache)
    with bar(not (options["quiet"] or options["as_json"]) and is_terminal()) as progress:
        try:
            yield Means(
                cache=cache,
                quick=options["quick"],
                workers=options["workers"],
                progress=progress,
                exclude_files=exclude_files,
            )
        except KeyboardInterrupt:
            options["remembered"] = _digests(cache) != before
            raise


def is_terminal() -> bool:
    """Return whether progress can be drawn on stderr."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stderr is not None and sys.stderr.isatty() and not plain  # None: closed


def _digests(cache: str | Path | None) -> set[tuple[str, int]]:
    """Which digests are remembered: file and time of each."""
    if cache is None:
        return set()
    try:
        return {(file.name, file.stat().st_mtime_ns) for file in Path(cache).glob("*.digests")}
    except OSError:
        return set()


@contextmanager
def errors(command: str, options: dict[str, Any]) -> Iterator[None]:
    """Turn whatever goes wrong into a line for people and an exit code that isn't 1, which would mean "different"."""
    try:
        yield
    except KeyboardInterrupt:
        hint = "; with --quick the next run goes on from the cache" if options.get("remembered") else ""
        _tell(f"\ndetdata {command}: stopped{hint}", f"stopped{hint}", "KeyboardInterrupt", options)
        sys.exit(INTERRUPTED)
    except (DetdataError, OSError) as error:
        told = _told(error)
        _tell(f"detdata {command}: {told}", told, type(error).__name__, options)
        sys.exit(CANNOT_TELL)
    except Exception as error:
        if os.environ.get("DETDATA_TRACEBACK"):
            raise
        told = f"{type(error).__name__}: {error}"
        _tell(f"detdata {command}: {told} (DETDATA_TRACEBACK=1 shows where)", told, type(error).__name__, options)
        sys.exit(CANNOT_TELL)


def _tell(line: str, told: str, kind: str, options: dict[str, Any]) -> None:
    """Say what went wrong, to machines and people; a stream that takes nothing must not change the exit code."""
    if options["as_json"]:
        with suppress(OSError):
            click.echo(json.dumps({"error": told, "kind": kind}))
    with suppress(OSError):
        click.echo("\n".join(map(visible, line.split("\n"))), err=True)


def _told(error: DetdataError | OSError) -> str:
    if isinstance(error, OSError) and not _has_current_folder():
        return "the current folder has been deleted; change to one that is there"
    if isinstance(error, DetdataError) or not error.strerror:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def _has_current_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True
