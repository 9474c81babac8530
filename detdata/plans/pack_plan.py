"""PackPlan: documents packed into sequences of one length, and global step -> global batch of them, as arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
import xxhash

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int, brief
from detdata.errors import UnknownFormat
from detdata.orders.base import MAX_EPOCH, Order
from detdata.orders.tables import Tables, rebuild, table_at_hand
from detdata.plans.batch import Batch
from detdata.plans.epochs import Skip
from detdata.plans.pack_changes import relengthened, resized, skipping
from detdata.plans.pack_documents import Documents, Method
from detdata.plans.pack_numbers import segments_at, update_digest, widths_at, with_segments
from detdata.plans.pack_phases import Phase, Terms, at, build, ends, own_skips
from detdata.plans.pack_segments import Segments
from detdata.plans.pack_spec import FORMAT, KEYS, read_spec, spec_of
from detdata.plans.plan import MAX_STEP, Tail
from detdata.plans.stepped import SteppedPlan
from detdata.records import Spec, register_format


@final
class PackPlan(SteppedPlan):
    """Which sequences every global step consumes, and which tokens of which documents each of them holds.

    lengths: tokens of each document, integers of any width, 0 … 2**40, memory-mapped too; what can be written to is
    copied. seq_len: tokens of a sequence. batch_size: sequences of a global step, over all ranks and micro steps.
    method: "concat" joins the documents of an epoch in a shuffled order and cuts every `seq_len` tokens; "best_fit"
    keeps documents whole where they fit, and cuts longer ones every `seq_len` tokens from their beginning.
    tail: as of a `Plan`, in sequences. Documents without a token never appear.

    Everything counts in sequences, as a `Plan` does in samples; `consumed_tokens` tells tokens. `Batch.ids` are numbers
    of the epoch's sequences, `Batch.segments` what they hold. Immutable; equal exactly if the specs are equal.

    Building costs some 0.1 µs a document ("best_fit": 0.3 µs and 4 bytes), a step O(its tokens' documents), whatever
    the step; the first touch of an epoch O(documents / 256). Raises ValueError, TypeError.

    >>> plan = PackPlan([5, 3, 9, 2], seq_len=8, batch_size=1, seed=1, tail="keep")
    >>> plan.batch(0).segments.tolist()  # (row, document, start, stop)
    [(0, 0, 0, 5), (0, 2, 0, 3)]
    >>> plan.batch(1).segments.tolist()
    [(0, 2, 3, 9), (0, 1, 0, 2)]
    """

    _documents: Documents
    _phases: tuple[Phase, ...]

    def __init__(
        self,
        lengths: npt.ArrayLike,
        seq_len: int,
        batch_size: int,
        seed: int = 0,
        method: Method = "concat",
        tail: Tail = "drop",
    ) -> None:
        self._documents = Documents(lengths, seed, method)
        self._phases = build([Terms(0, 0, 0, seq_len, batch_size)], tail, self._documents.cut)

    # --- what it is ---

    @property
    def seed(self) -> int:
        """The seed of the order of documents, and of sequences."""
        return self._documents.seed

    @property
    def method(self) -> Method:
        """How documents are packed: "concat" or "best_fit"."""
        return self._documents.method

    @property
    def tail(self) -> Tail:
        """What happens to the last sequences of an epoch that fill no batch."""
        return self._phases[0].plan.tail

    @property
    def documents(self) -> int:
        """How many documents there are, those without a token too."""
        return int(self._documents.lengths.size)

    @property
    def tokens(self) -> int:
        """How many tokens an epoch has."""
        return self._documents.tokens

    @property
    def batch_size(self) -> int:
        """Sequences of a global step, in the beginning."""
        return self._phases[0].plan.batch_size

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence, in the beginning."""
        return self._phases[0].cut.seq_len

    @property
    def order(self) -> Order:
        """The order of an epoch's sequences by number, in the beginning."""
        return self._phases[0].cut.order

    @property
    def id_bound(self) -> int:
        """Sequences of an epoch, in the beginning: the length of a dataset of them."""
        return self.order.id_bound

    @property
    def sequences(self) -> int:
        """How many sequences every epoch has, in the beginning."""
        return self.order.size

    @property
    def efficiency(self) -> float:
        """The share of an epoch's places that hold a token, in the beginning."""
        return self.tokens / (self.sequences * self.seq_len)

    @property
    def resizes(self) -> tuple[tuple[int, int], ...]:
        """(first step, batch size) of each change of the batch size on the way, those with a new seq_len among them."""
        rows: list[tuple[int, int]] = []
        for phase in self._phases:
            rows.append((phase.first, phase.plan.batch_size))
            rows += [(phase.first + step, size) for step, size in phase.plan.resizes]
        return tuple(row for before, row in pairwise(rows) if before[1] != row[1])

    @property
    def relengths(self) -> tuple[tuple[int, int], ...]:
        """(first step, seq_len) of each change of seq_len on the way."""
        return tuple((phase.first, phase.cut.seq_len) for phase in self._phases[1:])

    @property
    def skips(self) -> tuple[Skip, ...]:
        """The ranges of (epoch, position) that are never used; positions are those of the phase's own sequences."""
        return tuple(skip for phase in self._phases for skip in own_skips(phase))

    # --- step -> batch ---

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step: any step from 0 on, in any order of calls.

        Raises ValueError for a negative step, TypeError for no integer. Cost O(documents of the batch).

        >>> PackPlan([4, 4, 4], 4, batch_size=2, method="best_fit").batch(10**9).segments["stop"].tolist()
        [4, 4]
        """
        phase, local = self._local(step)
        return with_segments(phase, phase.plan.batch(local))

    def shard(
        self, step: int, rank: int = 0, world_size: int = 1, micro_step: int | None = None, micro_steps: int = 1
    ) -> Batch:
        """Return one rank's part of a step, with its own segments: as `Plan.shard`, by rows.

        Raises ValueError if world_size x micro_steps does not divide the batch size. Cost O(documents of the part).

        >>> plan = PackPlan([3, 1, 2], 2, batch_size=2)
        >>> [plan.shard(0, rank, 2).ids.tolist() for rank in range(2)]
        [[0], [1]]
        """
        phase, local = self._local(step)
        return with_segments(phase, phase.plan.shard(local, rank, world_size, micro_step, micro_steps))

    def segments(self, ids: npt.ArrayLike, epoch: int = 0) -> Segments:
        """Return what sequences of an epoch hold, by their numbers: row i is the sequence ids[i].

        ids: integers in one dimension, those of `Batch.ids`. Raises IndexError, TypeError. Cost O(documents found).

        >>> PackPlan([3, 1, 2], 2, batch_size=1).segments([2, 2]).tolist()
        [(0, 0, 1, 3), (1, 0, 1, 3)]
        """
        return segments_at(self._phases, ids, as_int(epoch, "epoch", high=MAX_EPOCH))

    def widths(self, ids: npt.ArrayLike, epoch: int = 0) -> Int64Array:
        """Return the seq_len of sequences of an epoch, by their numbers, int64[n]. Raises as `segments`.

        >>> PackPlan([3, 1, 2], 2, batch_size=1).widths([0, 1]).tolist()
        [2, 2]
        """
        return widths_at(self._phases, ids, as_int(epoch, "epoch", high=MAX_EPOCH))

    def same_sequences(self, other: object) -> bool:
        """Return whether the sequences of another plan have the same numbers and hold the same, in every epoch.

        So it is after `resized` and `skipping`; a dataset of the one plan's sequences then serves the other as well.

        >>> plan = PackPlan([30], 2, batch_size=1)
        >>> plan.same_sequences(plan.resized(3, 2)), plan.same_sequences(plan.relengthened(3, 5))
        (True, False)
        """
        if not isinstance(other, PackPlan) or (self.method, self.seed) != (other.method, other.seed):
            return False
        cuts = [
            [(cut.seq_len, cut.epoch, cut.token, cut.base) for cut in (phase.cut for phase in plan._phases)]
            for plan in (self, other)
        ]
        return cuts[0] == cuts[1] and self._documents.spec() == other._documents.spec()

    # --- counting ---

    def batch_size_at(self, step: int) -> int:
        """Return the global batch size that holds at a step (a kept last batch of an epoch is shorter)."""
        phase, local = self._local(step)
        return phase.plan.batch_size_at(local)

    def seq_len_at(self, step: int) -> int:
        """Return the seq_len that holds at a step."""
        return self._local(step)[0].cut.seq_len

    def batch_sizes(self, first: int, last: int) -> tuple[int, ...]:
        """Return the global batch sizes that hold at some step of first … last - 1, in order.

        >>> PackPlan([100], 2, batch_size=8).resized(5, 10).batch_sizes(0, 10)
        (8, 10)
        """
        here = self.batch_size_at(first)
        return (here, *(size for step, size in self.resizes if first < step < last))

    def first_step(self, epoch: int) -> int:
        """Return the first step that begins in this epoch or a later one."""
        number = as_int(epoch, "epoch", high=MAX_EPOCH + 1)
        steps = ((phase.first + phase.plan.first_step(number), end) for phase, end in ends(self._phases))
        return next(step for step, end in steps if step < end)

    def epoch(self, step: int) -> int:
        """Return the epoch in which a step begins."""
        phase, local = self._local(step)
        return phase.plan.epoch(local)

    def consumed(self, step: int) -> int:
        """Return the sequences that all ranks have consumed before a step; rows that only pad do not count."""
        phase, local = self._local(step)
        return phase.consumed + phase.plan.consumed(local)

    def consumed_tokens(self, step: int) -> int:
        """Return the tokens that all ranks have consumed before a step, without those in rows that only pad.

        Arithmetic for "concat"; for "best_fit" it looks at the sequences of the epoch that is under way, and at those
        that each epoch before it dropped.

        >>> plan = PackPlan([3, 1, 2], 4, batch_size=1, tail="keep")
        >>> [plan.consumed_tokens(step) for step in range(4)]
        [0, 4, 6, 10]
        """
        number = self._step(step)
        return sum(phase.tokens(min(number, end)) for phase, end in ends(self._phases) if phase.first < number)

    def _step_of(self, consumed: int) -> tuple[int, int]:
        phase = [phase for phase in self._phases if phase.consumed <= consumed][-1]
        local, beyond = phase.plan._walk.step_of(consumed - phase.consumed)
        return phase.first + local, beyond

    def when(self, document: int, epoch: int = 0) -> int | None:
        """Return the first step that has a token of a document in an epoch; None if none has.

        Raises IndexError for a document that there is not. Cost that of a step; with "best_fit" and a document of many
        sequences, O(these).

        >>> plan = PackPlan([3, 1, 2], 2, batch_size=1)
        >>> 2 in plan.batch(plan.when(2, epoch=5)).segments["document"]
        True
        """
        number = as_int(epoch, "epoch", high=MAX_EPOCH)
        checked = int(as_int64(as_int(document, "document"), "document", below=self.documents, what="document"))
        length = int(self._documents.lengths[checked])
        if length == 0:
            return None
        steps = ((phase.first_used(checked, length, number), end) for phase, end in ends(self._phases))
        return next((step for step, end in steps if step is not None and step < end), None)

    # --- changes ---

    def resized(self, step: int, batch_size: int) -> PackPlan:
        """Return the plan that goes on from `step` on another global batch size, at exactly the next unseen sequence.

        Steps before keep their batches; later changes of the batch size are replaced, those of seq_len keep their
        steps. Raises ValueError, TypeError.

        >>> plan = PackPlan([100], 4, batch_size=5)
        >>> plan.resized(2, 3).batch(2).ids.tolist()
        [10, 11, 12]
        """
        return self._of(self._documents, resized(self._phases, self._step(step), batch_size, self._rebuild))

    def skipping(self, first: int, last: int) -> PackPlan:
        """Return the plan in which the data of steps first … last - 1 are never trained on. See `Plan.skipping`.

        >>> plan = PackPlan([100], 4, batch_size=5)
        >>> plan.skipping(1, 3).batch(1).ids.tolist() == plan.batch(3).ids.tolist()
        True
        """
        begin = self._step(first, "first")
        end = as_int(last, "last", low=begin, high=MAX_STEP)
        return self if begin == end else self._of(self._documents, skipping(self._phases, begin, end, self._rebuild))

    def relengthened(self, step: int, seq_len: int, batch_size: int | None = None) -> PackPlan:
        """Return the plan that goes on from `step` on another seq_len, at exactly the next unseen token.

        For a warm-up of the sequence length. batch_size: sequences of a step from there on; by default as many as
        before. Steps before keep their batches, and steps are counted on; later changes of seq_len and batch size are
        replaced. In the epoch of the change, sequences are numbered on from those before. With "best_fit", only at a
        step with which an epoch begins. Raises ValueError, TypeError.

        >>> plan = PackPlan([100], 4, batch_size=6).relengthened(2, 8, batch_size=3)
        >>> [plan.batch(step).segments.tolist()[-1] for step in (1, 2)]  # (row, document, start, stop)
        [(5, 0, 44, 48), (2, 0, 64, 72)]
        """
        number = self._step(step)
        size = self.batch_size_at(number) if batch_size is None else batch_size
        return self._of(self._documents, relengthened(self._phases, number, seq_len, size, self._rebuild))

    # --- identity ---

    def digest(self, first: int, last: int) -> str:
        """Return the digest of the batches of steps first … last - 1: the same on any machine.

        Covers documents, token ranges, their order, batch edges and padding (docs/spec.md, section 15).

        >>> PackPlan([3, 1, 2], 2, batch_size=1).digest(0, 3)
        'xxh3-128:c11678fbb0d07b66af52a467b69646eb'
        """
        begin = self._step(first, "first")
        state = xxhash.xxh3_128()
        for step in range(begin, as_int(last, "last", low=begin, high=MAX_STEP)):
            update_digest(state, self.batch(step))
        return "xxh3-128:" + state.hexdigest()

    def spec(self) -> Spec:
        """Return the plain JSON from which, with the lengths, `PackPlan.from_spec` rebuilds this plan."""
        return spec_of(self._documents, self._phases)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], lengths: npt.ArrayLike) -> PackPlan:
        """Rebuild the plan that `.spec()` described, of the same lengths.

        Raises UnknownFormat (a ValueError) for another or a malformed spec, ValueError for other lengths.

        >>> plan = PackPlan([3, 1, 2], 2, batch_size=1, seed=4)
        >>> PackPlan.from_spec(plan.spec(), [3, 1, 2]) == plan
        True
        """
        return cls._of(*read_spec(spec, lengths))

    def _tables(self) -> Tables:
        return {self._documents.digest: self._documents.lengths}

    @classmethod
    def _of(cls, documents: Documents, phases: Sequence[Phase]) -> PackPlan:
        plan = object.__new__(cls)
        plan._documents, plan._phases = documents, tuple(phases)
        return plan

    def _past(self, step: int) -> tuple[object, ...]:
        """What decides the batches before a step."""
        kept = [phase for phase in self._phases if phase.first < step]
        if not kept:
            return ()
        here, terms = kept[-1], kept[-1].terms
        # A skip that ends at this step's first sequence belongs to the plan that goes on from here, not to its past.
        terms = replace(
            terms,
            resizes=tuple(item for item in terms.resizes if item[0] < step - here.first),
            skips=tuple(skip for skip in terms.skips if skip[2:] < here.position(step)),
        )
        return [phase.terms for phase in kept[:-1]], terms, self.consumed(step)

    def _rebuild(self, terms: list[Terms]) -> tuple[Phase, ...]:
        return build(terms, self.tail, self._documents.cut)

    def _local(self, step: int) -> tuple[Phase, int]:
        """The phase that a step belongs to, and the step's number in it."""
        number = self._step(step)
        phase = self._phases[at(self._phases, number)]
        return phase, number - phase.first

    def __reduce__(self) -> tuple[Any, ...]:
        return (rebuild, (self.spec(), self._tables()))


def _build(spec: Spec) -> PackPlan:
    named = spec["lengths"]
    if not isinstance(named, dict) or set(named) != {"count", "digest"}:
        raise UnknownFormat(f"lengths must be their count and digest, got {brief(named)}")
    way = "PackPlan.from_spec(spec, lengths)"
    return PackPlan.from_spec(spec, table_at_hand(named["digest"], np.ndarray, "lengths", way))


register_format(FORMAT, KEYS, _build)
