"""The command line: parses, calls, prints. Nothing is decided here, and nothing heavy imported before it is needed."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

import detdata
from detdata.cli.checkpoints import ckpt
from detdata.cli.codes import INTERRUPTED
from detdata.cli.corpora import convert, index
from detdata.cli.dataset import diff, hash_, merge, verify
from detdata.cli.demo import demo
from detdata.cli.output import take_any_text
from detdata.cli.plans import plan


class _Commands(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command, and remember whether JSON is asked for: mistakes are told in it too."""
        take_any_text()
        ctx.obj = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. One that is stopped before it can see to that itself doesn't exit with 1, "different"."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if ctx.obj:
                click.echo(json.dumps({"error": error.format_message(), "kind": "UsageError"}))
            raise
        except KeyboardInterrupt:
            click.echo("\ndetdata: stopped", err=True)
            sys.exit(INTERRUPTED)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(detdata.__version__, prog_name="detdata")
def main() -> None:
    """Exact data order for training: a resumed run is bit for bit the run that was never interrupted."""


for command in (hash_, verify, diff, merge, index, convert, ckpt, plan, demo):
    main.add_command(command)
