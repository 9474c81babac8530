"""`detdata ckpt list`, `show`, `verify` and `diff`: looking at checkpoints without the code that made them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from detdata.cli.checkpoint_text import listed, shown, tensor_lines, verified
from detdata.cli.codes import CANNOT_TELL, DIFFERENT, SAME
from detdata.cli.options import printing
from detdata.cli.output import put_json, put_lines
from detdata.cli.running import errors
from detdata.errors import ArgumentValueError, CheckpointBroken, MissingExtra

if TYPE_CHECKING:
    from detdata.checkpoint.inspection import Row
    from detdata.checkpoint.remote_path import AnyPath

    _Type = click.ParamType[AnyPath]
else:
    _Type = click.ParamType  # no generic in click 8.1


class _Place(_Type):
    """A folder, or a URL of an object store."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AnyPath:
        from detdata.checkpoint.remote_path import as_path  # not at the start of every other command

        try:
            return as_path(value or ".", "the path")
        except ArgumentValueError as error:
            self.fail(str(error), param, ctx)


_path = _Place()


@click.group()
def ckpt() -> None:
    """List, show, verify and compare checkpoints; runs no code from them and needs no model."""


@ckpt.command("list")
@click.argument("root", type=_path)
@click.option("--quick", is_flag=True, help="Look at names and sizes of files only, not at every byte.")
@printing
def list_(root: AnyPath, quick: bool, **options: Any) -> None:
    """List the checkpoints in ROOT, newest first.

    Says of each whether it is whole, and reads every byte for that, but for --quick. Exit code: 0 all are whole or
    there is none, 1 one is broken, 2 could not tell.

    \b
    Example:
      detdata ckpt list runs/a --quick
    """
    with errors("ckpt list", options):
        from detdata.checkpoint.inspection import rows

        found = rows(root, checksums=not quick)
        if options["as_json"]:
            record = {"root": str(root), "ok": _code(found) == SAME, "checked": "sizes" if quick else "bytes"}
            put_json(record | {"checkpoints": [row.to_dict() for row in found]})
        elif not options["quiet"]:
            put_lines(listed(found, quick=quick) if found else [f"no checkpoints in {root}"])
        sys.exit(_code(found))


@ckpt.command()
@click.argument("path", type=_path)
@click.option("--tensors", is_flag=True, help="List every tensor: dtype, shape, least, greatest, mean, not finite.")
@printing
def show(path: AnyPath, tensors: bool, **options: Any) -> None:
    """Show what is in the checkpoint PATH.

    Of a folder of checkpoints shows the one that a resume would take, and reads every byte to find it. Of one
    checkpoint looks at the names and sizes of its files; with --tensors reads every byte. Exit code: 0 shown, 1 it is
    broken, 2 could not tell.

    \b
    Example:
      detdata ckpt show runs/a/ckpt_latest --tensors
    """
    with errors("ckpt show", options):
        from detdata.checkpoint.inspection import describe, open_checkpoint

        try:
            opened = open_checkpoint(path)
        except CheckpointBroken as error:
            _refuse("show", error, options)
            sys.exit(DIFFERENT)
        record = describe(opened)
        if tensors:
            record |= _tensors(opened, record)
        if options["as_json"]:
            put_json(record)
        elif not options["quiet"]:
            put_lines(shown(record))
            if record.get("tensors"):
                put_lines(tensor_lines(record["tensors"]))
        sys.exit(SAME if record["ok"] else DIFFERENT)


@ckpt.command()
@click.argument("paths", nargs=-1, required=True, type=_path)
@printing
def verify(paths: tuple[AnyPath, ...], **options: Any) -> None:
    """Read every byte of checkpoints, and say what is wrong.

    Each of PATHS is a checkpoint, or a folder of checkpoints. Exit code: 0 all are whole, 1 one is broken,
    2 could not tell.

    \b
    Example:
      detdata ckpt verify runs/a
    """
    with errors("ckpt verify", options):
        from detdata.checkpoint.inspection import check_folder, verified_rows

        for path in paths:  # a slip of the pen shows before hours of reading
            check_folder(path)
        found: list[Row] = []
        for path in paths:
            own = verified_rows(path)
            found += own
            if not (options["as_json"] or options["quiet"]):
                put_lines(line for row in own for line in verified(row))
        if options["as_json"]:
            record = {"ok": _code(found) == SAME, "checkpoints": [row.to_dict() for row in found]}
            put_json(record)
        sys.exit(_code(found))


@ckpt.command()
@click.argument("a", type=_path)
@click.argument("b", type=_path)
@printing
def diff(a: AnyPath, b: AnyPath, **options: Any) -> None:
    """Say what differs between two checkpoints.

    Names the parts and tensors of A and B that differ, and by how much. Of a folder of checkpoints takes the one that
    a resume would take. Reads every byte of both. Versions, config and the like are listed and do not count. Exit code:
    0 all state is equal to the bit, 1 it is not, 2 could not tell.

    \b
    Example:
      detdata ckpt diff runs/a runs/b
    """
    with errors("ckpt diff", options):
        with _torch_for("comparing checkpoints"):
            from detdata.checkpoint.difference import diff_checkpoints

        try:
            found = diff_checkpoints(a, b)
        except CheckpointBroken as error:
            _refuse("diff", error, options)
            sys.exit(CANNOT_TELL)
        if options["as_json"]:
            put_json(found.to_dict())
        elif not options["quiet"]:
            put_lines(str(found).splitlines())
        sys.exit(SAME if found.same else DIFFERENT)


def _tensors(opened: Any, record: dict[str, Any]) -> dict[str, Any]:
    """What `--tensors` adds to the record of a checkpoint."""
    with _torch_for("--tensors"):
        from detdata.checkpoint.tensor_table import tensor_rows

    rows: list[dict[str, Any]] = []
    try:
        rows += [row.to_dict() for row in tensor_rows(opened)]
    except CheckpointBroken as error:
        problems = list(dict.fromkeys([*record["problems"], *_problems(error)]))
        return {"ok": False, "problems": problems, "tensors": rows}
    return {"verified": True, "tensors": rows}


@contextmanager
def _torch_for(what: str) -> Iterator[None]:
    """Say what to install where the imports inside need torch and it is not here."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise MissingExtra(f"{what} needs torch", "torch") from None


def _refuse(command: str, error: CheckpointBroken, options: dict[str, Any]) -> None:
    """Say which checkpoints are broken, and how."""
    text = "\n".join(
        f"{path} is broken:\n" + "\n".join(f"  - {problem}" for problem in problems)
        for path, problems in error.broken.items()
    )
    told = f"{text}\nName another checkpoint, or restore it from a copy"
    if options["as_json"]:
        put_json({"error": told, "kind": "CheckpointBroken", "broken": error.broken})
    click.echo(f"detdata ckpt {command}: {told}", err=True)


def _problems(error: CheckpointBroken) -> list[str]:
    return [why for whys in error.broken.values() for why in whys]


def _code(rows: Iterable[Row]) -> int:
    bad = [row for row in rows if row.problems]
    if any(not row.foreign for row in bad):
        return DIFFERENT
    return CANNOT_TELL if bad else SAME
