"""Reading packed batches: tokens of documents, put into rows of one length, and where each document begins in them.

What a row is made of says the plan (`Batch.segments`); here the tokens are fetched and laid out as models with masked
or variable-length attention want them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array, as_int64
from detdata.checks import as_int, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.orders.base import MAX_EPOCH
from detdata.plans.batch import Batch
from detdata.plans.pack_plan import PackPlan
from detdata.plans.pack_segments import Segments
from detdata.plans.protocol import AnyPlan
from detdata.plans.views import EveryEpoch

Kind = Literal["numpy", "torch"]


@dataclass(frozen=True, eq=False, slots=True)
class Packed:
    """The tokens of a packed batch of b rows; arrays of NumPy or tensors of torch, as asked for.

    tokens: int64[b, seq_len]. segment_ids: int32[b, seq_len], 1, 2 … within a row, 0 where a row is padded.
    positions: int64[b, seq_len], counted from 0 in each segment, also of a document that goes on from an earlier
    sequence: how far into it a segment begins is its `start` in `Batch.segments`. 0 where a row is padded.
    cu_seqlens: int32[k + 1], where each of k stretches begins in the b · seq_len tokens one after another, and their
    end; padding at the end of a row is a stretch too. max_seqlen: the longest one. These two are what attention of
    variable length takes.

    >>> packed = read_packed([[5, 6], [7, 8, 9]], PackPlan([2, 3], 4, 1, tail="keep").batch(0))
    >>> packed.tokens.shape, int(packed.segment_ids.max())
    ((1, 4), 2)
    """

    tokens: Any
    segment_ids: Any
    positions: Any
    cu_seqlens: Any
    max_seqlen: int


@final
class TokenDocuments:
    """Documents that lie one after another in one array of tokens, mapped from a file or not, read slice by slice.

    tokens: integers in one dimension, held as they are. edges: int64[n + 1], where each document begins, and the end.
    Raises ValueError for edges that fall or lie outside, TypeError.

    >>> documents = TokenDocuments(np.arange(10, dtype=np.uint16), [0, 4, 4, 10])
    >>> documents.lengths.tolist(), documents[2].tolist(), documents.tokens(2, 1, 3).tolist()
    ([4, 0, 6], [4, 5, 6, 7, 8, 9], [5, 6])
    """

    def __init__(self, tokens: npt.NDArray[Any], edges: npt.ArrayLike) -> None:
        if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise ArgumentTypeError(f"tokens must be an array of integers in one dimension, got {brief(tokens)}")
        self._tokens = tokens
        self._edges = as_int64(edges, "edges", below=tokens.size + 1, what="edge")
        if self._edges.ndim != 1 or not self._edges.size or (np.diff(self._edges) < 0).any():
            raise ArgumentValueError("edges must be rising, in one dimension, one more than there are documents")

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each document, int64[n]: what `PackPlan` takes."""
        return np.diff(self._edges)

    def __len__(self) -> int:
        return self._edges.size - 1

    def __getitem__(self, document: int) -> npt.NDArray[Any]:
        """Return all tokens of a document. Raises IndexError."""
        number = int(as_int64(document, "document", below=len(self), what="document"))
        return self._tokens[self._edges[number] : self._edges[number + 1]]

    def tokens(self, document: int, start: int, stop: int) -> npt.NDArray[Any]:
        """Return tokens start … stop - 1 of a document; reads nothing else."""
        return self[document][start:stop]


