"""Global step -> place, for plans whose batches are of unequal size: spans of steps, each over a shape of an epoch.

A shape is what one epoch consists of: so many steps, so many samples, and how many samples come before each step. The
shape of whole epochs goes on for ever; a change in the middle of an epoch puts in the shape of what is left of that
epoch, and another one for those after it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from detdata.errors import ArgumentValueError


class Shape(Protocol):
    """The steps of an epoch, or of what a change left of one."""

    @property
    def steps(self) -> int:
        """How many steps."""

    @property
    def samples(self) -> int:
        """How many samples these consume."""

    def before(self, epoch: int, step: int) -> int:
        """Samples consumed before a step of it, 0 … steps."""

    def rest(self, epoch: int, step: int, size: int) -> Any:
        """The shape of what is unseen before a step of it, in batches of another size."""


class Change(NamedTuple):
    """What was changed: "resize" from step `first` on to `value`, or "skip" of the steps first … value - 1."""

    kind: str
    first: int
    value: int


class Place(NamedTuple):
    """Where a global step lies."""

    epoch: int
    step: int  # of the shape
    span: Span

    @property
    def consumed(self) -> int:
        """Samples consumed by all steps before it."""
        shape, began = self.span.shape, self.span.epoch
        inside = shape.before(self.epoch, self.step) - shape.before(began, self.span.at)
        return int(self.span.consumed + (self.epoch - began) * shape.samples + inside)


@dataclass(frozen=True, slots=True)
class Span:
    """Steps from `step` on: they begin at step `at` of `shape`, in `epoch`. whole: the epochs after it have it too."""

    step: int
    epoch: int
    at: int
    consumed: int
    shape: Any
    whole: bool


@dataclass(frozen=True, slots=True)
class Spans:
    """All spans of a plan, in order of their steps.

    Made by `of`, and changed by `resized` and `skipping`, which give new ones.
    """

    spans: tuple[Span, ...]

    @staticmethod
    def of(shape: Shape) -> Spans:
        """Return the spans of a plan that nothing was changed in."""
        return Spans((Span(0, 0, 0, 0, shape, whole=True),))

    def place(self, step: int) -> Place:
        """Where a step lies."""
        span = self.spans[bisect_right(self.spans, step, key=lambda span: span.step) - 1]
        full, at = (
            divmod(span.at + step - span.step, span.shape.steps) if span.whole else (0, span.at + step - span.step)
        )
        return Place(span.epoch + full, at, span)

    def step_of(self, consumed: int) -> tuple[int, int]:
        """(last step that begins at or before `consumed` samples, how many samples it begins before that)."""
        span = self.spans[bisect_right(self.spans, consumed, key=lambda span: span.consumed) - 1]
        shape = span.shape
        inside = consumed - span.consumed + shape.before(span.epoch, span.at)
        full, rest = divmod(inside, shape.samples) if span.whole else (0, inside)
        epoch = span.epoch + full
        low, high = 0, shape.steps  # before(low) <= rest < before(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shape.before(epoch, middle) <= rest else (low, middle)
        return span.step + full * shape.steps + low - span.at, rest - shape.before(epoch, low)

    def first_step(self, epoch: int) -> int:
        """The first step that begins in this epoch or a later one."""
        index = bisect_right(self.spans, (epoch, -1), key=lambda span: (span.epoch, span.at)) - 1
        if index < 0:
            return 0
        span = self.spans[index]
        later = (epoch - span.epoch - 1) * span.shape.steps if span.whole else 0
        step = span.step + span.shape.steps - span.at + later if epoch > span.epoch else span.step
        return min(step, self.end(index))

    def end(self, index: int) -> int:
        """First step after a span; beyond any step for the last one."""
        return self.spans[index + 1].step if index + 1 < len(self.spans) else 2**200

    def in_epoch(self, epoch: int) -> list[tuple[Span, int, int]]:
        """(span, step of its shape at which it begins to hold, step at which it ends) of all spans in an epoch."""
        found = []
        for index, span in enumerate(self.spans):
            if epoch < span.epoch or (not span.whole and epoch > span.epoch):
                continue
            begin = span.at if epoch == span.epoch else 0
            first = span.step + (epoch - span.epoch) * span.shape.steps - span.at  # global step of the shape's step 0
            stop = min(span.shape.steps, self.end(index) - first)
            if begin < stop:
                found.append((span, begin, stop))
        return found

    def resized(self, step: int, size: int, whole: Shape) -> Spans:
        """Return the spans with other batches from `step` on. whole: the shape of whole epochs of that size."""
        place = self.place(step)
        kept = tuple(span for span in self.spans if span.step < step)
        if place.step == 0 and place.span.whole:
            return Spans((*kept, Span(step, place.epoch, 0, place.consumed, whole, whole=True)))
        rest = place.span.shape.rest(place.epoch, place.step, size)
        after = step + rest.steps
        part = Span(step, place.epoch, 0, place.consumed, rest, whole=False)
        return Spans((*kept, part, Span(after, place.epoch + 1, 0, place.consumed + rest.samples, whole, whole=True)))

    def skipping(self, first: int, last: int) -> Spans:
        """Return the spans without what the steps first … last - 1 consume: later ones move up."""
        begin, end = self.place(first), self.place(last)
        kept = tuple(span for span in self.spans if span.step < first)
        moved = [Span(first, end.epoch, end.step, begin.consumed, end.span.shape, whole=end.span.whole)]
        for span in self.spans:
            if span.step > last:
                consumed = span.consumed - (end.consumed - begin.consumed)
                moved.append(Span(span.step - (last - first), span.epoch, span.at, consumed, span.shape, span.whole))
        return Spans((*kept, *moved))


def steps_now(changes: tuple[Change, ...]) -> list[int]:
    """Return the step at which each change is now, after the skips that were made later."""
    found = []
    for index, change in enumerate(changes):
        now = change.first
        for later in changes[index + 1 :]:
            if later.kind == "skip":
                now = now - (later.value - later.first) if now >= later.value else min(now, later.first)
        found.append(now)
    return found


def before_resize(changes: tuple[Change, ...], step: int) -> tuple[Change, ...]:
    """Return the changes that stay when the size changes at `step`: those of size at later steps give way.

    Raises ValueError where steps from a later one on are skipped already: what they were would change.
    """
    kept = []
    for index, (change, now) in enumerate(zip(changes, steps_now(changes), strict=True)):
        if change.kind == "skip" and now > step:
            raise ArgumentValueError(
                f"step is {step}, but steps from {now} on are skipped already: changes of this plan are made in the "
                "order of steps. Make this one first, on the plan without the skip"
            )
        skipped_since = any(later.kind == "skip" for later in changes[index + 1 :])
        if now < step or (now == step and (change.kind == "skip" or skipped_since)):
            kept.append(change)
            continue
        if now > step and any(later.kind == "skip" and later.value > change.first for later in changes[index + 1 :]):
            raise ArgumentValueError(
                f"step is {step}, but the steps that were skipped reach beyond step {change.first}, at which the size "
                "changes: make this change first, on the plan without the skip"
            )
    return tuple(kept)
