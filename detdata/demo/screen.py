"""Progress as it happens: bars on a terminal, a line now and then where there is none."""

from __future__ import annotations

from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from detdata.demo.children import Kill

DOING = {
    "straight": "train, never stopped",
    "interrupted": "train, to be killed",
    "weights": "go on: weights only",
    "no-position": "go on: all but data position",
    "detdata": "go on: detdata resume()",
}
_LINES = 4  # a run, where no bar is drawn


@final
class Screen:
    """A watcher that draws on a console. A context manager; safe to call from several threads."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._tasks: dict[str, TaskID] = {}
        self._last: dict[str, int] = {}
        self._bars = Progress(
            TextColumn("{task.description:<30}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]:>12}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begin(self, arm: str, last: int) -> None:
        """Show a new run."""
        self._last[arm] = last
        if self.console.is_terminal:
            self._tasks[arm] = self._bars.add_task(DOING[arm], total=last, loss="")
        else:
            self._say(f"{DOING[arm]}: starts")

    def step(self, arm: str, step: int, loss: float) -> None:
        """Show how far a run is."""
        last = self._last[arm]
        if self.console.is_terminal:
            self._bars.update(self._tasks[arm], completed=step, loss=f"loss {loss:.4f}")
        elif step == last or step * _LINES // last > (step - 1) * _LINES // last:
            self._say(f"{DOING[arm]}: step {step} of {last}, loss {loss:.4f}")

    def killed(self, kill: Kill) -> None:
        """Say that it happened."""
        self._say(
            f"killed with signal {kill.signal} in step {kill.step}, between its backward pass and its update, "
            f"{kill.workers} loader workers running"
        )

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)
