"""`detdata plan show`, `when` and `digest`: what a plan's steps consist of, asked of its spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detdata.cli.options import add, printing
from detdata.cli.output import put_json, put_lines
from detdata.cli.running import errors
from detdata.errors import ArgumentValueError, UnknownFormat

if TYPE_CHECKING:
    from detdata.plans.batch import Batch
    from detdata.plans.protocol import AnyPlan

# Records in which a plan's spec may lie, from the outside in: a checkpoint's data, a loader's state, a stream's.
_HOLDERS = {"detdata.data/1": "loader", "detdata.loader/1": "plan", "detdata.stream/1": "plan"}
_MOST = 16  # ids of a line, but with --all

_spec = add(
    click.argument("spec", type=click.Path(path_type=Path)),
    click.option(
        "--table",
        "tables",
        multiple=True,
        type=click.Path(path_type=Path),
        help="A .npy file with lengths, weights or labels that the spec names by digest (may be repeated).",
    ),
)
_step = click.IntRange(0, 2**63 - 1)


@click.group()
def plan() -> None:
    """Ask a plan: which samples a step sees, when a sample is seen, and the digest of steps.

    SPEC is a JSON file with a plan's spec (`json.dump(plan.spec(), file)`) or a loader's state, or a checkpoint.
    """


@plan.command()
@_spec
@click.option("--step", "first", type=_step, default=0, show_default=True, help="The first global step to show.")
@click.option("--steps", "count", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--rank", type=click.IntRange(0), help="Only this rank's part.")
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Ranks, with --rank.")
@click.option("--micro-step", type=click.IntRange(0), help="Only this micro step's part.")
@click.option("--micro-steps", type=click.IntRange(1), default=1, show_default=True, help="Of a global step.")
@click.option("--all", "everything", is_flag=True, help=f"All ids of a step, not the first {_MOST}.")
@printing
def show(spec: Path, tables: tuple[Path, ...], first: int, count: int, **options: Any) -> None:
    """Show what steps consist of: epoch, consumed samples, ids, and of packed ones the documents.

    Exit code: 0 shown, 2 could not.

    \b
    Example:
      detdata plan show plan.json --step 1000000 --rank 3 --world-size 8
    """
    with errors("plan show", options):
        found = _read(spec, tables)
        for step in range(first, first + count):
            batch = _part(found, step, options)
            if options["as_json"]:
                put_json(_record(found, batch))
            elif not options["quiet"]:
                put_lines(_lines(found, batch, everything=options["everything"]))


@plan.command()
@_spec
@click.argument("ids", nargs=-1, required=True, type=click.IntRange(0))
@click.option("--epoch", type=_step, default=0, show_default=True, help="The epoch to look in.")
@printing
def when(spec: Path, tables: tuple[Path, ...], ids: tuple[int, ...], epoch: int, **options: Any) -> None:
    """Say in which step of an epoch samples are used (of a packed plan: documents).

    Exit code: 0 said, 2 could not.

    \b
    Example:
      detdata plan when plan.json 123456 --epoch 2
    """
    with errors("plan when", options):
        found = _read(spec, tables)
        steps = {id: found.when(id, epoch) for id in ids}
        if options["as_json"]:
            put_json({"epoch": epoch, "steps": {str(id): step for id, step in steps.items()}})
        elif not options["quiet"]:
            put_lines(f"{id}: " + ("not used" if step is None else f"step {step}") for id, step in steps.items())


@plan.command()
@_spec
@click.argument("first", type=_step)
@click.argument("last", type=_step)
@printing
def digest(spec: Path, tables: tuple[Path, ...], first: int, last: int, **options: Any) -> None:
    """Print the digest of the ids of steps FIRST … LAST - 1: the same on any machine.

    Exit code: 0 printed, 2 could not.

    \b
    Example:
      detdata plan digest plan.json 0 1000
    """
    with errors("plan digest", options):
        value = _read(spec, tables).digest(first, last)
        if options["as_json"]:
            put_json({"first": first, "last": last, "digest": value})
        else:
            put_lines([value])


def _read(path: Path, tables: tuple[Path, ...]) -> AnyPlan:
    """Return the plan of a spec, a loader's state, or a checkpoint."""
    import numpy as np

    from detdata.orders.tables import TableMissing
    from detdata.plans.protocol import AnyPlan
    from detdata.plans.rebuilt import from_spec

    file = path / "data.json" if path.is_dir() else path
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArgumentValueError(f"{file} holds no JSON: {error}") from error
    spec = record
    for format, key in _HOLDERS.items():
        if isinstance(spec, dict) and spec.get("format") == format:
            spec = spec.get(key)
    if not isinstance(spec, dict):
        raise UnknownFormat(f"{file} holds no spec of a plan, but {type(spec).__name__}")
    try:
        arrays = [np.load(table, mmap_mode="r", allow_pickle=False) for table in tables]
    except ValueError as error:
        names = ", ".join(map(str, tables))
        raise ArgumentValueError(f"--table: {names}: not all of them are .npy files of numbers") from error
    try:
        found = from_spec(spec, arrays)
    except TableMissing as error:
        told = str(error).partition("; give them")[0]
        raise ArgumentValueError(f"{told}; give them in a .npy file: --table FILE") from error
    if not isinstance(found, AnyPlan):
        raise UnknownFormat(
            f"{file} holds the spec of a {type(found).__name__}, which is no plan: make one, Plan(order, batch_size)"
        )
    return found


def _part(found: AnyPlan, step: int, options: dict[str, Any]) -> Batch:
    rank, micro = options["rank"], options["micro_step"]
    if rank is None and micro is None:
        return found.batch(step)
    return found.shard(step, rank or 0, options["world_size"], micro, options["micro_steps"])


def _record(found: AnyPlan, batch: Batch) -> dict[str, Any]:
    """What is known of a batch, as JSON."""
    record: dict[str, Any] = {
        "step": batch.step,
        "epoch": batch.epoch,
        "start": batch.start,
        "consumed": found.consumed(batch.step),
        "ids": batch.ids.tolist(),
        "real": batch.real.tolist(),
        "epochs": batch.epochs.tolist(),
        "width": batch.width,
    }
    if batch.segments is not None:
        record["segments"] = [list(row) for row in batch.segments.tolist()]
    from detdata.plans.per_source import per_source_if_any

    counts = per_source_if_any(found, batch.step)
    return record | ({} if counts is None else {"per_source": counts})


def _lines(found: AnyPlan, batch: Batch, *, everything: bool) -> list[str]:
    """What is known of a batch, for people."""
    shown = len(batch) if everything else min(len(batch), _MOST)
    more = f" … and {len(batch) - shown} more" if shown < len(batch) else ""
    padding = int((~batch.real).sum())
    lines = [
        f"step {batch.step}: epoch {batch.epoch}, from position {batch.start}, {len(batch)} rows"
        + (f" ({padding} only pad)" if padding else "")
        + (f", as long as {batch.width}" if batch.width is not None else ""),
        f"  consumed before: {found.consumed(batch.step)}",
        f"  ids: {' '.join(map(str, batch.ids[:shown].tolist()))}{more}",
    ]
    if batch.segments is not None:
        for row, document, start, stop in batch.segments.tolist():
            if row < shown:
                lines.append(f"  row {row}: document {document}, tokens {start} … {stop - 1}")
    from detdata.plans.per_source import per_source_if_any

    counts = per_source_if_any(found, batch.step)
    if counts is not None:
        lines.append("  of each source before: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return lines
