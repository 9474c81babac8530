"""The demonstration: straight run, killed run, three ways to go on, compared."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from detdata.demo.children import ChildFailed, Children, Kill
from detdata.demo.corpus import write_corpus
from detdata.demo.evidence import Evidence, Row, check_ground, differences, measure, read_evidence
from detdata.demo.folder import CORPUS
from detdata.demo.settings import Settings
from detdata.demo.text import cut, read_text, split

RESUMED = ("weights", "no-position", "detdata")
_AT_ONCE = 2


class Watcher(Protocol):
    """Is told what happens while it happens; from several threads."""

    def begin(self, arm: str, last: int) -> None:
        """A run starts, to end after step `last`."""

    def step(self, arm: str, step: int, loss: float) -> None:
        """A run has done one more step."""

    def killed(self, kill: Kill) -> None:
        """The interrupted run has been killed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runs have shown. rows: straight, then as in RESUMED; problems: what the exact resume had different."""

    settings: Settings
    kill: Kill
    evidence: Mapping[str, Evidence]
    rows: tuple[Row, ...]
    problems: tuple[str, ...]


def run_demo(folder: Path, settings: Settings, watcher: Watcher) -> Outcome:
    """Run everything in `folder`, which must be prepared, and compare.

    Two runs at a time, each a process of its own. Whatever ends this call, no child is left.
    Raises ChildFailed, NotComparable; NoText.
    """
    settings = settings.with_kill_step()
    settings.save(folder / "settings.json")
    if settings.corpus is not None:
        write_corpus(folder / CORPUS, settings.corpus, cut(split(read_text())[0], settings.samples))
    kill = _run_all(folder, settings, watcher)
    arms = ("straight", "interrupted", *RESUMED)
    return conclude(settings, kill, {arm: read_evidence(folder / "runs" / arm) for arm in arms})


def conclude(settings: Settings, kill: Kill, evidence: Mapping[str, Evidence]) -> Outcome:
    """Compare the runs' evidence. Raises NotComparable where it shows nothing."""
    straight, interrupted = evidence["straight"], evidence["interrupted"]
    check_ground(straight, interrupted)
    rows = {arm: measure(evidence[arm], straight, interrupted) for arm in RESUMED}
    # The straight run's own line: it too "goes on" after the checkpoint's step, with itself.
    exact = evidence["detdata"]
    itself = measure(replace(straight, resumed_from=exact.resumed_from), straight, interrupted)
    problems = differences(exact, straight, rows["detdata"])
    return Outcome(settings, kill, evidence, (itself, *rows.values()), tuple(problems))


def _run_all(folder: Path, settings: Settings, watcher: Watcher) -> Kill:
    children = Children(folder, watcher.step)

    def run(arm: str) -> Kill | None:
        watcher.begin(arm, (settings.kill_step or 0) if arm == "interrupted" else settings.steps)
        return children.run(arm)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            straight, interrupted = pool.submit(run, "straight"), pool.submit(run, "interrupted")
            _finish([straight, interrupted], until=interrupted)
            kill = interrupted.result()
            if kill is None:
                raise ChildFailed(f"the run to be killed at step {settings.kill_step} came to its end")
            watcher.killed(kill)
            _finish([straight, *(pool.submit(run, arm) for arm in reversed(RESUMED))])
        except BaseException:
            children.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return kill


def _finish(futures: list[Future[Kill | None]], until: Future[Kill | None] | None = None) -> None:
    """Wait for all, or for `until`, and raise the first failure as soon as there is one."""
    pending = set(futures)
    while pending and not (until is not None and until.done()):
        done, pending = wait(pending, timeout=0.5, return_when=FIRST_EXCEPTION if until is None else "FIRST_COMPLETED")
        for future in done:
            future.result()
