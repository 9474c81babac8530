"""Packed batches as tokens: what stands where, against plain lists; and through a Loader."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detdata import Loader, Plan, Sequential, Topology, open_corpus
from detdata.packing import PackedDataset, TokenDocuments, cu_seqlens, read_packed
from detdata.plans.pack_plan import PackPlan
from tests.corpora.test_megatron import write_pair

METHODS = ("concat", "best_fit")


def documents_of(lengths):
    """Tokens that tell document and place: 1000 · document + place."""
    return [[1000 * d + t for t in range(length)] for d, length in enumerate(lengths)]


@st.composite
def plans(draw):
    lengths = draw(st.lists(st.integers(0, 20), min_size=1, max_size=15).filter(any))
    seq_len, batch_size = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    method = draw(st.sampled_from(METHODS))
    return lengths, PackPlan(lengths, seq_len, batch_size, draw(st.integers(0, 9)), method, draw(st.sampled_from(
        ["keep", "pad", "carry"])))  # fmt: skip


def naive(lengths, batch, pad):
    """(tokens, segment ids, positions, edges) as lists."""
    documents, width = documents_of(lengths), batch.width
    tokens, ids, positions, edges = [], [], [], [0]
    for row in range(len(batch)):
        one = [[], [], []]
        for number, (_, d, start, stop) in enumerate([s for s in batch.segments.tolist() if s[0] == row], 1):
            one[0] += documents[d][start:stop]
            one[1] += [number] * (stop - start)
            one[2] += list(range(stop - start))
            edges.append(edges[-1] + stop - start)
        free = width - len(one[0])
        if free:
            edges.append(edges[-1] + free)
        tokens.append(one[0] + [pad] * free)
        ids.append(one[1] + [0] * free)
        positions.append(one[2] + [0] * free)
    return tokens, ids, positions, edges


class Sliced:
    """Documents that are read slice by slice only."""

    def __init__(self, documents):
        self.documents = documents

    def tokens(self, document, start, stop):
        return np.array(self.documents[document][start:stop], np.uint16)


class Whole:
    """Documents that are read many at a time only, as those of a corpus."""

    def __init__(self, documents):
        self.documents = documents

    def __getitems__(self, ids):
        assert len(set(ids)) == len(ids)
        return [torch.tensor(self.documents[id]) for id in ids]


@given(plans(), st.integers(0, 20), st.integers(-1, 7))
def test_rows_hold_what_their_segments_say(case, step, pad):
    lengths, plan = case
    batch, documents = plan.batch(step), documents_of(lengths)
    tokens, ids, positions, edges = naive(lengths, batch, pad)
    flat = TokenDocuments(np.array([t for document in documents for t in document], np.int32), np.cumsum([0, *lengths]))
    for source in (documents, Sliced(documents), Whole(documents), flat):
        packed = read_packed(source, batch, pad=pad)

        assert packed.tokens.tolist() == tokens
        assert packed.segment_ids.tolist() == ids
        assert packed.positions.tolist() == positions
        assert packed.cu_seqlens.tolist() == edges
        assert packed.max_seqlen == max(np.diff(edges))
        kinds = [array.dtype for array in (packed.tokens, packed.segment_ids, packed.positions, packed.cu_seqlens)]
        assert kinds == [np.int64, np.int32, np.int64, np.int32]
    assert flat.lengths.tolist() == lengths


@given(plans(), st.integers(0, 20))
def test_tensors_and_wider_rows_hold_the_same(case, step):
    lengths, plan = case
    batch, documents = plan.batch(step), documents_of(lengths)
    plain, wide = read_packed(documents, batch), read_packed(documents, batch, plan.seq_len + 3, kind="torch")

    assert wide.tokens.dtype == wide.positions.dtype == torch.int64
    assert wide.segment_ids.dtype == wide.cu_seqlens.dtype == torch.int32
    assert wide.tokens[:, : plan.seq_len].tolist() == plain.tokens.tolist()
    assert wide.segment_ids[:, plan.seq_len :].sum() == 0
    assert cu_seqlens(wide.segment_ids).tolist() == wide.cu_seqlens.tolist()
    assert cu_seqlens(wide.segment_ids).dtype == torch.int32


@given(plans(), st.integers(0, 5))
def test_a_dataset_gives_each_sequence_by_its_number_and_epoch(case, step):
    lengths, plan = case
    dataset = PackedDataset(documents_of(lengths), plan, pad=-1)
    batch = plan.batch(step)
    packed = read_packed(documents_of(lengths), batch, pad=-1)
    for row, (id, epoch) in enumerate(zip(batch.ids.tolist(), batch.epochs.tolist(), strict=True)):
        dataset.set_epoch(epoch)
        for item in (dataset[id], dataset.__getitems__([id])[0], dataset.read([id], epoch)[0]):
            assert item["tokens"].tolist() == packed.tokens[row].tolist()
            assert item["segment_ids"].tolist() == packed.segment_ids[row].tolist()
            assert item["positions"].tolist() == packed.positions[row].tolist()
    assert len(dataset) == plan.sequences


def test_a_rank_reads_its_own_part():
    lengths = [5, 9, 2, 7, 7, 3]
    plan = PackPlan(lengths, 4, 4, tail="keep")
    whole = read_packed(documents_of(lengths), plan.batch(0))

    for rank in range(2):
        part = read_packed(documents_of(lengths), plan.shard(0, rank, 2))
        assert part.tokens.tolist() == whole.tokens[rank::2].tolist()


def test_a_document_goes_on_after_a_cut_exactly():
    plan = PackPlan([11], 4, 1, tail="keep")
    rows = [read_packed(documents_of([11]), plan.batch(step)) for step in range(3)]

    assert [row.tokens[0].tolist() for row in rows] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 0]]
    assert [row.positions[0].tolist() for row in rows] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 0]]
    assert [plan.batch(step).segments["start"].tolist() for step in range(3)] == [[0], [4], [8]]


def run(plan, lengths, steps, **kwargs):
    loader = Loader(PackedDataset(documents_of(lengths), plan), plan, Topology(), **kwargs)
    return loader, [{name: value.tolist() for name, value in batch.items()} for batch in loader.until(steps)]


@pytest.mark.parametrize("randomness", ["sample", "batch", "off"])
@pytest.mark.parametrize("method", METHODS)
def test_a_loader_gives_the_plans_batches_over_epochs(method, randomness):
    lengths = np.random.default_rng(0).integers(0, 30, 40).tolist()
    plan = PackPlan(lengths, 16, 5, seed=3, method=method, tail="carry")
    steps = plan.first_step(3)

    loader, found = run(plan, lengths, steps, randomness=randomness)

    for step, batch in enumerate(found):
        packed = read_packed(documents_of(lengths), plan.batch(step))
        assert packed.tokens.tolist() == batch["tokens"]
        assert packed.segment_ids.tolist() == batch["segment_ids"]
        assert packed.positions.tolist() == batch["positions"]
    assert loader.batch.segments.tolist() == plan.batch(steps - 1).segments.tolist()


def test_workers_know_the_epoch_and_a_resumed_loader_goes_on():
    lengths = np.random.default_rng(1).integers(0, 30, 40).tolist()
    plan = PackPlan(lengths, 16, 4, seed=3)
    steps = plan.first_step(2)
    _, expected = run(plan, lengths, steps)
    loader, first = run(plan, lengths, steps - 3, num_workers=2, persistent_workers=True)
    resumed = Loader(PackedDataset(documents_of(lengths), plan), plan, Topology(0, 2))
    resumed.load_state_dict(loader.state_dict())

    rest = [batch["tokens"].tolist() for batch in resumed.until(steps)]

    assert [batch["tokens"] for batch in expected[:-3]] == [batch["tokens"] for batch in first]
    assert [batch["tokens"][::2] for batch in expected[-3:]] == rest


def test_a_loader_goes_over_a_change_of_length():
    lengths = [30, 50, 7, 21]
    plan = PackPlan(lengths, 8, 4, seed=3, tail="keep").relengthened(2, 16, 2)

    _, found = run(plan, lengths, 8)

    for step, batch in enumerate(found):
        assert read_packed(documents_of(lengths), plan.batch(step)).tokens.tolist() == batch["tokens"]
    assert [len(batch["tokens"][0]) for batch in found[:4]] == [8, 8, 16, 16]


def test_which_plans_a_dataset_serves():
    plan = PackPlan([30, 4], 4, 2)

    assert plan.same_sequences(pickle.loads(pickle.dumps(plan)).resized(2, 1).skipping(3, 4))
    for other in (
        PackPlan([30, 5], 4, 2), PackPlan([30, 4], 5, 2), PackPlan([30, 4], 4, 2, 1), plan.relengthened(1, 8, 1),
        PackPlan([30, 4], 4, 2, method="best_fit"), Plan(Sequential(9), 2),
    ):  # fmt: skip
        assert not plan.same_sequences(other)


def test_what_cannot_be_read_is_refused_by_name():
    plan = PackPlan([3, 4], 4, 1)
    batch = plan.batch(0)
    documents = documents_of([3, 4])
    calls = [
        (lambda: read_packed(documents, Plan(Sequential(4), 2).batch(0)), ValueError, "PackPlan"),
        (lambda: read_packed(documents, None), ValueError, "batch"),
        (lambda: read_packed(documents, batch, 3), ValueError, "seq_len is 3"),
        (lambda: read_packed(documents, batch, 0), ValueError, "seq_len"),
        (lambda: read_packed(documents, batch, kind="jax"), ValueError, "jax"),
        (lambda: read_packed(documents, batch, pad=0.5), TypeError, "pad"),
        (lambda: read_packed([[1], [1]], batch), ValueError, "lengths"),
        (lambda: read_packed([[0.5] * 4] * 2, batch), TypeError, "integers"),
        (lambda: read_packed([[[1]] * 4] * 2, batch), TypeError, "integers"),
        (lambda: PackedDataset(documents, Plan(Sequential(2), 1)), TypeError, "PackPlan"),
        (lambda: PackedDataset(documents[:1], plan), ValueError, r"1.*2"),
        (lambda: PackedDataset(documents, plan)[2], IndexError, "sequence 2"),
        (lambda: PackedDataset(documents, plan).set_epoch(-1), ValueError, "epoch"),
        (lambda: TokenDocuments([1], [0, 1]), TypeError, "tokens"),
        (lambda: TokenDocuments(np.zeros(3), [0, 1]), TypeError, "tokens"),
        (lambda: TokenDocuments(np.zeros(3, int), [0, 4]), IndexError, "edge"),
        (lambda: TokenDocuments(np.zeros(3, int), [2, 1]), ValueError, "rising"),
        (lambda: TokenDocuments(np.zeros(3, int), []), ValueError, "edges"),
        (lambda: TokenDocuments(np.zeros(3, int), [0, 3])[1], IndexError, "document"),
        (lambda: cu_seqlens(np.broadcast_to(np.int32(1), (2**16, 2**15))), ValueError, "int32"),
    ]
    for call, kind, names in calls:
        with pytest.raises(kind, match=names):
            call()


def test_large_unsigned_tokens_beside_signed_ones_stay_what_they_are():
    plan = PackPlan([1, 1], 2, 1)
    documents = [np.array([2**53 + 1], np.uint64), np.array([2**53 + 3], np.int64)]

    assert sorted(read_packed(documents, plan.batch(0)).tokens[0].tolist()) == [2**53 + 1, 2**53 + 3]


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_row_of_padding_alone_is_a_stretch_too(kind):
    assert cu_seqlens(kind([[0, 0, 0], [1, 2, 0], [1, 1, 1]])).tolist() == [0, 3, 4, 5, 6, 9]


def test_an_empty_part_has_no_rows():
    plan = PackPlan([5], 4, 4, tail="keep")  # two sequences, four ranks
    packed = read_packed(documents_of([5]), plan.shard(0, 3, 4))

    assert packed.tokens.shape == (0, 4)
    assert packed.cu_seqlens.tolist() == [0]
    assert packed.max_seqlen == 0


def test_a_state_of_another_seq_len_is_refused():
    lengths = [7, 3, 12, 5, 9, 4] * 8
    plain = PackPlan(lengths, 16, 2, seed=1)
    longer = plain.relengthened(3, 32)
    saved = Loader(PackedDataset(documents_of(lengths), longer), longer, Topology())
    saved.resume(longer.consumed(5))
    loader = Loader(PackedDataset(documents_of(lengths), plain), plain, Topology())
    with pytest.raises(ValueError, match="another seq_len"):
        loader.load_state_dict(saved.state_dict())


def test_two_loaders_over_one_dataset_each_read_their_own_epoch():
    lengths = [7, 3, 12, 5, 9, 4] * 8
    plan = PackPlan(lengths, 16, 2, seed=1)
    dataset = PackedDataset(documents_of(lengths), plan)
    first, second = Loader(dataset, plan, Topology()), Loader(dataset, plan, Topology())
    second.resume(plan.consumed(plan.first_step(2)))
    for mine, other, step in zip(first, second, range(5), strict=False):
        for batch, at in ((mine, step), (other, plan.first_step(2) + step)):
            assert batch["tokens"].tolist() == read_packed(documents_of(lengths), plan.batch(at)).tokens.tolist()


def test_a_corpus_of_token_files_is_read_straight_into_batches(tmp_path):
    lengths = [7, 30, 12, 5, 9, 41] * 8
    documents = documents_of(lengths)
    path = write_pair(tmp_path / "tokens", documents, "int32")
    corpus = open_corpus(path)
    plan = PackPlan(lengths, 16, 4, seed=2, tail="keep")
    for step, batch in enumerate(Loader(PackedDataset(corpus, plan), plan, Topology())):
        wanted = read_packed(documents, plan.batch(step))
        assert (
            batch["tokens"].tolist() == wanted.tokens.tolist() == read_packed(corpus, plan.batch(step)).tokens.tolist()
        )
