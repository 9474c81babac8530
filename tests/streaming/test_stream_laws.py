"""Streams against oracles of a few lines: any rows, ranks, workers, batches, tails and stopping points."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from detdata import Plan, Shuffle, Stream, Topology, open_corpus
from detdata.corpora.jsonl import JsonLines
from tests.streaming.stream_side import (
    as_it_is,
    as_list,
    as_lists,
    id_of,
    keeps,
    kept_row,
    make,
    noisy,
    tokens_of,
    write_jsonl,
)
from tests.torch_side import FORK, joined

EXAMPLES = settings(max_examples=60)


def take(stream, count):
    return [item for _, item in zip(range(count), stream, strict=False)]


def positions_of(order, epoch):
    return order.take(range(order.size), epoch).tolist()


@EXAMPLES
@given(
    n=st.integers(1, 60),
    per_rank=st.integers(1, 5),
    world=st.integers(1, 4),
    tail=st.sampled_from(["keep", "drop", "pad"]),
    single=st.booleans(),
    stop=st.integers(0, 12),
    other=st.integers(1, 4),
)
def test_ranks_share_every_epoch_and_go_on_anywhere_under_another_world_size(
    n, per_rank, world, tail, single, stop, other
):
    batch = None if single else per_rank * world
    try:
        ranks = [make(list(range(n)), batch, rank=r, world_size=world, tail=tail) for r in range(world)]
    except ValueError:
        size = world if single else batch
        assert (tail == "drop" and n < size) or (tail == "keep" and 0 < n % size < world)
        return
    epochs = [[list(stream) for stream in ranks] for _ in range(2)]
    for epoch in epochs:
        assert len({len(found) for found in epoch}) == 1
        assert len(epoch[0]) == len(ranks[0])
        seen = [[id for item in found for id in ([item] if single else item)] for found in epoch]
        order = joined(seen) if single else [id for step in zip(*epoch, strict=True) for id in joined(step)]
        whole = n - n % (world if single else batch) if tail == "drop" else n
        assert list(range(whole)) == order[:whole]
        assert tail == "pad" or len(order) == whole
    straight = make(list(range(n)), batch, tail=tail if tail != "keep" or world == 1 or n < (batch or 1) else "drop")
    begun = take(straight.until(2 * len(straight)), stop)
    state = json.loads(json.dumps(straight.state_dict()))
    if not single and batch % other == 0:
        try:
            rests = [
                make(list(range(n)), batch, rank=r, world_size=other, tail=straight.plan.tail) for r in range(other)
            ]
        except ValueError:
            return
        for rest in rests:
            rest.load_state_dict(state)
        left = 2 * len(straight) - len(begun)
        again = make(list(range(n)), batch, tail=straight.plan.tail)
        again.load_state_dict(state)
        expected = take(again.until(len(begun) + left), left)
        found = [joined(parts) for parts in zip(*(rest.until(len(begun) + left) for rest in rests), strict=True)]
        assert expected == found


@EXAMPLES
@given(n=st.integers(2, 50), lanes=st.integers(1, 3), per_lane=st.integers(1, 3), stop=st.integers(0, 12))
def test_a_filled_stream_gives_each_lanes_kept_rows_and_every_rank_count_the_same_batches(n, lanes, per_lane, stop):
    if n < lanes or not any(keeps(id) for id in range(0, n, lanes)):
        return
    kept = [[id for id in range(lane, n, lanes) if keeps(id)] for lane in range(lanes)]
    if not all(kept):
        return
    batch = lanes * per_lane
    options = {"filter": keeps, "tail": "carry", "lanes": lanes}
    steps = stop + 4
    endless = [mine * (steps * per_lane // len(mine) + 1) for mine in kept]
    expected = [
        [endless[lane][step * per_lane + k] for k in range(per_lane) for lane in range(lanes)] for step in range(steps)
    ]
    one = make(list(range(n)), batch, **options)
    assert expected == list(one.until(steps))
    ranks = [make(list(range(n)), batch, rank=r, world_size=lanes, **options) for r in range(lanes)]
    begun = [joined(parts) for parts in zip(*(stream.until(stop) for stream in ranks), strict=True)]
    states = json.loads(json.dumps([stream.rank_state_dict() for stream in ranks]))
    rest = make(list(range(n)), batch, **options)
    rest.load_state_dict(states)
    assert expected == begun + list(rest.until(steps))
    assert [stop * per_lane] * lanes == [stream.position.kept_rows for stream in ranks]


@EXAMPLES
@given(
    n=st.integers(1, 40),
    seq_len=st.integers(1, 9),
    per_lane=st.integers(1, 3),
    lanes=st.integers(1, 3),
    eos=st.sampled_from([None, 7]),
    stop=st.integers(0, 8),
    filtered=st.booleans(),
)
def test_packing_is_all_tokens_of_a_lane_joined_and_cut(n, seq_len, per_lane, lanes, eos, stop, filtered):
    rows = [
        [id for id in range(lane, n, lanes) if not filtered or keeps(id)] if n >= lanes else [] for lane in range(lanes)
    ]
    flat = [[token for id in mine for token in [*tokens_of(id), *([] if eos is None else [eos])]] for mine in rows]
    if n < lanes or not all(flat):
        return
    steps = stop + 3
    options = {"seq_len": seq_len, "tokens": tokens_of, "eos": eos, "tail": "carry", "lanes": lanes}
    options |= {"filter": keeps} if filtered else {}
    endless = [tokens * (steps * per_lane * seq_len // len(tokens) + 1) for tokens in flat]
    expected = [
        [
            endless[lane][(step * per_lane + k) * seq_len : (step * per_lane + k + 1) * seq_len]
            for k in range(per_lane)
            for lane in range(lanes)
        ]
        for step in range(steps)
    ]
    stream = make(list(range(n)), lanes * per_lane, **options)
    assert expected[:stop] == list(stream.until(stop))
    other = make(list(range(n)), lanes * per_lane, **options)
    other.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    found = []
    for batch in other.until(steps):
        found.append(batch)
        made = [[] for _ in batch]
        for at, row, first, last in other.batch.segments.tolist():
            made[at] += [*tokens_of(row), *([] if eos is None else [eos])][first:last]
        assert batch == made
    assert expected[stop:] == found


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [None, 2, 5])
@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_a_foreign_dataloaders_workers_give_the_same_order_for_every_number_of_them(workers, batch_size, tail):
    order = Shuffle(23, seed=3)
    straight = Stream(list(range(23)), order, batch_size, tail=tail, collate_fn=as_list)
    expected = [list(straight) for _ in range(3)]
    stream = Stream(list(range(23)), order, batch_size, tail=tail, collate_fn=as_list)
    loader = DataLoader(stream, batch_size=None, num_workers=workers, collate_fn=as_it_is, **(FORK if workers else {}))
    assert len(loader) == len(expected[0])
    assert expected == [list(loader) for _ in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentations_of_a_stream_depend_on_seed_epoch_and_row_alone(workers):
    expected = {(epoch, row[0]): row for epoch in range(2) for row in all_noisy(epoch)}
    for batch_size in (None, 5):
        stream = make(list(range(20)), batch_size, map=noisy, num_workers=workers)
        for epoch in range(2):
            found = [row for item in stream for row in (item if batch_size else [item])]
            assert [expected[epoch, id] for id in range(20)] == found
    filled = make(list(range(20)), 3, map=noisy, filter=keeps, num_workers=workers)
    assert [expected[0, id] for id in range(20) if keeps(id)] == [row for batch in filled for row in batch]


def all_noisy(epoch):
    stream = make(list(range(20)), 1, map=noisy)
    stream.set_epoch(epoch)
    return [row for batch in stream for row in batch]


@pytest.mark.parametrize("world", [1, 2])
def test_a_filter_that_leaves_batches_short_gives_what_is_kept_of_each_step(world):
    plan = Plan(Shuffle(30, seed=5), 6)
    for rank in range(world):
        stream = Stream(
            list(range(30)), plan, filter=keeps, fill=False, collate_fn=as_list, topology=Topology(rank, world)
        )
        seen = kept = 0
        for step, batch in enumerate(stream):
            ids = plan.shard(step, rank, world).ids.tolist()
            assert [id for id in ids if keeps(id)] == batch == stream.batch.rows.tolist()
            seen, kept = seen + len(ids), kept + len(batch)
            assert (seen, kept) == (stream.position.source_rows, stream.position.kept_rows)
            copy = Stream(list(range(30)), plan, filter=keeps, fill=False, topology=Topology(rank, world))
            copy.load_state_dict(stream.state_dict())
            assert copy.position == stream.position
        assert len(stream) == 5


def test_a_step_of_which_nothing_is_kept_is_an_empty_batch():
    stream = Stream(list(range(6)), batch_size=2, filter=lambda row: row > 3, fill=False)
    assert [batch if batch == [] else batch.tolist() for batch in stream] == [[], [], [4, 5]]


def test_rows_that_pad_are_told_from_data():
    stream = make(list(range(5)), rank=1, world_size=2, tail="pad")
    assert [(row, bool(stream.batch.real[0])) for row in stream] == [(1, True), (3, True), (0, False)]


def test_sequences_without_a_batch_size_are_single_ones():
    stream = Stream([[1, 2], [3, 4, 5]], seq_len=2)
    assert as_lists(stream) == [[1, 2], [3, 4]]
    assert list(stream.batch.rows) == [1]


def test_a_few_long_rows_fill_a_larger_batch_of_sequences():
    stream = make([list(range(20))], 4, seq_len=3, tokens=None)
    assert list(stream) == [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]]
    assert stream.progress.epoch == 1


@pytest.mark.parametrize("kind", ["rows", "filled", "packed", "batches"])
def test_workers_share_the_blocks_of_a_corpus_and_each_is_decoded_once(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(JsonLines, "shares", True)  # as formats do that decode
    write_jsonl(tmp_path, [400, 500])
    corpus = open_corpus(tmp_path, index="no", rows_per_block=50)
    batch_size, options = {
        "rows": (None, {"map": id_of}),
        "filled": (8, {"filter": kept_row, "map": id_of}),
        "packed": (4, {"seq_len": 16, "tokens": tokens_of}),
        "batches": (8, {"map": id_of}),
    }[kind]
    straight = list(make(corpus, batch_size, **options))
    stream = make(corpus, batch_size, num_workers=2, **options)
    assert straight == list(stream)
    inside = stream._engine._loader if kind == "batches" else stream._engine
    loaded = inside._requests.ahead.blocks_loaded
    assert loaded is None or len(corpus.block_sizes) <= loaded <= 1.2 * len(corpus.block_sizes)
