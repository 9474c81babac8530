"""What everybody who walks a plan may ask of it: `Plan` and all others answer to this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from detdata.plans.batch import Batch
from detdata.records import Spec


@runtime_checkable
class AnyPlan(Protocol):
    """A plan: global step -> global batch. `Plan` says what each of these means."""

    @property
    def id_bound(self) -> int:
        """Length of the dataset that the plan is for."""

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step."""

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step."""

    def batch_size_at(self, step: int) -> int:
        """Return the rows of a step's global batch, a short last one as if it were whole."""

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that may come in steps first … last - 1."""

    def steps(self, epoch: int = 0) -> int:
        """Return how many steps begin in an epoch."""

    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one."""

    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins."""

    def consumed(self, step: int) -> int:
        """Return the samples that all ranks have consumed before a step."""

    def step(self, consumed: int) -> int:
        """Return the step that begins after `consumed` samples."""

    def when(self, id: int, epoch: int = 0) -> int | None:
        """Return the step in which a sample is first used in an epoch; None if it is not."""

    def digest(self, first: int, last: int) -> str:
        """Return the digest of the batches of steps first … last - 1."""

    def spec(self) -> Spec:
        """Return plain JSON that says what the plan is."""

    def _tables(self) -> Mapping[str, Any]:
        """Tables that the spec names by their digest."""
