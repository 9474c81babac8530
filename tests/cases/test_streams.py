"""Failures that others have had in training, by the ids under which they were collected: streams.

Each test does what its case says, and its name begins with the case's id.
"""

import gzip
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from detdata import Shuffle, Stream, Topology, open_corpus
from detdata.corpora.files import LocalFile
from tests.streaming.stream_side import (
    as_it_is,
    as_list,
    corpus_of,
    id_of,
    keeps,
    make,
    noisy,
    number_of,
    rest_from,
    rest_of,
    rest_of_list,
    tokens_of,
    write_jsonl,
)
from tests.torch_side import FORK, in_new_process, joined, start_method

# --- streaming corpora ------------------------------------------------------------------------------------------------

STOPS = (0, 1, 200, 999, 1000, 1001, 4999, 5000)


def one_parquet(folder):
    pytest.importorskip("detdata.corpora.parquet")
    path = folder / "rows.parquet"
    pq.write_table(pa.table({"id": range(5000)}), path, row_group_size=1000)
    return [path]


def one_jsonl(folder):
    return write_jsonl(folder, [5000])


@pytest.mark.parametrize("write", [one_parquet, one_jsonl])
def test_o_st1_a_mapped_stream_goes_on_at_the_next_row_whatever_was_read_ahead(tmp_path, write):
    paths = write(tmp_path)
    corpus = open_corpus(
        [str(path) for path in paths], index="no", **({} if write is one_parquet else {"rows_per_block": 1000})
    )
    for stop in STOPS:
        stream = make(corpus, map=id_of, num_workers=2 if stop == 200 else 0)
        assert list(range(stop)) == [row for _, row in zip(range(stop), stream, strict=False)]
        assert stop == stream.position.source_rows == stream.progress.consumed_samples
        state = stream.state_dict()
        for rest in (
            in_new_process(rest_of, paths, None, state, {"map": id_of}),
            in_new_process(rest_from, paths, None, stop, {"map": id_of}),
        ):
            # At the end of an epoch a stream stands at the beginning of the next one.
            assert list(range(stop % 5000, 5000)) == rest


@pytest.mark.parametrize("shards", [[7], [500, 3], [1, 40, 9], [3, 5, 1, 2, 11, 4, 1]])
@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_o_st2_fewer_shards_than_readers_leave_no_rank_without_data(tmp_path, shards, tail):
    corpus = corpus_of(tmp_path, shards)
    rows = sum(shards)
    for batch_size in (None, 4):
        if tail == "keep" and rows % (batch_size or 2) == 1:
            with pytest.raises(ValueError, match=rf"{rows} rows.* 2 ranks.*workers and files"):
                make(corpus, batch_size, rank=0, world_size=2, tail=tail)
            continue
        ranks = []
        for rank in range(2):
            stream = make(corpus, batch_size, rank=rank, world_size=2, tail=tail, map=id_of)
            ranks.append(list(DataLoader(stream, batch_size=None, num_workers=3, **FORK)))
            assert len(ranks[-1]) == len(stream)
        assert len(ranks[0]) == len(ranks[1]) > 0
        seen = [id for found in ranks for item in found for id in (item if batch_size else [item])]
        if tail == "keep":
            assert list(range(rows)) == sorted(seen)
        elif tail == "drop":
            assert list(range(rows - rows % (batch_size or 2))) == sorted(seen)
        else:
            assert set(range(rows)) == set(seen)


def test_o_st3_workers_and_ranks_share_the_rows(tmp_path):
    corpus = corpus_of(tmp_path, [100, 350, 50, 300, 200])
    for batch_size, outside in ((None, None), (None, 8), (20, None)):
        seen = []
        for rank in range(2):
            stream = make(corpus, batch_size, rank=rank, world_size=2, map=id_of)
            loader = DataLoader(
                stream, batch_size=outside, num_workers=3, collate_fn=as_list if outside else None, **FORK
            )
            mine = [id for item in loader for id in (item if batch_size or outside else [item])]
            assert len(mine) == 500
            seen += mine
        assert list(range(1000)) == sorted(seen)