def read_packed(
    documents: Any, batch: Batch, seq_len: int | None = None, *, pad: int = 0, kind: Kind = "numpy"
) -> Packed:
    """Return the tokens of a batch of a `PackPlan`, or of a rank's part of one.

    documents: `documents[i]` are the tokens of a document, any sequence of integers; of one that has
    `tokens(document, start, stop)` only what is needed is read, of one that has `__getitems__`, as a corpus, all
    documents in one call. seq_len: by default the batch's. pad: the token that fills rows up.
    Raises ValueError for a batch that is not packed, and for documents that are not as long as the plan was told.

    >>> plan = PackPlan([3, 2], 4, batch_size=2, tail="keep")
    >>> packed = read_packed([[10, 11, 12], [20, 21]], plan.batch(0), pad=-1)
    >>> packed.tokens.tolist()
    [[20, 21, 10, 11], [12, -1, -1, -1]]
    >>> packed.segment_ids.tolist(), packed.positions.tolist(), packed.cu_seqlens.tolist()
    ([[1, 1, 2, 2], [1, 0, 0, 0]], [[0, 1, 0, 1], [0, 0, 0, 0]], [0, 2, 4, 5, 8])
    """
    if not isinstance(batch, Batch) or batch.segments is None:
        raise ArgumentValueError(f"batch must be one of a PackPlan, with segments; got {brief(batch)}")
    width = as_int(batch.width if seq_len is None else seq_len, "seq_len", low=1)
    if kind not in {"numpy", "torch"}:
        raise ArgumentValueError(f"kind must be numpy or torch, got {brief(kind)}")
    tokens, segment_ids, positions = _laid_out(
        documents, batch.segments, len(batch), width, as_int(pad, "pad", low=None)
    )
    edges = cu_seqlens(segment_ids)
    longest = int(np.diff(edges).max(initial=0))
    if kind == "numpy":
        return Packed(tokens, segment_ids, positions, edges, longest)
    from torch import from_numpy

    found = [from_numpy(array) for array in (tokens, segment_ids, positions, edges)]
    return Packed(found[0], found[1], found[2], found[3], longest)


def cu_seqlens(segment_ids: Any) -> Any:
    """Return where stretches of one segment begin in rows one after another, and the end: int32[k + 1].

    segment_ids: [b, seq_len], an array or a tensor on any device, as of a batch that a Loader has collated; the result
    is of the same kind. Raises ValueError for 2**31 tokens and more.

    >>> cu_seqlens(np.array([[1, 1, 2], [1, 0, 0]])).tolist()
    [0, 2, 3, 4, 6]
    """
    rows, width = segment_ids.shape
    if rows * width >= 2**31:
        raise ArgumentValueError(f"segment_ids has {rows} rows of {width}: int32 counts up to 2**31 - 1 tokens")
    begins = segment_ids != 0
    begins[:, :1] = True
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    if isinstance(segment_ids, np.ndarray):
        return np.append(np.flatnonzero(begins), rows * width).astype(np.int32)
    import torch

    found = begins.reshape(-1).nonzero().reshape(-1)
    return torch.cat([found, found.new_tensor([rows * width])]).to(torch.int32)


