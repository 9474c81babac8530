"""What `detdata ckpt` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detdata.checkpoint.inspection import Row

_SHOWN = 8  # of a list, before it is cut
_HEAD = ("name", "kind", "step", "epoch", "samples", "size", "saved", "ranks", "state")
_NUMBERS = {2, 3, 4, 5, 7}  # columns that end at their right edge
_TENSOR_HEAD = ("part", "name", "dtype", "shape", "min", "max", "mean", "not finite")
_OWN_LINES = ("model", "optimizer", "schedulers", "processes", "format")
_WHOLE = {
    True: "whole: every byte was read",
    False: "names and sizes as written (detdata ckpt verify reads every byte)",
}


def listed(rows: Sequence[Row], *, quick: bool) -> Iterator[str]:
    """Yield a table of checkpoints, and below each what is wrong with it."""
    cells = [_HEAD, *(_cells(row, quick=quick) for row in rows)]
    lines = list(_table(cells, _NUMBERS))
    yield lines[0]
    for row, line in zip(rows, lines[1:], strict=True):
        yield line
        yield from (f"  - {problem}" for problem in row.problems)


def verified(row: Row) -> Iterator[str]:
    """Yield a line that says whether a checkpoint is whole, and what is wrong with it."""
    step = "unknown step" if row.step is None else f"step {row.step}"
    size = "" if row.size_bytes is None else f", {row.files} files, {size_text(row.size_bytes)}"
    yield f"{_state(row, quick=False)}: {row.path}, {step}{size}"
    yield from (f"  - {problem}" for problem in row.problems)


def shown(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what `describe` found of one checkpoint."""
    yield f"{record['path']}"
    for path, problems in record["passed_over"].items():
        yield f"passed over: {path}"
        yield from (f"  - {problem}" for problem in problems)
    yield _WHOLE[record["verified"]] if record["ok"] else f"broken: {len(record['problems'])} problem(s)"
    yield from (f"  - {problem}" for problem in record["problems"])
    yield f"saved: {record['saved']}, as {record['kind']}, {size_text(record['size_bytes'])}"
    progress = record["progress"]
    if progress is not None:
        yield "progress: " + ", ".join(f"{name} {value}" for name, value in progress.items())
    yield from _meta(record["meta"] or {})
    yield from _section("data", record["data"])
    yield "parts:"
    parts = [(f"  {name}", size_text(size)) for name, size in record["parts"].items()]
    yield from _table(parts, {1})
    ranks = record["random_states_of_ranks"]
    yield f"random states of: {len(ranks)} rank(s){': ' if ranks else ''}{_brief(ranks)}"


def tensor_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of tensors."""
    cells = [
        (
            row["part"],
            row["name"],
            row["dtype"],
            "x".join(map(str, row["shape"])) or "scalar",
            *(_number(row[key]) for key in ("min", "max", "mean")),
            str(row["non_finite"]),
        )
        for row in rows
    ]
    yield "tensors:"
    yield from (f"  {line}" for line in _table([_TENSOR_HEAD, *cells], {4, 5, 6, 7}))


def size_text(size: int) -> str:
    """Return a number of bytes for people.

    >>> size_text(999), size_text(1_250_000)
    ('999 B', '1.2 MB')
    """
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def _meta(meta: Mapping[str, Any]) -> Iterator[str]:
    model, optimizer = meta.get("model"), meta.get("optimizer")
    if isinstance(model, Mapping):
        yield (
            f"model: {model.get('class')}, {_grouped(model.get('parameters'))} parameters, "
            f"{model.get('tensors')} tensors, structure {model.get('structure')}"
        )
    if isinstance(optimizer, Mapping):
        groups = optimizer.get("groups")
        yield f"optimizer: {optimizer.get('class')}, {len(groups) if isinstance(groups, list) else '?'} group(s)"
        for number, names in enumerate(groups if isinstance(groups, list) else ()):
            yield f"  {number}: {_brief(names)}"
    schedulers = meta.get("schedulers")
    if isinstance(schedulers, list) and schedulers:
        yield f"schedulers: {_brief(schedulers)}"
    processes = meta.get("processes")
    if isinstance(processes, list):
        places = [f"{one.get('host')} ({one.get('pid')})" for one in processes if isinstance(one, Mapping)]
        yield f"processes: {len(processes)}: {_brief(places)}"
    for title, value in meta.items():
        if title not in _OWN_LINES:
            yield from _section(title, "none" if value in (None, {}, []) else value)


def _section(title: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        yield f"{title}:"
        for name, item in value.items():
            yield from (f"  {line}" for line in _section(name, item))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        yield f"{title}:"
        for number, item in enumerate(value):
            yield from (f"  {line}" for line in _section(str(number), item))
    elif value not in (None, {}, []):
        yield f"{title}: {_brief(value)}"


def _brief(value: Any) -> str:
    if isinstance(value, list):
        more = f", … {len(value) - _SHOWN} more" if len(value) > _SHOWN else ""
        return ", ".join(map(str, value[:_SHOWN])) + more
    return str(value)


def _cells(row: Row, *, quick: bool) -> tuple[str, ...]:
    from detdata.checkpoint.inspection import when

    size = None if row.size_bytes is None else size_text(row.size_bytes)
    numbers = (row.step, row.epoch, row.consumed_samples)
    rest = (size, when(row.saved_ns), row.world_size)
    values = ["-" if value is None else str(value) for value in (*numbers, *rest)]
    return (row.path.name, row.kind, *values, _state(row, quick=quick))


def _state(row: Row, *, quick: bool) -> str:
    if row.problems:
        return "of another release" if row.foreign else "broken"
    return "sizes right" if quick else "whole"


def _table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _grouped(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
