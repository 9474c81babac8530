"""Phases: a chain of plans, each for so many steps: sequence-length warm-up, curricula, another data set to end with.

Step s of the chain is a step of one of the plans, found by bisection, so any step costs what it costs there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, final

import numpy.typing as npt

from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.orders.base import MAX_EPOCH
from detdata.plans.batch import Batch
from detdata.plans.composite import (
    CompositePlan,
    as_plan,
    documents_of,
    epochs_begun,
    last_step,
    newest_epoch,
    rebuilt,
    when_from,
)
from detdata.plans.per_source import per_source_if_any
from detdata.plans.plan import MAX_STEP
from detdata.plans.protocol import AnyPlan
from detdata.plans.short_steps import short_steps
from detdata.records import Spec, from_spec, register_format

FORMAT = "detdata.phases/1"
Row: TypeAlias = tuple[AnyPlan, int | None] | tuple[AnyPlan, int, int | None]


class Phase(NamedTuple):
    """Steps `first_step`, first_step + 1, … of a plan: `steps` of them, or all that come."""

    plan: AnyPlan
    first_step: int
    steps: int | None


class _Link(NamedTuple):
    """A phase in its place. begin: its first step in the chain; end: the one after its last, MAX_STEP + 1 if none.

    shift: of the chain's epochs from the plan's own. consumed: samples before `begin`, less those that the plan would
    have consumed before `first_step`.
    """

    plan: AnyPlan
    first: int
    begin: int
    end: int
    shift: int
    consumed: int

    def local(self, step: int) -> int:
        return step - self.begin + self.first


@final
class Phases(CompositePlan):
    """A chain of plans: the steps of the first, then those of the second, and so on.

    phases: rows (plan, steps) or (plan, first_step, steps): so many steps of a plan, from its step 0 or `first_step`
    on. The last row has steps None: it goes on for ever. All plans are for one dataset: of the same `id_bound`, or, if
    they are packed, of the same number of documents.

    Each phase begins its data anew, and so do its epochs: they are numbered on from all epochs of the phases before, in
    `epoch` and in `Batch.epochs`, so no two passes over a sample share their randomness. With `first_step` the epochs
    that this leaves out are counted too. continues=True: the phases are the same data going on, so epochs are the
    plans' own; that nothing comes twice is then up to `first_step`. `Batch.start` stays the plan's.

    Immutable; equal exactly if the specs are equal. Raises TypeError, ValueError. For a warm-up of the length of packed
    sequences see `PackPlan.relengthened`, which goes on at the next unseen token.

    >>> from detdata import Plan, Shuffle, Subset
    >>> easy = Plan(Subset(Shuffle(1000, seed=1), range(200)), 50)
    >>> plan = Phases([(easy, 6), (Plan(Shuffle(1000, seed=2), 100), None)])
    >>> [(plan.epoch(step), len(plan.batch(step))) for step in (0, 5, 6, 16)]
    [(0, 50), (1, 50), (2, 100), (3, 100)]
    """

    def __init__(self, phases: Sequence[Row], *, continues: bool = False) -> None:
        if not isinstance(continues, bool):
            raise ArgumentTypeError(f"continues must be True or False, got {brief(continues)}")
        self._continues = continues
        self._phases = _as_phases(phases)
        self._links = _linked(self._phases, continues=continues)
        self._begins = [link.begin for link in self._links]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases, as (plan, first_step, steps)."""
        return self._phases

    @property
    def continues(self) -> bool:
        """Whether the phases are the same data going on."""
        return self._continues

    @property
    def parts(self) -> tuple[AnyPlan, ...]:
        """The plan of each phase."""
        return tuple(phase.plan for phase in self._phases)

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the plan is for; of packed plans the largest of theirs."""
        return max(plan.id_bound for plan in self.parts)

    @property
    def documents(self) -> int | None:
        """Of packed plans how many documents there are; None of others."""
        return documents_of(self._phases[0].plan)

    def _per_source(self, step: int) -> dict[str, int] | None:
        total: dict[str, int] = {}
        for link in self._links:
            if link.begin <= step:
                begin, end = (per_source_if_any(link.plan, at) for at in (link.first, link.local(min(step, link.end))))
                for name, count in (end or {}).items():
                    total[name] = total.get(name, 0) + count - (begin or {})[name]
        return total or None

    def _short_steps(self, first: int, last: int) -> Iterator[int]:
        ends = [*self._begins[1:], last]
        for link, begin, end in zip(self._links, self._begins, ends, strict=True):
            low, high = max(first, begin), min(last, end)
            if low < high:
                local = link.local(low)
                yield from (low + step - local for step in short_steps(link.plan, local, local + high - low))

    def phase_at(self, step: int) -> tuple[int, int]:
        """Return which phase a step belongs to, from 0 on, and which step of that phase's plan it is.

        >>> from detdata import Plan, Sequential
        >>> plan = Plan(Sequential(10), 2)
        >>> Phases([(plan, 3), (plan, 100, None)]).phase_at(5)
        (1, 102)
        """
        number = self._step(step)
        index = bisect_right(self._begins, number) - 1
        return index, self._links[index].local(number)

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: any step from 0 on, in any order of calls. Cost: that of the plan's."""
        link, local = self._at(step)
        return _shifted(link, link.plan.batch(local))

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step: that which the phase's plan gives it. Raises as that does."""
        link, local = self._at(step)
        return _shifted(link, link.plan.shard(local, rank, world_size, micro_step, micro_steps))

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch, a short last one as if it were whole."""
        link, local = self._at(step)
        return link.plan.batch_size_at(local)

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1, ascending."""
        begin, stop = self._step(first), max(self._step(last), self._step(first) + 1)
        found: set[int] = set()
        for link in self._links:
            low, high = max(begin, link.begin), min(stop, link.end)
            if low < high:
                found.update(link.plan.batch_sizes(link.local(low), min(link.local(high), MAX_STEP)))
        return tuple(sorted(found))

    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins: the plan's own, and all epochs of the phases before."""
        link, local = self._at(step)
        return link.plan.epoch(local) + link.shift

    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one.

        >>> from detdata import Plan, Sequential
        >>> chain = Phases([(Plan(Sequential(10), 2), 7), (Plan(Sequential(10), 5), None)])
        >>> [chain.first_step(epoch) for epoch in range(5)]
        [0, 5, 7, 9, 11]
        """
        number = as_int(epoch, "epoch", high=MAX_EPOCH + 1)
        for link in self._links[:-1]:
            step = link.begin - link.first + max(link.plan.first_step(max(0, number - link.shift)), link.first)
            if step < link.end:
                return step
        link = self._links[-1]
        return link.begin - link.first + max(link.plan.first_step(max(0, number - link.shift)), link.first)

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count."""
        link, local = self._at(step)
        return link.consumed + link.plan.consumed(local)

    def agrees(self, other: object, step: int) -> bool:
        """Return whether another plan has the same batches before a step, as far as specs tell.

        >>> from detdata import Plan, Sequential
        >>> first, rest = Plan(Sequential(10), 2), Plan(Sequential(10), 5)
        >>> one, other = Phases([(first, 7), (rest, None)]), Phases([(first, 9), (first, None)])
        >>> one.agrees(other, 7), one.agrees(other, 8)
        (True, False)
        """
        number = self._step(step)
        if not isinstance(other, Phases) or other.continues != self.continues:
            return False
        return _joined(self._links, number) == _joined(other._links, number)

    def spec(self) -> Spec:
        """Return plain JSON that says what the chain is: of each phase the plan's spec, first step and steps."""
        rows = [[phase.plan.spec(), phase.first_step, phase.steps] for phase in self._phases]
        return {"format": FORMAT, "parts": rows, "continues": self._continues}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], *lengths: npt.ArrayLike) -> Phases:
        """Rebuild the chain that `.spec()` described; lengths: those that its plans were made of, each array once.

        Raises UnknownFormat for another spec, ValueError where lengths lack.

        >>> from detdata import Plan, Shuffle
        >>> chain = Phases([(Plan(Shuffle(8), 2), 3), (Plan(Shuffle(8), 4), None)])
        >>> Phases.from_spec(chain.spec()) == chain
        True
        """
        plan: Phases = rebuilt(spec, FORMAT, lengths)
        return plan

    def _at(self, step: int) -> tuple[_Link, int]:
        index, local = self.phase_at(step)
        return self._links[index], local

    def _step_of(self, consumed: int) -> tuple[int, int]:
        begins = [self.consumed(link.begin) for link in self._links]
        link = self._links[bisect_right(begins, consumed) - 1]
        local = last_step(link.plan.consumed, consumed - link.consumed, min(link.local(link.end) - 1, MAX_STEP))
        return local - link.first + link.begin, consumed - link.consumed - link.plan.consumed(local)

    def _when_from(self, number: int, epoch: int, first: int) -> int | None:
        for link in self._links:
            if link.end <= first or epoch < link.shift:
                continue
            local = when_from(link.plan, number, epoch - link.shift, link.local(max(first, link.begin)))
            if local is not None and local < link.local(link.end):
                return local - link.first + link.begin
        return None

    def _newest(self, step: int) -> int:
        link, local = self._at(step)
        return newest_epoch(link.plan, local) + link.shift

    def _begun(self, step: int) -> int:
        if step == 0:
            return 0
        link, local = self._at(step - 1)
        return epochs_begun(link.plan, local + 1) + link.shift


