"""The picture: the loss curves after the kill, and how far each is from the run that never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from detdata.demo.evidence import Evidence
from detdata.demo.report import TITLES
from detdata.demo.run import Outcome

# Told apart without colour too: by width and dashes. Colours of Okabe and Ito.
STYLES: dict[str, dict[str, Any]] = {
    "straight": {"color": "#bdbdbd", "linewidth": 5, "solid_capstyle": "round"},
    "weights": {"color": "#d55e00", "linewidth": 1.5},
    "no-position": {"color": "#0072b2", "linewidth": 1.5, "dashes": (4, 1.2)},
    "detdata": {"color": "#007a4d", "linewidth": 1.8, "dashes": (1.5, 1.2)},
}
_LOOK: Any = {
    "font.size": 11,
    "svg.hashsalt": "detdata",  # the same curves give the same file
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FLOOR = 1e-4  # differences below are drawn on a linear scale, so that exactly 0 has a place


def draw(outcome: Outcome, paths: tuple[Path, ...]) -> None:
    """Draw the curves into files, whose format follows their names (.png, .svg)."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    straight, done, kill = outcome.evidence["straight"], outcome.rows[0].resumed_from, outcome.kill.step
    last = max(straight.steps)
    with plt.rc_context(_LOOK):
        figure, (losses, apart) = plt.subplots(
            2, 1, figsize=(10, 7.2), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        figure.suptitle("One training run, killed and resumed in three ways", fontsize=15, fontweight="bold")
        for axis in (losses, apart):
            axis.axvspan(done + 0.5, kill, color="#f3e6b3", alpha=0.7, linewidth=0)
            axis.axvline(kill, color="black", linewidth=1.2)
            axis.grid(visible=True, axis="y", color="#e8e8e8", linewidth=0.8)
            axis.set_axisbelow(True)
        # From shortly before the kill: the steep beginning would flatten what there is to see.
        first = max(1, done - (last - done) * 2 // 3)
        _draw_losses(losses, outcome, first, last)
        _draw_distances(apart, outcome, last)
        losses.text(kill, 1.01, f"SIGKILL in step {kill}", transform=losses.get_xaxis_transform(), ha="center")
        place = losses.get_xaxis_transform()
        losses.text(
            done, 0.02, f"checkpoint of step {done};\nthe shaded steps\nare done again", transform=place, ha="right"
        )
        apart.set_xlim(first - 0.5, last + 0.5)
        for path in paths:
            figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else {})
        plt.close(figure)


def _draw_losses(axis: Any, outcome: Outcome, first: int, last: int) -> None:
    for row in outcome.rows:
        steps = outcome.evidence[row.arm].steps
        numbers = range(first if row.arm == "straight" else row.resumed_from + 1, last + 1)
        label = f"{TITLES[row.arm]} (held-out loss at the end {row.held_out_loss:.4f})"
        axis.plot(numbers, [steps[number].loss for number in numbers], label=label, **STYLES[row.arm])
    axis.set_ylabel("training loss (nats a byte)")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.35 * (high - low))  # room for the legend
    axis.legend(frameon=False, loc="upper right", fontsize=10)


def _draw_distances(axis: Any, outcome: Outcome, last: int) -> None:
    for row in outcome.rows[1:]:
        far = _distances(outcome.evidence[row.arm], outcome.evidence["straight"], row.resumed_from, last)
        axis.plot(range(row.resumed_from + 1, last + 1), far, **STYLES[row.arm])
    exact = outcome.rows[-1]
    if exact.largest_loss_difference == 0:
        text = f"{TITLES[exact.arm]}: 0 at each of {exact.compared_losses} steps"
        axis.text(last, _FLOOR / 4, text, ha="right", va="bottom", color=STYLES[exact.arm]["color"], fontsize=10)
    axis.set_yscale("symlog", linthresh=_FLOOR, linscale=0.8)
    axis.set_yticks([0, 1e-4, 1e-3, 1e-2, 1e-1, 1], ["exactly 0", "0.0001", "0.001", "0.01", "0.1", "1"])
    axis.set_ylim(-_FLOOR / 5, 2)
    axis.set_ylabel("loss difference\nto the run never stopped")
    axis.set_xlabel("global step")


def _distances(run: Evidence, straight: Evidence, done: int, last: int) -> list[float]:
    return [abs(run.steps[number].loss - straight.steps[number].loss) for number in range(done + 1, last + 1)]
