"""BucketPlan: batches of samples of like length, so that little is padded, at any step by arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.orders.base import MAX_EPOCH
from detdata.orders.tables import Tables, rebuild
from detdata.plans.batch import Batch
from detdata.plans.bucket_rules import BucketTail, Oversized, Rules, bounds_of, check_choice, check_long
from detdata.plans.bucket_shape import FORMAT, BucketShape, members, place_of
from detdata.plans.bucket_spec import lengths_at_hand, read_changes
from detdata.plans.lengths import MAX_LENGTH, LengthIndex, as_lengths, lengths_digest
from detdata.plans.plan import MAX_BATCH
from detdata.plans.runs import Runs
from detdata.plans.spans import Change, Spans, before_resize, steps_now
from detdata.plans.stepped import SteppedPlan
from detdata.records import Spec, canonical_json, register_format

_KEYS = (
    *("lengths", "bounds", "batch_size", "max_tokens", "divisor", "seed", "tail"),
    *("longest_first", "max_length", "oversized", "changes"),
)
_MAX_TOKENS = 2**40


@final
class BucketPlan(SteppedPlan):
    """Which samples every global step consumes, those of one step of like length.

    lengths: int[n], the length of each sample, any integer dtype, memory-mapped too. What cannot be
    written to, as a map opened for reading, is not copied; the rest is, in the smallest type that holds it.
    batch_size: samples of a global step; or max_tokens: at most so many padded tokens in one (samples x the bucket's
    largest length). boundaries: the largest length of each bucket, ascending (longer samples make one more bucket); or
    num_buckets: how many, spread so that little is padded; by default up to 64.
    tail: what happens to the samples of an epoch that fill no batch, fewer than one batch in all: "drop" leaves them
    out (`dropped` says how many; other ones in each epoch), "keep" makes a short last batch, "pad" fills that up with
    its own samples, marked in `Batch.real`. divisor: what every batch size is a multiple of, so world_size x
    micro_steps; a short batch that is kept is filled up to one, marked likewise.
    longest_first: begin epoch 0 with the costliest batch, so that too little memory shows at once.
    max_length: longer samples are oversized, as are those too long for max_tokens. oversized: "error" (naming the
    first), "clip" (they count as that long, and are to be cut) or "alone" (in batches of `divisor`, over the budget).

    Of a batch with some of a bucket all are, but for few that are mixed from neighbouring buckets. The rows of a batch
    go from the longest to the shortest, so ranks are even in length. Which samples come together, and the order of
    batches, change with every epoch. Immutable; equal exactly if the specs are equal. Memory: 4 bytes a sample.
    Raises ValueError, TypeError.

    >>> plan = BucketPlan([3, 90, 5, 80, 4, 6], batch_size=2, boundaries=[10])
    >>> [sorted(plan.batch(step).ids.tolist()) in ([1, 3], [0, 2], [0, 4], [0, 5], [2, 4], [2, 5], [4, 5])
    ...  for step in range(plan.steps())]
    [True, True, True]
    """

    def __init__(
        self,
        lengths: npt.ArrayLike,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        boundaries: npt.ArrayLike | None = None,
        num_buckets: int | None = None,
        seed: int = 0,
        tail: BucketTail = "drop",
        divisor: int = 1,
        longest_first: bool = False,
        max_length: int | None = None,
        oversized: Oversized = "error",
    ) -> None:
        array = as_lengths(lengths)
        self._tokens = max_tokens is not None
        if (batch_size is None) == (max_tokens is None):
            raise ArgumentTypeError("give batch_size or max_tokens, one of them")
        self._divisor = as_int(divisor, "divisor", low=1, high=MAX_BATCH)
        self._size = self._checked(batch_size, max_tokens)
        if not isinstance(longest_first, bool):
            raise ArgumentTypeError(f"longest_first must be True or False, got {longest_first!r}")
        self._longest_first = longest_first
        self._max_length = None if max_length is None else as_int(max_length, "max_length", low=1, high=MAX_LENGTH)
        kind = check_choice(oversized, "oversized", Oversized)
        limit = MAX_LENGTH if self._max_length is None else self._max_length
        why = f"max_length is {self._max_length}"
        if self._tokens and self._size // self._divisor < limit:
            limit = self._size // self._divisor
            why = f"max_tokens is {self._size}, which {self._divisor} samples (divisor) of more than {limit} exceed"
        if kind == "error":
            check_long(array, limit, why)
        bounds = bounds_of(array, boundaries, num_buckets, limit, kind)
        index = LengthIndex(array, bounds)
        checked: BucketTail = check_choice(tail, "tail", BucketTail)
        self._rules = Rules(index, self._tokens, self._divisor, as_seed(seed), checked, limit, kind)
        self._changes: tuple[Change, ...] = ()
        self._spans = Spans.of(self._whole(self._size))

    @property
    def lengths(self) -> npt.NDArray[Any]:
        """The lengths, in the type in which they are held."""
        return self._rules.index.lengths

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the plan is for."""
        return int(self.lengths.size)

    @property
    def batch_size(self) -> int | None:
        """Samples of a global step, as given; None if the plan goes by max_tokens."""
        return None if self._tokens else self._size

    @property
    def max_tokens(self) -> int | None:
        """Padded tokens of a global step, as given; None if the plan goes by batch_size."""
        return self._size if self._tokens else None

    @property
    def seed(self) -> int:
        """The seed."""
        return self._rules.seed

    @property
    def tail(self) -> str:
        """What happens to the samples of an epoch that fill no batch."""
        return self._rules.tail

    @property
    def boundaries(self) -> Int64Array:
        """The largest length of each bucket, int64[buckets]."""
        return self._rules.index.bounds

    @property
    def bucket_sizes(self) -> Int64Array:
        """Samples of each bucket, int64[buckets]."""
        return self._rules.index.sizes

    @property
    def changes(self) -> tuple[Change, ...]:
        """What `resized` and `skipping` have changed, in order."""
        return self._changes

    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one."""
        return self._spans.first_step(as_int(epoch, "epoch", high=MAX_EPOCH + 1))

    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins."""
        return self._spans.place(self._step(step)).epoch

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count. O(buckets).

        >>> BucketPlan([1] * 10, 4).consumed(2)
        8
        """
        return self._spans.place(self._step(step)).consumed

    def _step_of(self, consumed: int) -> tuple[int, int]:
        return self._spans.step_of(consumed)

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: any step from 0 on, in any order of calls. `width`: its longest sample.

        Raises ValueError for a negative step, TypeError for no integer. Cost O(batch + buckets).

        >>> BucketPlan([3, 90, 5, 80], 2, boundaries=[10], longest_first=True).batch(0).width
        90
        """
        number = self._step(step)
        place = self._spans.place(number)
        shape, epoch = place.span.shape, place.epoch
        batched = shape.batch(epoch, place.step)
        ids = members(self._rules, epoch, batched.pieces, self._swap)
        lengths = self._rules.lengths(ids)
        ids = ids[np.lexsort((ids, -lengths))]
        wanted = self._rows(ids.size, batched.size)
        rows = np.arange(wanted) % ids.size
        epochs = np.full(wanted, epoch, dtype=np.int64)
        real = np.arange(wanted) < ids.size
        start = shape.seen + shape.before(epoch, place.step)
        return Batch(number, epoch, start, ids[rows], real, epochs, width=int(lengths.max()))

    def _rows(self, held: int, size: int) -> int:
        """Rows of a batch that holds so many samples, of a batch of `size`."""
        if self.tail == "pad":
            return size
        return held if held == size else min(size, -(-held // self._divisor) * self._divisor)

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch (a kept last batch of an epoch is shorter)."""
        place = self._spans.place(self._step(step))
        return int(place.span.shape.batch(place.epoch, place.step).size)

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1, ascending."""
        begin, end = self._step(first), self._step(last)
        found: set[int] = set()
        for index, span in enumerate(self._spans.spans):
            if span.step < max(end, begin + 1) and self._spans.end(index) > begin:
                found |= span.shape.nominal_sizes
        return tuple(sorted(found))

    def dropped(self, epoch: int = 0) -> int:
        """Return how many samples an epoch leaves out because they fill no batch; skipped ones do not count.

        >>> BucketPlan([1] * 10, 4).dropped()
        2
        """
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        for span in self._spans.spans:
            if span.epoch == number and not span.shape.steps:  # a change of size left too few for a batch
                return int(span.shape.left)
        held = self._spans.in_epoch(number)
        ends = [span.shape for span, _, stop in held if stop == span.shape.steps]
        return int(ends[-1].left) if ends and self.tail == "drop" else 0

    def when(self, id: int, epoch: int = 0) -> int | None:
        """Return the step in which a sample is used in an epoch; None if that epoch drops or skips it.

        Raises IndexError for an id that is none. Cost O(log n + buckets).

        >>> plan = BucketPlan([3, 90, 5, 80], 2, boundaries=[10])
        >>> 3 in plan.batch(plan.when(3)).ids
        True
        """
        checked = as_int64(as_int(id, "id"), "id", below=self.id_bound, what="sample id")
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        for span, begin, stop in self._spans.in_epoch(number):
            bucket, place = place_of(self._rules, number, int(checked), self._swap)
            at = span.shape.find(number, bucket, place)
            if at is not None and begin <= at < stop:
                return int(span.step + (number - span.epoch) * span.shape.steps + at - span.at)
        return None

    def resized(self, step: int, batch_size: int | None = None, *, max_tokens: int | None = None) -> BucketPlan:
        """Return the plan whose batches have another size from `step` on, of exactly the samples not seen before.

        Give what the plan was made with, batch_size or max_tokens. Steps before keep their batches; later changes of
        size are replaced. Raises ValueError if steps from a later one on are skipped already; TypeError.

        >>> plan = BucketPlan(list(range(1, 25)), 4).resized(2, 8)
        >>> len(plan.batch(1)), len(plan.batch(2)), plan.steps()
        (4, 8, 4)
        """
        if (max_tokens is None) == self._tokens:
            raise ArgumentTypeError(f"resized: this plan goes by {'max_tokens' if self._tokens else 'batch_size'}")
        first, size = self._step(step), self._checked(batch_size, max_tokens)
        return self._changed((*before_resize(self._changes, first), Change("resize", first, size)))

    def skipping(self, first: int, last: int) -> BucketPlan:
        """Return the plan in which the samples of steps first … last - 1 are never trained on; later ones move up.

        `batch(first)` is what `batch(last)` was; a later change of size moves up too. Raises ValueError, TypeError.

        >>> plan = BucketPlan(list(range(1, 25)), 4)
        >>> plan.skipping(1, 3).batch(1).ids.tolist() == plan.batch(3).ids.tolist()
        True
        """
        begin = self._step(first, "first")
        end = self._step(last, "last")
        if end < begin:
            raise ArgumentValueError(f"last must be at least first, {begin}; got {end}")
        return self if begin == end else self._changed((*self._changes, Change("skip", begin, end)))

    def spec(self) -> Spec:
        """Return plain JSON that says what the plan is; lengths by their digest: see `BucketPlan.from_spec`."""
        return {
            "format": FORMAT,
            "lengths": {"count": self.id_bound, "digest": self._lengths_digest},
            "bounds": self.boundaries.tolist(),
            "batch_size": self.batch_size,
            "max_tokens": self.max_tokens,
            "divisor": self._divisor,
            "seed": self.seed,
            "tail": self.tail,
            "longest_first": self._longest_first,
            "max_length": self._max_length,
            "oversized": self._rules.oversized,
            "changes": [list(change) for change in self._changes],
        }

    @classmethod
    def from_spec(cls, spec: Spec, lengths: npt.ArrayLike) -> BucketPlan:
        """Rebuild the plan that `.spec()` described, about the same lengths. Raises ValueError for others."""
        if not isinstance(spec, Mapping) or spec.get("format") != FORMAT:
            raise UnknownFormat(f"spec must be one of {FORMAT}")
        array = as_lengths(lengths)
        digest = lengths_digest(array)
        found = {"count": int(array.size), "digest": digest}
        if spec.get("lengths") != found:
            raise ArgumentValueError(
                f"lengths are not those of the spec: it says {brief(spec.get('lengths'))}, these are {found}"
            )
        plan = rebuild(spec, {digest: array})
        return cast("BucketPlan", plan)

    @classmethod
    def _of(cls, spec: Spec, array: npt.NDArray[Any]) -> BucketPlan:
        plan = cls(
            array,
            spec["batch_size"],
            max_tokens=spec["max_tokens"],
            boundaries=spec["bounds"],
            **{key: spec[key] for key in ("seed", "tail", "divisor", "longest_first", "max_length", "oversized")},
        )
        check = (lambda size: plan._checked(None, size)) if plan._tokens else (lambda size: plan._checked(size, None))
        changes = read_changes(spec["changes"], check)
        made = plan._changed(changes)
        if canonical_json(made.spec()) != canonical_json(dict(spec)):
            raise UnknownFormat(f"a {FORMAT} spec is not in its one form; it stands for {brief(made.spec())}")
        return made

    def _size_at(self, step: int) -> int:
        """The batch_size, or max_tokens, that holds at a step."""
        now = [
            c.value
            for c, at in zip(self._changes, steps_now(self._changes), strict=True)
            if c.kind == "resize" and at <= step
        ]
        return now[-1] if now else self._size

    def _past(self, step: int) -> tuple[object, ...]:
        """What decides the batches before a step."""
        made = [change for change, now in zip(self._changes, steps_now(self._changes), strict=True) if now < step]
        return made, self.consumed(step), self.epoch(step)

    def _tables(self) -> Tables:
        return {self._lengths_digest: self.lengths}

    def __reduce__(self) -> tuple[Any, ...]:
        return (rebuild, (self.spec(), self._tables()))

    @property
    def _swap(self) -> tuple[int, int] | None:
        """Where in epoch 0 the longest sample was put: as the first shape has it, so have those made of its rest."""
        swap: tuple[int, int] | None = self._spans.spans[0].shape.swap
        return swap

    @cached_property
    def _lengths_digest(self) -> str:
        return lengths_digest(self.lengths)

    def _checked(self, batch_size: object, max_tokens: object) -> int:
        if self._tokens:
            return as_int(max_tokens, "max_tokens", low=1, high=_MAX_TOKENS)
        size = as_int(batch_size, "batch_size", low=1, high=MAX_BATCH)
        if size % self._divisor:
            raise ArgumentValueError(f"batch_size {size} is not a multiple of divisor, {self._divisor}")
        return size

    def _whole(self, size: int, *, first: bool = True) -> BucketShape:
        runs = tuple(Runs.of([(0, count)]) for count in self.bucket_sizes.tolist())
        shape = BucketShape(self._rules, size, runs, 0, first=first and self._longest_first)
        if not shape.steps:
            raise ArgumentValueError(
                f"{'max_tokens' if self._tokens else 'batch_size'} is {size}, but an epoch of {self.id_bound} samples "
                "has not one batch of that size: with tail='drop' there would be no batch at all; take a smaller size, "
                "or tail='keep' or 'pad'"
            )
        return shape

    def _changed(self, changes: tuple[Change, ...]) -> BucketPlan:
        made = object.__new__(BucketPlan)
        made.__dict__.update({key: value for key, value in self.__dict__.items() if not key.startswith("_spans")})
        made._changes = changes
        spans = Spans.of(self._whole(self._size))
        for change in changes:
            if change.kind == "resize":
                spans = spans.resized(change.first, change.value, self._whole(change.value, first=change.first == 0))
            else:
                spans = spans.skipping(change.first, change.value)
        made._spans = spans
        return made


def _build(spec: Spec) -> BucketPlan:
    array = lengths_at_hand(spec["lengths"], "BucketPlan.from_spec(spec, lengths)")
    return BucketPlan._of(spec, array)


register_format(FORMAT, _KEYS, _build)