def _shifted(link: _Link, batch: Batch) -> Batch:
    """Return a batch of a phase's plan as one of the chain."""
    step, epoch = batch.step - link.first + link.begin, batch.epoch + link.shift
    if link.shift == 0:
        return replace(batch, step=step)
    if int(batch.epochs.max(initial=0)) + link.shift > MAX_EPOCH:
        raise ArgumentValueError(f"step {step} lies in epoch {epoch}; epochs go up to 2**63 - 1")
    return replace(batch, step=step, epoch=epoch, epochs=batch.epochs + link.shift)


def _linked(phases: tuple[Phase, ...], *, continues: bool) -> tuple[_Link, ...]:
    """Put phases one behind the other."""
    links: list[_Link] = []
    begin = shift = consumed = 0
    for plan, first, steps in phases:
        end = MAX_STEP + 1 if steps is None else begin + steps
        if steps is not None and max(end, first + steps) > MAX_STEP:
            raise ArgumentValueError(f"phases: steps go up to 2**63 - 1, and phase {len(links)} goes beyond")
        if continues and links and plan.epoch(first) < newest_epoch(links[-1].plan, links[-1].local(begin) - 1):
            raise ArgumentValueError(
                f"continues=True, but phase {len(links)} begins in epoch {plan.epoch(first)}, before the one that the "
                "phase before ends in: give it the first_step that goes on from there, or leave continues out"
            )
        link = _Link(plan, first, begin, end, shift, consumed - plan.consumed(first))
        links.append(link)
        if steps is not None:
            last = first + steps
            consumed = link.consumed + plan.consumed(last)
            shift += 0 if continues else max(epochs_begun(plan, last), plan.epoch(last - 1) + 1)
            begin = end
    if shift > MAX_EPOCH:
        raise ArgumentValueError(f"phases: epochs go up to 2**63 - 1, and those before the last phase are {shift}")
    return tuple(links)


