"""EveryEpoch: a plan seen with epochs of a given number of steps, whatever the epochs of its data are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, final

import numpy.typing as npt

from detdata.checks import as_int
from detdata.orders.base import MAX_EPOCH
from detdata.plans.batch import Batch
from detdata.plans.composite import CompositePlan, as_plan, documents_of, epochs_begun, first_use, rebuilt
from detdata.plans.per_source import per_source_if_any
from detdata.plans.plan import MAX_STEP
from detdata.plans.protocol import AnyPlan
from detdata.plans.short_steps import short_steps
from detdata.records import Spec, from_spec, register_format

FORMAT = "detdata.every_epoch/1"


@final
class EveryEpoch(CompositePlan):
    """The same batches as a plan's, with an epoch of `steps` steps: to validate and to save at even distances.

    plan: any plan. steps: of each epoch. Epoch e is the steps e·steps … (e + 1)·steps - 1, so `epoch`, `first_step`,
    `steps`, `when` and `Batch.epoch` go by it; `Batch.epochs`, which seeds what is random about a sample, stays the
    data's own, as all else does. Immutable; equal exactly if the specs are equal. Raises TypeError, ValueError.

    >>> from detdata import Plan, Shuffle
    >>> view = EveryEpoch(Plan(Shuffle(10**9), 512), steps=1000)
    >>> view.epoch(2500), view.steps(7), view.batch(2500).epochs.max()
    (2, 1000, np.int64(0))
    """

    def __init__(self, plan: AnyPlan, steps: int) -> None:
        self._plan = as_plan(plan, "plan")
        self._length = as_int(steps, "steps", low=1, high=MAX_STEP)

    @property
    def plan(self) -> AnyPlan:
        """The plan that is seen."""
        return self._plan

    @property
    def parts(self) -> tuple[AnyPlan, ...]:
        """The plan that is seen, alone."""
        return (self._plan,)

    @property
    def epoch_steps(self) -> int:
        """Steps of each epoch."""
        return self._length

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the plan is for."""
        return self._plan.id_bound

    @property
    def documents(self) -> int | None:
        """Of a packed plan how many documents there are; None of others."""
        return documents_of(self._plan)

    def _per_source(self, step: int) -> dict[str, int] | None:
        return per_source_if_any(self._plan, step)

    def _short_steps(self, first: int, last: int) -> Iterator[int]:
        return short_steps(self._plan, first, last)

    def with_plan(self, plan: AnyPlan) -> EveryEpoch:
        """Return the view with the same epochs of another plan."""
        return EveryEpoch(plan, self._length)

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: the plan's, with this view's epoch."""
        return self._seen(self._plan.batch(step))

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step: the plan's, with this view's epoch."""
        return self._seen(self._plan.shard(step, rank, world_size, micro_step, micro_steps))

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch, a short last one as if it were whole."""
        return self._plan.batch_size_at(step)

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1."""
        return self._plan.batch_sizes(first, last)

    def epoch(self, step: int) -> int:
        """Return the epoch of a step."""
        return self._step(step) // self._length

    def first_step(self, epoch: int) -> int:
        """Return the first step of an epoch.

        >>> from detdata import Plan, Sequential
        >>> EveryEpoch(Plan(Sequential(8), 2), 100).first_step(3)
        300
        """
        return as_int(epoch, "epoch", high=MAX_EPOCH + 1) * self._length

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step; padding does not count."""
        return self._plan.consumed(step)

    def step(self, consumed: int) -> int:
        """Return the step that begins after `consumed` samples: the plan's own. Raises ValueError as that does."""
        return self._plan.step(consumed)

    def resized(self, step: int, batch_size: int | None = None, *, max_tokens: int | None = None) -> EveryEpoch:
        """Return the view of the plan that goes on from `step` on another size: see the plan's own `resized`."""
        plan: Any = self._plan
        if max_tokens is None:
            return self.with_plan(plan.resized(step, batch_size))
        return self.with_plan(plan.resized(step, batch_size, max_tokens=max_tokens))

    def skipping(self, first: int, last: int) -> EveryEpoch:
        """Return the view of the plan without what steps first … last - 1 consume; later data move up.

        >>> from detdata import Plan, Sequential
        >>> view = EveryEpoch(Plan(Sequential(100), 10), 4)
        >>> view.skipping(2, 5).batch(2).ids.tolist() == view.batch(5).ids.tolist()
        True
        """
        plan: Any = self._plan
        return self.with_plan(plan.skipping(first, last))

    def agrees(self, other: object, step: int) -> bool:
        """Return whether another plan has the same batches before a step, as far as specs tell."""
        if not isinstance(other, EveryEpoch) or other._length != self._length:
            return False
        if isinstance(self._plan, CompositePlan):
            return self._plan.agrees(other._plan, step)
        return self._plan == other._plan

    def spec(self) -> Spec:
        """Return plain JSON that says what the view is: the plan's spec, and the steps of an epoch."""
        return {"format": FORMAT, "plan": self._plan.spec(), "steps": self._length}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], *lengths: npt.ArrayLike) -> EveryEpoch:
        """Rebuild the view that `.spec()` described; lengths: those that its plan was made of, if any.

        >>> from detdata import Plan, Shuffle
        >>> view = EveryEpoch(Plan(Shuffle(8), 2), 100)
        >>> EveryEpoch.from_spec(view.spec()) == view
        True
        """
        view: EveryEpoch = rebuilt(spec, FORMAT, lengths)
        return view

    def _seen(self, batch: Batch) -> Batch:
        return replace(batch, epoch=batch.step // self._length)

    def _when_from(self, number: int, epoch: int, first: int) -> int | None:
        begin = self.first_step(epoch)
        return first_use(self._plan, number, max(first, begin), begin + self._length)

    def _newest(self, step: int) -> int:
        return self.epoch(step)

    def _begun(self, step: int) -> int:
        return epochs_begun(self._plan, step)

    def _step_of(self, consumed: int) -> tuple[int, int]:
        step = self.step(consumed)
        return step, 0


def _build(spec: Spec) -> EveryEpoch:
    return EveryEpoch(as_plan(from_spec(spec["plan"]), "plan"), spec["steps"])


register_format(FORMAT, ("plan", "steps"), _build)
