"""The table, on the screen and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from detdata.demo.evidence import Row
from detdata.demo.run import Outcome

FORMAT = "detdata.demo/1"
TITLES = {
    "straight": "never stopped",
    "weights": "weights only",
    "no-position": "all but data position",
    "detdata": "detdata resume()",
}
EXPLAINED = {
    "straight": "the same script, run to its end without a stop",
    "weights": "model.load_state_dict() alone: new optimizer and schedule, random state and data as at the start",
    "no-position": "model, optimizer, schedule, random state and step restored; the loader begins its epoch again",
    "detdata": "Checkpointer(...).resume(): all of it, and the data go on at the next unseen sample",
}


def to_record(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as plain JSON. Losses as numbers that read back as the very same bits."""
    about = dict(outcome.evidence["straight"].about or {})
    return {
        "format": FORMAT,
        "settings": asdict(outcome.settings),
        "machine": {name: about.get(name) for name in ("device", "torch")},
        "parameters": about.get("parameters"),
        "kill": asdict(outcome.kill),
        "checkpoint_step": outcome.rows[0].resumed_from,
        "rows": [asdict(row) for row in outcome.rows],
        "problems": list(outcome.problems),
        "exact": not outcome.problems,
    }


def number(value: float) -> str:
    """Return a figure with six decimals; one that is smaller than those show, but not zero, by its exponent.

    >>> number(0.0), number(2.5), number(3e-9)
    ('0.000000', '2.500000', '3.0000e-09')
    """
    return f"{value:.6f}" if value == 0 or abs(value) >= 1e-6 else f"{value:.4e}"


def make_table(outcome: Outcome) -> Table:
    """Return the table: a column for each run, a line for each figure."""
    rows = outcome.rows
    done = rows[0].resumed_from
    lost = outcome.kill.step - done
    table = Table(title="What a resume changes", title_justify="left", title_style="bold")
    table.add_column("")
    for row in rows:
        table.add_column(textwrap.fill(TITLES[row.arm], 12), justify="right", no_wrap=True)  # fits 80 columns
    lines: list[tuple[str, list[str]]] = [
        (f"last loss before, step {done}", [number(row.last_loss) for row in rows]),
        (f"first loss after, step {done + 1}", [number(row.first_loss) for row in rows]),
        ("samples repeated", [str(row.repeated) for row in rows]),
        ("samples skipped", [str(row.skipped) for row in rows]),
        ("largest loss difference from there", [number(row.largest_loss_difference) for row in rows]),
        ("losses equal to the last bit", [f"{row.equal_losses} of {row.compared_losses}" for row in rows]),
        ("final loss on held-out text", [number(row.held_out_loss) for row in rows]),
        ("parameters bit-equal", ["yes" if row.parameters_equal else "no" for row in rows]),
        ("largest parameter difference", [number(row.largest_parameter_difference) for row in rows]),
    ]
    for label, cells in lines:
        table.add_row(label, *cells)
    table.caption = (
        f"Killed in step {outcome.kill.step} of {outcome.settings.steps}; the last checkpoint is of step {done}. "
        f"The {lost} step{'s' if lost > 1 else ''} from {done + 1} on are lost to all three alike and done again; they "
        "are not counted as repeated. Repeated and skipped: uses of a sample in an epoch, in steps "
        f"1–{done} of the killed run and what followed, against the straight run. Losses in nats a byte. "
        "The first loss after is taken before any update: it can show other samples and other dropout, "
        "not lost moments or a new warm-up; what those do is in the steps after it. "
        "Whether a loss is higher or lower is beside the point: the question is whether it is the same run."
    )
    table.caption_justify = "left"
    return table


def show(outcome: Outcome, console: Console) -> None:
    """Print the table, the digests and the verdict."""
    console.print()
    console.print(make_table(outcome))
    console.print()
    for row in outcome.rows:
        console.print(f"{TITLES[row.arm]:<22} {EXPLAINED[row.arm]}", highlight=False, soft_wrap=True)
    console.print("\ndigest of all parameters at the end", highlight=False)
    for row in outcome.rows:
        console.print(f"{TITLES[row.arm]:<22} {row.digest}", highlight=False, soft_wrap=True)
    console.print()
    if outcome.problems:
        console.print("[bold red]NOT EXACT[/]: detdata's resume is not the run that was never stopped", soft_wrap=True)
        for problem in outcome.problems:
            console.print(f"  {problem}", highlight=False, markup=False, soft_wrap=True)
    else:
        console.print(_verdict(outcome.rows[-1]), highlight=False, soft_wrap=True)


def _verdict(row: Row) -> str:
    return (
        f"[bold green]EXACT[/]: after detdata's resume all {row.compared_losses} losses, the held-out loss and every "
        "parameter have the bits of the run that was never stopped; no sample repeated, none skipped."
    )
