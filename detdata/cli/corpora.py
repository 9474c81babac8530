"""`detdata index` and `detdata convert`: what makes files of rows readable at any place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from detdata.cli.codes import DIFFERENT, SAME
from detdata.cli.options import Size, add, printing
from detdata.cli.output import reader_may_leave
from detdata.cli.running import errors, is_terminal
from detdata.errors import ArgumentValueError

_opening = add(
    click.option("--format", "form", help="Of the files.  [default: by the endings of their names]"),
    click.option("--seq-len", type=click.IntRange(1), help="Of token files: tokens of a row."),
    click.option("--dtype", help="Of raw token files: uint16, uint32 …"),
    click.option("--rows-per-block", type=click.IntRange(1), help="Of formats without blocks of their own."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A format's own option, its value as JSON or as text (may be repeated).",
    ),
    click.option(
        "--index-folder", type=click.Path(path_type=Path), help="The cache folder for indexes.  [default: the user's]"
    ),
)


@click.command("index")
@click.argument("paths", nargs=-1, required=True)
@_opening
@click.option(
    "--in",
    "keep",
    type=click.Choice(["auto", "beside", "cache"]),
    default="auto",
    show_default=True,
    help="Where an index goes: beside its file, into the cache folder, or there if it cannot lie beside.",
)
@click.option("--workers", type=click.IntRange(1, 1024), help="Files read at a time.  [default: one a core]")
@click.option("--check", is_flag=True, help="Read every row too; exit 1 if one is broken.")
@click.option(
    "--skip-list",
    type=click.Path(path_type=Path),
    help='With --check: write the broken rows to this file, for open_corpus(on_error="skip", skip_list=…).',
)
@printing
def index(
    paths: tuple[str, ...], keep: Any, workers: int | None, check: bool, skip_list: Path | None, **options: Any
) -> None:
    """Make the indexes by which rows of files are found without reading what lies before.

    An index holds for its file as it is: one that holds is kept, a stale one made anew. Exit code: 0 done, 1 --check
    found broken rows, 2 something could not be read.

    \b
    Example:
      detdata index 'data/*.jsonl'
    """
    broken: list[tuple[int, str]] = []
    with errors("index", options):
        from detdata.corpora.build import index_corpus
        from detdata.corpora.opening import open_corpus
        from detdata.corpora.skip_list import find_broken, write_skips

        if skip_list is not None and not check:
            raise ArgumentValueError("--skip-list is written by --check: give both")
        asked, given = _asked(paths), _given(options)
        with _bar(options, "indexing") as show:
            done = index_corpus(
                asked,
                workers=workers,
                index=keep,
                progress=None if show is None else lambda now: show(now.bytes, now.total_bytes, True),
                **given,
            )
            if check:
                corpus = open_corpus(asked, index=keep, **given)
                broken = find_broken(corpus)
                if skip_list is not None:
                    write_skips(skip_list, corpus.entries, [row for row, _ in broken])
        _tell_indexed(done, broken, check, options)
    raise SystemExit(DIFFERENT if broken else SAME)


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="Folder of the Arrow files.")
@_opening
@click.option("--columns", help="Names of the columns to keep, with commas between.")
@click.option(
    "--part-size", type=Size(), default="256M", show_default=True, metavar="SIZE", help="Bytes at which a file ends."
)
@click.option(
    "--rows-per-batch", type=click.IntRange(1, 1 << 20), help="Rows of a record batch.  [default: about 1 MiB]"
)
@click.option(
    "--json-column",
    "json_columns",
    multiple=True,
    metavar="NAME",
    help="Keep this column as JSON text (may be repeated).",
)
@printing
def convert(paths: tuple[str, ...], output: Path, columns: str | None, part_size: int, **options: Any) -> None:
    """Rewrite rows as Arrow files that are mapped into memory: any row of them is read by itself.

    The rows keep their order. A run that was stopped is gone on with by the same command. Exit code: 0 done, 2 the rows
    fit no table, or something could not be read or written.

    \b
    Example:
      detdata convert 'data/*.jsonl' -o data-arrow
    """
    with errors("convert", options):
        from detdata.corpora.convert import convert_corpus
        from detdata.corpora.opening import open_corpus

        for path in paths:
            if Path(path).is_dir() and Path(path).resolve() in (output.resolve(), *output.resolve().parents):
                raise ArgumentValueError(
                    f"--output {output} lies in {path}, which is read: its files would be data; name another"
                )
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        corpus = open_corpus(_asked(paths), columns=names, **_given(options))
        with _bar(options, "converting") as show:
            made = convert_corpus(
                corpus,
                output,
                part_bytes=part_size,
                rows_per_batch=options["rows_per_batch"],
                json_columns=options["json_columns"],
                progress=None if show is None else lambda done, total: show(done, total, False),
            )
        with reader_may_leave():
            if options["as_json"]:
                click.echo(
                    json.dumps({"folder": made.folder, "rows": made.rows, "parts": made.parts, "resumed": made.resumed})
                )
            elif not options["quiet"]:
                there = f" ({made.resumed:,} were there)" if made.resumed else ""
                click.echo(f"{made.rows:,} rows{there} in {made.parts} part(s) -> {made.folder}")


_OWN = frozenset({"paths", "format", "columns", "index", "workers", "progress"})  # a command says these otherwise


def _asked(paths: tuple[str, ...]) -> str | list[str]:
    return paths[0] if len(paths) == 1 else list(paths)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return a command's options as arguments of `open_corpus`."""
    given = {"format": options["form"]}
    for name in ("seq_len", "dtype", "rows_per_block", "index_folder"):
        given[name] = options[name]
    for setting in options["settings"]:
        name, equals, value = setting.partition("=")
        if not equals or name in given or name in _OWN:
            raise ArgumentValueError(f"--set must be NAME=VALUE with a format's own option, got {setting!r}")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


def _tell_indexed(done: list[Any], broken: list[tuple[int, str]], check: bool, options: dict[str, Any]) -> None:
    rows = sum(file.rows for file in done)
    made = sum(file.made for file in done)
    with reader_may_leave():
        if options["as_json"]:
            files = [{"file": file.name, "rows": file.rows, "made": file.made, "index": file.index} for file in done]
            told = {"files": files, "rows": rows} | ({"broken": [list(row) for row in broken]} if check else {})
            click.echo(json.dumps(told))
        elif not options["quiet"]:
            none = sum(file.index is None for file in done)
            parts = [f"{made} indexed"] * (made > 0)
            parts += [f"{len(done) - made - none} had an index that holds"] * (len(done) - made - none > 0)
            parts += [f"{none} need none"] * (none > 0)
            click.echo(f"{len(done):,} file(s), {rows:,} rows: {', '.join(parts)}")
            for row, why in broken:
                click.echo(f"broken: row {row}: {why}")
            if check and not broken:
                click.echo("every row can be read")


@contextmanager
def _bar(options: dict[str, Any], what: str) -> Iterator[Callable[[int, int, bool], None] | None]:
    """Give a function of (done, total, whether that is bytes) that draws a bar on stderr; None where none is wanted."""
    if options["as_json"] or options["quiet"] or not is_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[much]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as screen:
        task = screen.add_task("", total=None, much="")

        def show(done: int, total: int, in_bytes: bool) -> None:
            much = f"{done >> 20:,} of {total >> 20:,} MiB" if in_bytes else f"{done:,} of {total:,} rows"
            screen.update(task, completed=done, total=total, much=much)

        yield show
