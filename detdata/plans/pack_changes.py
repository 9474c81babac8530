"""Changes of a packed plan on the way: batch size, skipped steps, and seq_len. Each gives the phases anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from detdata.errors import ArgumentValueError
from detdata.plans.pack_phases import Phase, Terms, at, own_skips

Phases: TypeAlias = Sequence[Phase]
Rebuild: TypeAlias = Callable[[list[Terms]], Phases]


def resized(phases: Phases, step: int, batch_size: int, rebuild: Rebuild) -> Phases:
    """Return the phases that go on from `step` on another batch size. Later ones begin at their steps all the same."""
    index = at(phases, step)
    here, later = phases[index], phases[index + 1 :]
    for phase in later:
        if own_skips(phase):
            raise ArgumentValueError(
                f"batch size at step {step}: data of steps from {phase.first} on are skipped by sequences of another "
                "length; resize first, then skip"
            )
    plan = here.plan.resized(step - here.first, batch_size)
    done = rebuild([*(phase.terms for phase in phases[:index]), here.with_plan(plan, here.first)])
    for phase in later:
        done = relengthened(done, phase.first, phase.cut.seq_len, batch_size, rebuild)
    return done


def skipping(phases: Phases, first: int, last: int, rebuild: Rebuild) -> Phases:
    """Return the phases in which steps first … last - 1 are skipped, first < last, and later steps move up."""
    index = at(phases, last)
    moved = phases[index]
    begin = max(first, moved.first)
    plan = moved.plan.skipping(begin - moved.first, last - moved.first)
    kept = [phase.terms for phase in phases if phase.first < min(first, moved.first)]
    if first < moved.first and kept:
        kept[-1] = _until(phases[len(kept) - 1], first)
    later = [replace(phase.terms, step=phase.first - (last - first)) for phase in phases[index + 1 :]]
    return rebuild([*kept, moved.with_plan(plan, min(first, moved.first)), *later])


def relengthened(phases: Phases, step: int, seq_len: int, batch_size: int, rebuild: Rebuild) -> Phases:
    """Return the phases that go on from `step` on another seq_len, at the next unseen token; without later ones."""
    here = phases[at(phases, step)]
    place = here.place_in_data(step)
    skipped = [phase for phase in phases if phase.first > step and own_skips(phase)]
    if skipped or any(skip[2:] > here.position(step) for skip in here.plan.skips):
        raise ArgumentValueError(
            f"seq_len at step {step}: data of later steps are skipped by sequences of {here.cut.seq_len}; change "
            "seq_len first, then skip"
        )
    if not here.cut.alike and place[1]:
        epoch = here.plan.epoch(step - here.first)
        near = sorted({here.first + here.plan.first_step(epoch), here.first + here.plan.first_step(epoch + 1)})
        raise ArgumentValueError(
            f'seq_len at step {step}: with method="best_fit" it may change only where an epoch begins, and this step '
            f"lies inside epoch {epoch}; epochs begin near the steps {' and '.join(map(str, near))}"
        )
    kept = [phase for phase in phases if phase.first < step]
    if kept and kept[-1].cut.seq_len == seq_len and kept[-1].place_in_data(step) == place:  # no other length after all
        last = kept.pop()
        plan = last.plan.resized(step - last.first, batch_size)
        return rebuild([*(phase.terms for phase in kept), last.with_plan(plan, last.first)])
    terms = [phase.terms for phase in kept[:-1]] + [_until(phase, step) for phase in kept[-1:]]
    return rebuild([*terms, Terms(step, *place, seq_len, batch_size)])


def _until(phase: Phase, step: int) -> Terms:
    """The terms of a phase that ends before a step: what it would change later is left out."""
    terms = phase.terms
    resizes = tuple(item for item in terms.resizes if item[0] < step - phase.first)
    return replace(terms, resizes=resizes, skips=tuple(s for s in terms.skips if s[2:] <= phase.position(step)))
