"""`detdata demo`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import click

import detdata
from detdata.cli.codes import CANNOT_TELL, DIFFERENT, INTERRUPTED, SAME
from detdata.demo.formats import CORPORA


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("detdata-demo"),
    show_default=True,
    help="Folder for logs, table and picture: new, empty, or of an earlier demo, which is replaced.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Of the model, the data order and the step of the kill.",
)
@click.option("--kill-step", type=int, default=None, help="Step in which to kill, from 1.  [default: by the seed]")
@click.option(
    "--corpus",
    type=click.Choice(CORPORA),
    default=None,
    help="Write the text as files of this format, and train from these.  [default: from memory]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON; progress goes to stderr.")
@click.option("--small", is_flag=True, hidden=True, help="A much smaller model and run: seconds.")
@click.option("--fault", type=click.Choice(["none", "rng", "position"]), default="none", hidden=True)
def demo(
    out: Path, seed: int, kill_step: int | None, corpus: str | None, as_json: bool, small: bool, fault: str
) -> None:
    """Train, kill, go on in three ways, compare.

    A small transformer is trained on text that comes with Python. The same run is killed with SIGKILL in mid-epoch and
    goes on from its last checkpoint with the weights alone, with everything but the data position, and with detdata;
    each is compared with the run that was never stopped. Takes one to two minutes on two cores.

    Exit code: 0 detdata's resume was exact to the last bit, 1 it was not, 2 the runs could not be made or compared.
    """
    if not (_is_there("torch") and _is_there("matplotlib")):
        click.echo("detdata demo needs torch and matplotlib: pip install 'detdata[torch,demo]'", err=True)
        sys.exit(CANNOT_TELL)

    from rich.console import Console

    from detdata.demo.folder import prepare
    from detdata.demo.picture import draw
    from detdata.demo.report import show, to_record
    from detdata.demo.run import run_demo
    from detdata.demo.screen import Screen
    from detdata.demo.settings import SMALL, Settings

    try:
        settings = replace(SMALL if small else Settings(), seed=seed, kill_step=kill_step, corpus=corpus, fault=fault)  # type: ignore[arg-type]
        folder = prepare(out)
        console = Console(stderr=as_json)
        if not console.is_terminal:
            console = Console(stderr=as_json, width=110)
        with Screen(console) as screen:
            outcome = run_demo(folder, settings, screen)
        record = json.dumps(to_record(outcome), indent=1)
        (folder / "table.json").write_text(record + "\n", encoding="utf-8")
        draw(outcome, (folder / "curves.png", folder / "curves.svg"))
    except KeyboardInterrupt:
        click.echo("stopped; all runs ended", err=True)
        sys.exit(INTERRUPTED)
    except (detdata.DetdataError, OSError) as error:
        click.echo(f"detdata demo: {error}", err=True)
        sys.exit(CANNOT_TELL)
    if as_json:
        click.echo(record)
    else:
        show(outcome, console)
        console.print(f"\n{folder}: curves.png, curves.svg, table.json", highlight=False, markup=False, soft_wrap=True)
    sys.exit(DIFFERENT if outcome.problems else SAME)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
