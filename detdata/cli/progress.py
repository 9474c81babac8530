"""A progress bar for hashing: files, bytes, rate and time left, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detdata.versions.means import HashProgress

_EVERY = 0.1  # seconds between drawings: a call for each small file would cost more than hashing it


@contextmanager
def bar(shown: bool) -> Iterator[Callable[[HashProgress], None] | None]:
    """Give a function to be called with each HashProgress, or None; the bar goes away at the end, however it comes."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    drawn = 0.0
    with Progress(TextColumn("{task.fields[files]}"), *columns, console=Console(stderr=True), transient=True) as screen:
        task = screen.add_task("", total=None, files="listing files")

        def show(now: HashProgress) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > _EVERY:
                drawn = time.monotonic()
                files = f"{now.files:,} of {now.total_files:,} files"
                screen.update(task, completed=now.bytes, total=now.total_bytes, files=files)

        yield show