def _joined(links: Sequence[_Link], step: int) -> list[tuple[object, ...]]:
    """What decides the batches of the steps before one: of each phase the plan, where it begins, and its epochs."""
    held = [link for link in links if link.begin < step]
    return [(link.plan, link.first, link.begin, link.shift) for link in held]


def _as_phases(rows: object) -> tuple[Phase, ...]:
    """Return phases, checked to be of one dataset and to end with one that goes on for ever."""
    if not isinstance(rows, (list, tuple)) or any(not isinstance(row, (list, tuple)) for row in rows):
        raise ArgumentTypeError(f"phases must be rows (plan, steps) or (plan, first_step, steps), got {brief(rows)}")
    phases: list[Phase] = []
    for number, row in enumerate(rows):
        if len(row) not in (2, 3):
            raise ArgumentTypeError(
                f"phases[{number}] must be (plan, steps) or (plan, first_step, steps), got {brief(row)}"
            )
        plan, *first, steps = row
        name, is_last = f"phases[{number}]", number == len(rows) - 1
        if (steps is None) != is_last:
            raise ArgumentValueError(
                f"{name}: steps must be {'None, as the last phase goes on for ever' if is_last else 'an integer'}; "
                f"got {brief(steps)}"
            )
        phases.append(
            Phase(
                as_plan(plan, f"{name}: plan"),
                as_int(first[0] if first else 0, f"{name}: first_step", high=MAX_STEP),
                None if steps is None else as_int(steps, f"{name}: steps", low=1, high=MAX_STEP),
            )
        )
    if not phases:
        raise ArgumentValueError("phases is empty: give at least one, (plan, None)")
    _check_dataset([phase.plan for phase in phases])
    return tuple(phases)


def _check_dataset(plans: Sequence[AnyPlan]) -> None:
    kinds = [(documents_of(plan), None if documents_of(plan) is not None else plan.id_bound) for plan in plans]
    for number, (documents, samples) in enumerate(kinds):
        if (documents, samples) != kinds[0]:
            said = [f"{one} documents, packed" if one is not None else f"{bound} samples" for one, bound in kinds]
            raise ArgumentValueError(
                f"phases must be for one dataset, but phase 0 is of {said[0]} and phase {number} of {said[number]}; "
                "put the datasets together, and choose from them by Subset(Concat({…}), ids)"
            )


def _build(spec: Spec) -> Phases:
    rows = spec["parts"]
    if not isinstance(rows, list) or any(not isinstance(row, list) or len(row) != 3 for row in rows):
        raise UnknownFormat(f"parts of a {FORMAT} spec must be rows [plan, first step, steps], got {brief(rows)}")
    parts: list[Row] = [(as_plan(from_spec(plan), "parts"), first, steps) for plan, first, steps in rows]
    return Phases(parts, continues=spec["continues"])


register_format(FORMAT, ("parts", "continues"), _build)