@final
class PackedDataset:
    """The sequences of a `PackPlan` by their numbers, as a map-style dataset: for `Loader(PackedDataset(…), plan)`.

    documents: as for `read_packed`; picklable where workers are spawned. plan: whose sequences they are, or a view of
    it (`EveryEpoch`); what chains and mixtures of packed plans hold is read by `read_packed`. pad: the token that fills
    rows up. An item is a dict of `tokens`, `segment_ids` and `positions`, each [seq_len]; collated, they are
    those of `Packed`, and `cu_seqlens(batch["segment_ids"])` gives the rest.

    What a number means changes with the epoch. A `Loader` tells it by `set_epoch`, in each process that reads, with
    every kind of randomness; who reads without one calls it, or `read`.

    >>> documents = [[10, 11, 12], [20, 21]]
    >>> dataset = PackedDataset(documents, PackPlan([3, 2], 4, batch_size=1))
    >>> len(dataset), dataset[0]["tokens"].tolist(), dataset[0]["segment_ids"].tolist()
    (2, [20, 21, 10, 11], [1, 1, 2, 2])
    """

    def __init__(self, documents: Any, plan: AnyPlan, *, pad: int = 0) -> None:
        while isinstance(plan, EveryEpoch):
            plan = plan.plan
        if not isinstance(plan, PackPlan):
            raise ArgumentTypeError(
                f"plan must be a PackPlan, got a {type(plan).__name__}; batches of plans made of them: read_packed"
            )
        if hasattr(documents, "__len__") and len(documents) != plan.documents:
            raise ArgumentValueError(f"documents are {len(documents)}, but the plan was made of {plan.documents}")
        self._documents, self._plan, self._pad, self._epoch = documents, plan, as_int(pad, "pad", low=None), 0

    @property
    def plan(self) -> PackPlan:
        """The plan whose sequences these are."""
        return self._plan

    def serves(self, plan: object) -> bool:
        """Return whether these are the sequences of a plan too: one resized, or seen as `EveryEpoch`, as well.

        >>> plan = PackPlan([30], 4, batch_size=1)
        >>> dataset = PackedDataset([[0] * 30], plan)
        >>> dataset.serves(plan.resized(2, 3)), dataset.serves(plan.relengthened(2, 8))
        (True, False)
        """
        while isinstance(plan, EveryEpoch):
            plan = plan.plan
        return self._plan.same_sequences(plan)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the numbers are of from here on, in this process."""
        self._epoch = as_int(epoch, "epoch", high=MAX_EPOCH)

    def __len__(self) -> int:
        return self._plan.id_bound

    def __getitem__(self, id: int) -> dict[str, Any]:
        """Return a sequence of the epoch that was set. Raises IndexError."""
        return self.read([id], self._epoch)[0]

    def __getitems__(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        """Return sequences of the epoch that was set: how a DataLoader asks for a batch."""
        return self.read(ids, self._epoch)

    def read(self, ids: Sequence[int], epoch: int) -> list[dict[str, Any]]:
        """Return sequences of an epoch by their numbers. Raises IndexError, TypeError."""
        widths = self._plan.widths(ids, epoch)
        segments = self._plan.segments(ids, epoch)
        width = int(widths.max(initial=1))
        rows: tuple[npt.NDArray[Any], ...] = _laid_out(self._documents, segments, widths.size, width, self._pad)
        names = ("tokens", "segment_ids", "positions")
        return [
            {name: values[row, :size] for name, values in zip(names, rows, strict=True)}
            for row, size in enumerate(widths.tolist())
        ]


def _laid_out(
    documents: Any, segments: Segments, rows: int, width: int, pad: int
) -> tuple[Int64Array, npt.NDArray[np.int32], Int64Array]:
    """Return (tokens, segment_ids, positions) of rows made of segments, sorted by row."""
    sizes = segments["stop"] - segments["start"]
    ends = np.cumsum(sizes)
    first = np.searchsorted(segments["row"], segments["row"], side="left")  # of each segment's row
    begins = ends - sizes
    offsets = begins - begins[first]
    if (offsets + sizes > width).any():
        raise ArgumentValueError(f"seq_len is {width}, but a row has {int((offsets + sizes).max())} tokens")
    within = np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(begins, sizes)
    places = np.repeat(segments["row"] * width + offsets, sizes) + within
    tokens = np.full(rows * width, pad, dtype=np.int64)
    segment_ids = np.zeros(rows * width, dtype=np.int32)
    positions = np.zeros(rows * width, dtype=np.int64)
    if sizes.size:
        tokens[places] = np.concatenate(_read(documents, segments), dtype=np.int64, casting="unsafe")
    segment_ids[places] = np.repeat(np.arange(sizes.size) - first + 1, sizes)
    positions[places] = within
    shape = rows, width
    return tokens.reshape(shape), segment_ids.reshape(shape), positions.reshape(shape)


def _read(documents: Any, segments: Segments) -> list[npt.NDArray[Any]]:
    """The tokens of each segment."""
    spans = segments[["document", "start", "stop"]].tolist()
    if callable(getattr(documents, "tokens", None)):
        return [_checked(documents.tokens(*span), span) for span in spans]
    wanted, which = np.unique(segments["document"], return_inverse=True)
    many = getattr(documents, "__getitems__", None)
    found: Any = many(wanted.tolist()) if callable(many) else [documents[number] for number in wanted.tolist()]
    return [_checked(found[at][span[1] : span[2]], span) for at, span in zip(which.tolist(), spans, strict=True)]


def _checked(values: Any, span: tuple[int, int, int]) -> npt.NDArray[Any]:
    document, start, stop = span
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"document {document} must be a sequence of integers, got {brief(values)} of type {type(values).__name__}"
        )
    if array.size != stop - start:
        raise ArgumentValueError(
            f"document {document} has no tokens {start} … {stop - 1}, only {array.size} of them: the lengths that the "
            "plan was made of are not those of these documents"
        )
    return array
