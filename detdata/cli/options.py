"""The options that several commands on datasets share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from detdata.errors import ArgumentValueError

_F = TypeVar("_F", bound=Callable[..., Any])

QUICK = (
    "Do not read files whose device, inode, size, mtime and ctime are those of the last time: take their digests from "
    "the cache. It cannot see what changed with the clock set back, through a memory map, or behind the file system's "
    "back (a failing disk)."
)

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"([0-9]+)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_DIGITS = 20


class Size(click.ParamType[int]):
    """A number of bytes, also with K, M, G or T for powers of 1024: 67108864, 64M, 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes that a text means."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        if found is None or len(found[1]) > _DIGITS:
            self.fail(f"{value!r} is no size: write 64M for pieces of 64 MiB (from 64K to 1T), 0 for none", param, ctx)
        return int(found[1]) << _UNITS[found[2].upper()]


def add(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return a decorator that adds options to a command, to be listed in their order."""

    def decorate(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


summary = click.option(
    "--summary", type=click.Path(path_type=Path), help="Append the report as Markdown to this file, for CI."
)

printing = add(
    click.option("--json", "as_json", is_flag=True, help="Print JSON for machines."),
    click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors."),
)

reading = add(
    click.option("--quick", is_flag=True, help=QUICK),
    click.option(
        "--cache",
        help="Folder of the digests that every run remembers and --quick trusts.  [default: the user's cache]",
    ),
    click.option("--no-cache", is_flag=True, help="Remember no digests; not with --quick or --cache."),
    click.option(
        "--workers",
        type=click.IntRange(1, 1024),
        help="Large files, or tables, read at a time.  [default: one a core, up to 4; of tables 1]",
    ),
    printing,
)

choosing = add(
    click.option("--algorithm", "-a", default="xxh3-128", show_default=True, help="xxh3-128, sha256 or blake3."),
    click.option(
        "--content",
        type=click.Choice(["bytes", "rows"]),
        default="bytes",
        show_default=True,
        help="Bytes of files, or logical rows of tables.",
    ),
    click.option(
        "--include", multiple=True, metavar="PATTERN", help="Only what matches (gitignore syntax; may be repeated)."
    ),
    click.option(
        "--exclude", multiple=True, metavar="PATTERN", help="Not what matches (gitignore syntax; may be repeated)."
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
        type=Size(),
        default=0,
        metavar="SIZE",
        help="Hash files as trees of pieces of so many bytes, 64K to 1T (64M is good); other digests than without.",
    ),
)


def ways(options: dict[str, Any]) -> dict[str, Any]:
    """Return those of a command's options that are arguments of `hash_dataset`."""
    return {name: options[name] for name in ("algorithm", "content", "include", "exclude", "symlinks", "piece_size")}


def part(text: str | None) -> tuple[int, int] | None:
    """Return what `--part I/N` says. Raises ValueError."""
    if text is None:
        return None
    i, slash, n = text.partition("/")
    if not (slash and i.isdecimal() and n.isdecimal()):
        raise ArgumentValueError(f"--part must be I/N, as in 1/4 for the first of four; got {text!r}")
    return int(i), int(n)
