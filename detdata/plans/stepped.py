"""What all plans of unequal batches share: a rank's part, steps of an epoch, consumed samples and back, digests."""

from __future__ import annotations

from abc import ABC, abstractmethod

from detdata.checks import as_int
from detdata.errors import ArgumentValueError
from detdata.orders.base import MAX_EPOCH
from detdata.plans.batch import Batch, check_division, part_of
from detdata.plans.digests import digest_of
from detdata.plans.plan import MAX_STEP
from detdata.records import Spec, canonical_json


class SteppedPlan(ABC):
    """A plan that supplies `batch`, `batch_size_at`, `spec`, and the arithmetic of epochs and consumed samples.

    Immutable; hashable; equal exactly if the specs are equal.
    """

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """Return the global batch of a step."""

    @abstractmethod
    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch."""

    @abstractmethod
    def spec(self) -> Spec:
        """Return plain JSON that says what the plan is."""

    @abstractmethod
    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one."""

    @abstractmethod
    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins."""

    @abstractmethod
    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count."""

    @abstractmethod
    def _step_of(self, consumed: int) -> tuple[int, int]:
        """(last step that begins at or before `consumed` samples, how many samples it begins before that)."""

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step: of one micro step, or of all of them where `micro_step` is None.

        Rank r of W takes rows r, r+W, r+2W … of each micro-batch. The parts are disjoint; their union is the batch.
        Raises ValueError if world_size x micro_steps does not divide the step's batch size. Cost O(batch).
        """
        size = self.batch_size_at(step)
        ranks, parts = check_division(size, world_size, micro_steps)
        number = as_int(rank, "rank", high=ranks - 1, why=f"; world_size is {ranks}")
        micro = range(parts)
        if micro_step is not None:
            one = as_int(micro_step, "micro_step", high=parts - 1, why=f"; micro_steps is {parts}")
            micro = range(one, one + 1)
        return part_of(self.batch(step), size, number, ranks, micro, parts)

    def steps(self, epoch: int = 0) -> int:
        """Return how many steps begin in an epoch."""
        return self.first_step(as_int(epoch, "epoch", high=MAX_EPOCH) + 1) - self.first_step(epoch)

    def step(self, consumed: int) -> int:
        """Return the step that begins after `consumed` samples: the inverse of `consumed`.

        Raises ValueError naming the two nearest edges for a count at which no step begins.
        """
        count = as_int(consumed, "consumed")
        step, beyond = self._step_of(count)
        if beyond:
            raise ArgumentValueError(
                f"consumed is {count}, but no step begins there: step {step} begins at {count - beyond} and step "
                f"{step + 1} at {self.consumed(step + 1)}. If the batch size was changed on the way, "
                "rebuild the plan with plan.resized(step, …)"
            )
        return step

    def digest(self, first: int, last: int) -> str:
        """Return the digest of the batches of steps first … last - 1: the same on any machine.

        Covers ids, their order, batch edges and padding (docs/spec.md, section 4). Cost O(samples).
        """
        begin = self._step(first, "first")
        return digest_of(self.batch, begin, as_int(last, "last", low=begin, high=MAX_STEP))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or canonical_json(self.spec()) == canonical_json(other.spec())

    def __hash__(self) -> int:
        return hash(canonical_json(self.spec()))

    def __repr__(self) -> str:
        text = canonical_json(self.spec()).decode()
        return f"<{type(self).__name__}: {text if len(text) <= 200 else text[:197] + '...'}>"

    @staticmethod
    def _step(value: object, name: str = "step") -> int:
        return as_int(value, name, high=MAX_STEP)
