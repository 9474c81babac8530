"""A packed plan as a run of phases: each a plain `Plan` over the numbers of its sequences, from a step on.

All but one phase come from a seq_len that changes on the way. Tails, batch sizes, skipping and counting are those of
`Plan`; here they are put one behind the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from detdata.checks import as_int
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.orders.base import MAX_EPOCH
from detdata.plans.epochs import Skip
from detdata.plans.pack_cuts import Cut
from detdata.plans.plan import MAX_STEP, Plan, Tail
from detdata.plans.walk import Place
from detdata.records import Spec

Changes: TypeAlias = tuple[tuple[int, int], ...]
_NEVER = 2**200  # beyond any step


class Maker(Protocol):
    """What makes cuts of given documents."""

    def __call__(self, seq_len: int, *, epoch: int, token: int, base: int) -> Cut:
        """Return a cut; see detdata.plans.pack_cuts."""
        ...


@dataclass(frozen=True)
class Terms:
    """What a phase is made of, and all that a spec says of it. step: its first one. epoch, token: where its cut begins.

    resizes: rows (step counted from the phase's first one, batch size). skips: as a `Plan` has them, with what came
    before the phase among them.
    """

    step: int
    epoch: int
    token: int
    seq_len: int
    batch_size: int
    resizes: Changes = ()
    skips: tuple[Skip, ...] = ()

    def spec(self) -> Spec:
        """Return the terms as plain JSON; there all steps are those of the run."""
        return {
            "step": self.step,
            "epoch": self.epoch,
            "token": self.token,
            "seq_len": self.seq_len,
            "batch_size": self.batch_size,
            "resizes": [[self.step + step, size] for step, size in self.resizes],
            "skips": [list(skip) for skip in self.skips],
        }

    @staticmethod
    def read(spec: Any) -> Terms:
        """Return the terms that a spec gives. Raises TypeError, ValueError."""
        if not isinstance(spec, dict) or set(spec) != set(_KEYS):
            raise ArgumentValueError(f"a phase has the keys {sorted(_KEYS)}, got {str(spec)[:200]}")
        step, epoch, token, seq_len, batch_size = (as_int(spec[key], key) for key in _KEYS[:5])
        if not isinstance(spec["resizes"], list) or not isinstance(spec["skips"], list):
            raise ArgumentTypeError("resizes and skips of a phase must be lists")
        resizes = tuple((as_int(first, "resizes", low=step) - step, size) for first, size in _pairs(spec["resizes"]))
        return Terms(step, epoch, token, seq_len, batch_size, resizes, tuple(spec["skips"]))


_KEYS = ("step", "epoch", "token", "seq_len", "batch_size", "resizes", "skips")


@dataclass(frozen=True)
class Phase:
    """A phase, built. Steps of `plan` are counted from `first`; `consumed` sequences came before it."""

    terms: Terms
    cut: Cut
    plan: Plan
    consumed: int

    @property
    def first(self) -> int:
        """Its first step."""
        return self.terms.step

    def place(self, step: int) -> Place:
        """Where a step of the run begins, by the phase's own coordinates."""
        return self.plan._walk.place(step - self.first)

    def position(self, step: int) -> tuple[int, int]:
        """(epoch, position) at which a step of the run begins."""
        place = self.place(step)
        return place.epoch, self.plan._epochs.position(place.epoch, place.q)

    def place_in_data(self, step: int) -> tuple[int, int]:
        """(epoch, token) at which a step begins; for best_fit the second is 0 at an epoch's beginning only."""
        epoch, position = self.position(step)
        return epoch, self.cut.edge(position, epoch)[0]

    def with_plan(self, plan: Plan, first: int) -> Terms:
        """Return the terms of this phase with another plan, beginning at another step."""
        old = self.terms
        return Terms(first, old.epoch, old.token, old.seq_len, plan.batch_size, plan.resizes, plan.skips)

    def first_used(self, document: int, length: int, epoch: int) -> int | None:
        """The first step of the run in which this phase, had it no end, uses a token of a document."""
        holes = self.plan._epochs.holes(epoch)
        for begin, stop in self.cut.positions_of(document, length, epoch).tolist():
            position = begin
            for hole, after in holes:
                if hole <= position:
                    position = max(position, after)
            if position < stop:
                q = self.plan._epochs.q(epoch, position)
                step = None if q is None else self.plan._walk.step_at(epoch, q)
                return None if step is None else self.first + step  # what is dropped is the rest of the epoch
        return None

    def tokens(self, step: int) -> int:
        """Tokens that the steps before a step of the run consume, as far as they are of this phase."""
        place = self.place(step)
        total = self._tokens(place.epoch, place.q)
        for begin, end in pairwise(self._breaks(place.epoch)):
            count = self._samples(begin)
            if self.cut.alike:
                total += (end - begin) * self._tokens(begin, count)
            else:
                total += sum(self._tokens(epoch, count) for epoch in range(begin, end))
        return total

    def _breaks(self, epoch: int) -> list[int]:
        """0 … epoch, cut where an epoch is not as the one before: the same part of it is used between two of them."""
        changed = [
            step for first, _ in self.plan.resizes for step in (first - 1, first)
        ]  # before it a rest may be left
        marks = {0, self.cut.epoch, *map(self.plan.epoch, changed)}
        marks |= {mark for first, _, last, _ in self.plan.skips for mark in (first, last)}
        return sorted({min(mark + after, epoch) for mark in marks for after in (0, 1)} | {0, epoch})

    def _samples(self, epoch: int) -> int:
        """Sequences that an epoch which is over has given."""
        if self.plan.tail == "carry":
            return self.plan._epochs.run(epoch)[0]
        return self.plan.consumed(self.plan.first_step(epoch + 1)) - self.plan.consumed(self.plan.first_step(epoch))

    def _tokens(self, epoch: int, count: int) -> int:
        """Tokens of the first `count` sequences that are left of an epoch."""
        ranges, position, left = [], 0, count
        for hole, after in (*self.plan._epochs.holes(epoch), (self.cut.order.size, 0)):
            stop = min(hole, position + left)
            if stop > position:
                ranges.append((position, stop))
                left -= stop - position
            position = after
        return self.cut.tokens(np.array(ranges, dtype=np.int64).reshape(-1, 2), epoch)


def build(terms: Sequence[Terms], tail: Tail, make: Maker) -> tuple[Phase, ...]:
    """Return the phases of some terms. Raises ValueError, TypeError where they are none."""
    phases: list[Phase] = []
    for one in terms:
        before = phases[-1] if phases else None
        base = 0 if before is None else _base(before, one)
        cut = make(one.seq_len, epoch=one.epoch, token=one.token, base=base)
        plan = Plan(cut.order, one.batch_size, tail, one.resizes, one.skips or _begin(cut))
        _check(one, cut, plan, before)
        consumed = 0 if before is None else before.consumed + before.place(one.step).consumed
        settled = Terms(one.step, one.epoch, one.token, cut.seq_len, plan.batch_size, plan.resizes, plan.skips)
        phases.append(Phase(settled, cut, plan, consumed))
    return tuple(phases)


def _begin(cut: Cut) -> tuple[Skip, ...]:
    """The skip of all that lies before a cut."""
    return ((0, 0, cut.epoch, cut.gap),) if cut.epoch or cut.gap else ()


def _base(before: Phase, terms: Terms) -> int:
    """How many sequences of the epoch are numbered before a phase begins in it."""
    cut = before.cut
    first, base = (cut.token, cut.base) if cut.epoch == terms.epoch else (0, 0)
    return base - (first - terms.token) // cut.seq_len


def _check(terms: Terms, cut: Cut, plan: Plan, before: Phase | None) -> None:
    begin = _begin(cut)
    if begin and not (plan.skips and plan.skips[0][:2] == (0, 0) and plan.skips[0][2:] >= begin[0][2:]):
        raise ArgumentValueError(
            f"phase at step {terms.step}: its skips must begin with {list(begin[0])}, all that lies before it"
        )
    if before is None:
        rises = terms.step == 0
    else:
        rises = terms.step > before.first and (terms.epoch, terms.token) >= before.place_in_data(terms.step)
    if not rises:
        raise ArgumentValueError(
            f"phases must begin with step 0, have rising steps, and each go on where the one before it ends or later; "
            f"the one at step {terms.step} does not"
        )
    as_int(terms.epoch, "phase: epoch", high=MAX_EPOCH)
    as_int(terms.step, "phase: step", high=MAX_STEP)


def own_skips(phase: Phase) -> tuple[Skip, ...]:
    """The skips of a phase without that of what lies before it."""
    begin = _begin(phase.cut)
    return phase.plan.skips[1:] if phase.plan.skips[:1] == begin else phase.plan.skips


def at(phases: Sequence[Phase], step: int) -> int:
    """Return the index of the phase that a step belongs to."""
    return sum(phase.first <= step for phase in phases) - 1


def ends(phases: Sequence[Phase]) -> Iterator[tuple[Phase, int]]:
    """Yield each phase with the first step that is no longer its own; of the last one a number beyond any step."""
    yield from zip(phases, [*(phase.first for phase in phases[1:]), _NEVER], strict=True)


def numbering(phases: Sequence[Phase], epoch: int) -> list[Cut]:
    """Return the cuts that an epoch's sequences are numbered by, in order; each begins at its `base`."""
    before = [phase.cut for phase in phases if phase.cut.epoch < epoch]
    inside = [phase.cut for phase in phases if phase.cut.epoch == epoch]
    return [*before[-1:], *inside] or [phases[0].cut]


def _pairs(rows: list[Any]) -> Iterator[tuple[Any, Any]]:
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:
            raise ArgumentTypeError(f"resizes must be rows of 2 integers, got {str(row)[:80]}")
        yield row[0], row[1]
