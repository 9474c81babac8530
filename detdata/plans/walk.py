"""Global step <-> place in the data, by arithmetic: which epoch, where in it, how many samples, how many before.

Steps are grouped into spans: stretches in which every epoch has the same number of samples left and the batch size is
one. There are a few for each batch-size change or skip, however long the run, so a look-up is a bisection.
`q` is a sample's number among those left in its epoch (detdata.plans.epochs).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from detdata.errors import ArgumentValueError
from detdata.plans.epochs import Epochs


class Place(NamedTuple):
    """Where a global step begins."""

    epoch: int
    q: int  # number of its first sample among those left in the epoch
    batch_size: int
    real: int  # samples it consumes
    consumed: int  # samples consumed by all steps before it
    full: int  # whole batches from here on that follow each other in this epoch; 0 if this one is cut or crosses


class Walk(Protocol):
    """The arithmetic of one tail policy."""

    def place(self, step: int) -> Place:
        """Where a step begins."""

    def step_of(self, consumed: int) -> tuple[int, int]:
        """(last step that begins at or before `consumed` samples, how many samples it begins before that)."""

    def first_step(self, epoch: int) -> int:
        """The first step that begins in this epoch or a later one."""

    def step_at(self, epoch: int, q: int) -> int | None:
        """The step that consumes a sample; None if none does."""


class _Span(NamedTuple):
    step: int  # its first step …
    epoch: int  # … begins at (epoch, q)
    q: int  # above 0 only in a span of one epoch
    consumed: int
    size: int  # samples left in each of its epochs
    batch_size: int
    steps: int  # in each of its epochs
    samples: int  # consumed in each of its epochs


@dataclass(frozen=True)
class EpochWalk:
    """Tails "drop", "keep" and "pad": every epoch begins with a batch of its own."""

    spans: tuple[_Span, ...]
    keeps_tail: bool

    @staticmethod
    def build(epochs: Epochs, sizes: tuple[tuple[int, int], ...], *, keeps_tail: bool) -> EpochWalk:
        """Lay out the spans. sizes: (first step, batch size) in order of steps, the first one at step 0."""
        spans: list[_Span] = []
        step = epoch = q = consumed = 0
        for index, (_, batch_size) in enumerate(sizes):
            end = sizes[index + 1][0] if index + 1 < len(sizes) else None
            while end is None or step < end:
                size, after = epochs.run(epoch)
                left = size - q
                steps = -(-left // batch_size) if keeps_tail else left // batch_size
                count = 1 if q else None if after is None else after - epoch
                if steps:
                    samples = left if keeps_tail else steps * batch_size
                    spans.append(_Span(step, epoch, q, consumed, size, batch_size, steps, samples))
                elif count is None:
                    raise ArgumentValueError(_no_batch(epochs.n, batch_size))
                if count is None and end is None:
                    break
                if count is not None and (end is None or step + count * steps <= end):
                    step, epoch, q = step + count * steps, epoch + count, 0
                    consumed += count * samples if steps else 0
                elif end is not None:
                    full, rest = divmod(end - step, steps)
                    step, epoch, q = end, epoch + full, (q if full == 0 and rest else 0) + rest * batch_size
                    consumed += full * samples + rest * batch_size
        return EpochWalk(tuple(spans), keeps_tail)

    def place(self, step: int) -> Place:
        """Where a step begins."""
        span = self.spans[bisect_right(self.spans, step, key=lambda span: span.step) - 1]
        full, index = divmod(step - span.step, span.steps)
        q = (span.q if full == 0 else 0) + index * span.batch_size
        left = span.size - q
        consumed = span.consumed + full * span.samples + index * span.batch_size
        whole = min(left // span.batch_size, self._end(span) - step)
        return Place(span.epoch + full, q, span.batch_size, min(left, span.batch_size), consumed, whole)

    def step_of(self, consumed: int) -> tuple[int, int]:
        """(last step that begins at or before `consumed` samples, how many samples it begins before that)."""
        span = self.spans[bisect_right(self.spans, consumed, key=lambda span: span.consumed) - 1]
        full, rest = divmod(consumed - span.consumed, span.samples)
        index, beyond = divmod(rest, span.batch_size)
        return span.step + full * span.steps + index, beyond

    def first_step(self, epoch: int) -> int:
        """The first step that begins in this epoch or a later one."""
        index = bisect_right(self.spans, (epoch, -1), key=lambda span: (span.epoch, span.q)) - 1
        if index < 0:
            return 0
        span = self.spans[index]
        return min(span.step + (epoch - span.epoch) * span.steps, self._end(span))

    def step_at(self, epoch: int, q: int) -> int | None:
        """The step that consumes a sample; None if it falls into a dropped tail."""
        index = bisect_right(self.spans, (epoch, q), key=lambda span: (span.epoch, span.q)) - 1
        if index < 0:
            return None
        span = self.spans[index]
        if epoch > span.epoch and span.q:
            return None
        number = (q - span.q) // span.batch_size
        step = span.step + (epoch - span.epoch) * span.steps + number
        return step if number < span.steps and step < self._end(span) else None

    def _end(self, span: _Span) -> int:
        """First step after a span; beyond any step for the last one."""
        index = bisect_right(self.spans, span.step, key=lambda span: span.step)
        return self.spans[index].step if index < len(self.spans) else 2**200


@dataclass(frozen=True)
class StreamWalk:
    """Tail "carry": one endless stream of samples, cut into batches without regard to epochs."""

    epochs: Epochs
    parts: tuple[tuple[int, int, int], ...]  # (first step, consumed before it, batch size)

    @staticmethod
    def build(epochs: Epochs, sizes: tuple[tuple[int, int], ...]) -> StreamWalk:
        """Lay out the parts. sizes: (first step, batch size) in order of steps, the first one at step 0."""
        parts = [(0, 0, sizes[0][1])]
        for step, batch_size in sizes[1:]:
            first, consumed, size = parts[-1]
            parts.append((step, consumed + (step - first) * size, batch_size))
        return StreamWalk(epochs, tuple(parts))

    def place(self, step: int) -> Place:
        """Where a step begins."""
        index = bisect_right(self.parts, step, key=lambda part: part[0]) - 1
        first, base, batch_size = self.parts[index]
        consumed = base + (step - first) * batch_size
        epoch, q = self.epochs.split(consumed)
        end = self.parts[index + 1][0] if index + 1 < len(self.parts) else 2**200
        whole = min((self.epochs.run(epoch)[0] - q) // batch_size, end - step)
        return Place(epoch, q, batch_size, batch_size, consumed, whole)

    def step_of(self, consumed: int) -> tuple[int, int]:
        """(last step that begins at or before `consumed` samples, how many samples it begins before that)."""
        first, base, batch_size = self.parts[bisect_right(self.parts, consumed, key=lambda part: part[1]) - 1]
        steps, beyond = divmod(consumed - base, batch_size)
        return first + steps, beyond

    def first_step(self, epoch: int) -> int:
        """The first step that begins in this epoch or a later one."""
        step, beyond = self.step_of(self.epochs.before(epoch))
        return step + (1 if beyond else 0)

    def step_at(self, epoch: int, q: int) -> int | None:
        """The step that consumes a sample."""
        return self.step_of(self.epochs.before(epoch) + q)[0]


def _no_batch(n: int, batch_size: int) -> str:
    return (
        f"batch_size is {batch_size}, but an epoch has {n} samples: with tail='drop' it would have no batch at all; "
        "take a smaller batch_size, or tail='keep', 'pad' or 'carry'"
    )