VARIANTS = {
    "plain": lambda rows: "".join(row + "\n" for row in rows).encode(),
    "crlf": lambda rows: "".join(row + "\r\n" for row in rows).encode(),
    "blank last line": lambda rows: ("".join(row + "\n" for row in rows) + "\n").encode(),
    "no final newline": lambda rows: "\n".join(rows).encode(),
    "bom": lambda rows: b"\xef\xbb\xbf" + "".join(row + "\n" for row in rows).encode(),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_o_st4_a_resume_reads_no_more_than_a_block(tmp_path, monkeypatch, variant):
    n, files = 40_000, 8
    for number in range(files):
        ids = range(number * n // files, (number + 1) * n // files)
        rows = [json.dumps({"id": id, "text": "grün … " * (id % 5)}, ensure_ascii=False) for id in ids]
        (tmp_path / f"{number}.jsonl").write_bytes(VARIANTS[variant](rows))
    lengths = []

    def counted(file, start, length, read=LocalFile.read):
        lengths.append(length)
        return read(file, start, length)

    monkeypatch.setattr(LocalFile, "read", counted)
    corpus = open_corpus(tmp_path, index="no")
    blocks = corpus.block_sizes
    largest = max(path.stat().st_size for path in tmp_path.iterdir())
    read = []
    for start in (0, n * 9 // 10):
        fresh = pickle.loads(pickle.dumps(corpus))
        stream = make(fresh, 16, map=id_of)
        stream.resume(start)
        lengths.clear()
        assert list(range(start, start + 16)) == next(iter(stream))
        read.append(sum(lengths))
        assert fresh.blocks_loaded <= 2
    # Two neighbouring blocks at most; a block is some 64 KiB.
    assert min(read) > 0
    assert max(read) <= 2 * largest / (len(blocks) / files) * 2
    assert read[1] <= 3 * max(read[0], 1 << 16)


def test_o_st4_gzip_may_be_slower_and_is_right(tmp_path):
    for number in range(3):
        rows = "".join(json.dumps({"id": number * 2000 + k, "text": "grün … " * (k % 5)}) + "\n" for k in range(2000))
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    stream = make(open_corpus(tmp_path, index="no"), 16, map=id_of, tail="drop")
    stream.resume(5408)
    assert [id for batch in stream for id in batch] == list(range(5408, 6000))


# --- worker processes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [None, 3])
def test_o_wp1_persistent_workers_know_the_epoch_of_a_stream(batch_size):
    def run(persistent, own):
        options = {"num_workers": 2, "persistent_workers": persistent, **FORK}
        stream = Stream(
            list(range(12)),
            Shuffle(12, seed=1),
            batch_size,
            map=number_of,
            collate_fn=as_list,
            topology=Topology(),
            **(options if own else {}),
        )
        loader = stream if own else DataLoader(stream, batch_size=None, collate_fn=as_it_is, **options)
        return [[sample for item in loader for sample in (item if batch_size else [item])] for _ in range(3)]

    runs = [run(persistent, own) for own in (True, False) for persistent in (True, False)]
    for found in runs:
        assert [{0}, {1}, {2}] == [{epoch for _, epoch in samples} for samples in found]
        orders = [[id for id, _ in samples] for samples in found]
        assert len({tuple(order) for order in orders}) == 3
        assert [list(range(12))] * 3 == [sorted(order) for order in orders]
        assert found == runs[0]


KINDS = {
    "rows": (None, {"map": noisy}),
    "batches": (4, {"map": noisy}),
    "short batches": (4, {"map": noisy, "filter": keeps, "fill": False}),
    "filled": (4, {"map": noisy, "filter": keeps}),
    "packed": (2, {"seq_len": 5, "tokens": tokens_of, "eos": 9}),
}


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_o_wp2_streams_run_under_every_start_method(method, kind):
    batch_size, options = KINDS[kind]
    straight = list(make(list(range(40)), batch_size, **options))
    context = {"multiprocessing_context": start_method(method)}
    assert straight == list(make(list(range(40)), batch_size, num_workers=2, **options, **context))
    if kind in {"rows", "batches", "short batches"}:
        stream = make(list(range(40)), batch_size, **options)
        loader = DataLoader(stream, batch_size=None, num_workers=2, collate_fn=as_it_is, **context)
        assert straight == list(loader)
        assert straight != list(loader)  # the next epoch draws anew


@pytest.mark.parametrize("kind", KINDS)
def test_o_wp2_a_pickle_round_trip_in_mid_epoch_gives_the_same_next_batch_of_a_stream(kind):
    batch_size, options = KINDS[kind]
    stream = make(list(range(40)), batch_size, **options)
    walking = iter(stream)
    for _ in range(3):
        next(walking)
    copy = pickle.loads(pickle.dumps(stream))
    assert stream.progress == copy.progress
    assert list(walking) == list(copy)


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(0, None), (1, 2), (1, 8), (4, 2), (4, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_o_wp3_a_streams_state_counts_what_training_consumed(kind, num_workers, prefetch_factor):
    batch_size, options = KINDS[kind]
    workers = {"num_workers": num_workers, "prefetch_factor": prefetch_factor} if num_workers else {}
    straight = [batch for batch, _ in zip(make(list(range(200)), batch_size, **options), range(6), strict=False)]
    stream = make(list(range(200)), batch_size, **options, **workers)
    assert straight[:5] == [batch for _, batch in zip(range(5), stream, strict=False)]
    state = json.loads(json.dumps(stream.state_dict()))
    assert 5 * (batch_size or 1) == state["progress"]["consumed_samples"]
    assert straight[5:] == in_new_process(rest_of_list, 200, batch_size, state, options, 6)


# --- another topology on resume ---------------------------------------------------------------------------------------


def test_o_tc1_any_world_size_goes_on_with_the_same_global_batches_of_a_stream():
    straight = list(make(list(range(240)), 24))
    ranks = [make(list(range(240)), 24, rank=rank, world_size=4) for rank in range(4)]
    begun = [joined(parts) for parts in zip(*(list(stream.until(3)) for stream in ranks), strict=True)]
    assert straight[:3] == begun
    state = ranks[0].state_dict()
    assert state == ranks[3].state_dict()
    for world_size in (2, 3, 6, 8):
        options = [{"rank": rank, "world_size": world_size} for rank in range(world_size)]
        rests = [in_new_process(rest_of_list, 240, 24, state, mine) for mine in options]
        found = [joined(parts) for parts in zip(*rests, strict=True)]
        assert straight[3:] == found
        assert list(range(240)) == sorted(id for batch in begun + found for id in batch)
    with pytest.raises(ValueError, match=r"24.*5"):
        make(list(range(240)), 24, world_size=5)


@pytest.mark.parametrize("saved", [0, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_o_tc2_any_worker_count_of_a_stream_goes_on_from_any_other(kind, saved):
    batch_size, options = KINDS[kind]
    options = {**options, "tail": "drop" if kind == "packed" else "keep"}
    straight = list(make(list(range(40)), batch_size, **options).until(12))
    stream = make(list(range(40)), batch_size, num_workers=saved, **options)
    for _ in zip(range(3), stream, strict=False):
        pass
    state = stream.state_dict()
    for resumed in (0, 2, 5):
        assert straight[3:] == rest_of_list(40, batch_size, state, {**options, "num_workers": resumed}, 12)


@pytest.mark.parametrize(("tail", "steps", "last"), [("keep", 7, 8), ("drop", 6, 12)])
def test_o_tc3_another_batch_size_of_a_stream_goes_on_at_the_next_unseen_row(tail, steps, last):
    stream = make(list(range(120)), 8, tail=tail)
    begun = [batch for _, batch in zip(range(5), stream, strict=False)]
    assert stream.progress.consumed_samples == 40
    other = make(list(range(120)), 12, tail=tail)
    other.load_state_dict(stream.state_dict())
    rest = list(other)
    assert list(range(40, 52)) == rest[0]
    assert (steps, last) == (len(rest), len(rest[-1]))
    ids = [id for batch in begun + rest for id in batch]
    assert len(ids) == len(set(ids))
    assert other.progress.epoch == 1


# --- scale and extremes -----------------------------------------------------------------------------------------------


def test_o_sx3_a_stream_of_empty_files_says_what_is_empty(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        Stream(open_corpus(tmp_path, index="no"))
    with pytest.raises(ValueError, match="empty"):
        Stream([])
