"""The state of a stream: files that grow or change, kills, and a Checkpointer."""

import json
import os
import pickle
import signal
import subprocess
import sys

import pytest
import torch

from detdata import Checkpointer, Shuffle, StateMismatch, Stream, Topology, open_corpus
from tests.sources import ROOT
from tests.streaming.stream_side import as_list, id_of, keeps, kept_row, make, tokens_of, write_jsonl


def opened(folder):
    return open_corpus(folder, index="no")


# --- rows that are added ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [0, 1, 2, 3])
@pytest.mark.parametrize("tail", ["keep", "drop", "pad"])
def test_shards_that_arrive_later_continue_the_sequence(tmp_path, stop, tail):
    write_jsonl(tmp_path, [4, 6])
    stream = make(opened(tmp_path), 4, tail=tail, map=id_of)
    begun = [batch for _, batch in zip(range(stop), stream, strict=False)]
    state = stream.state_dict()
    write_jsonl(tmp_path, [5, 2], start=10, name="q")
    grown = make(opened(tmp_path), 4, tail=tail, map=id_of)
    grown.load_state_dict(state)
    seen = [id for batch in begun for id in batch][: min(4 * len(begun), 10)]
    rest = [id for batch in grown for id in batch]
    first = 8 if tail == "drop" and stop == 3 else len(seen)
    whole = 17 if tail != "drop" else first + (17 - first) // 4 * 4
    assert list(range(first, whole)) == rest[: whole - first]
    assert grown.progress.epoch == 1
    again = make(opened(tmp_path), 4, tail=tail, map=id_of)
    again.load_state_dict(grown.state_dict())
    assert next(iter(again)) == list(range(4))


@pytest.mark.parametrize("options", [{"filter": keeps}, {"seq_len": 5, "tokens": tokens_of, "eos": 9}])
@pytest.mark.parametrize("stop", [1, 3, None])
def test_filled_and_packed_streams_continue_it_too_with_what_was_left_over(options, stop):
    whole = list(make(list(range(60)), 2, **options, tail="drop"))
    stream = make(list(range(37)), 2, **options, tail="drop")
    begun = list(stream) if stop is None else [batch for _, batch in zip(range(stop), stream, strict=False)]
    state = json.loads(json.dumps(stream.state_dict()))
    grown = make(list(range(60)), 2, **options, tail="drop")
    grown.load_state_dict(state)
    assert whole == begun + list(grown)
    same = make(list(range(37)), 2, **options, tail="drop")
    same.load_state_dict(state)
    assert stream.progress == same.progress
    assert list(stream) == list(same)


def test_a_file_that_grows_at_its_end_is_the_same_prefix(tmp_path):
    [path] = write_jsonl(tmp_path, [6])
    stream = make(opened(tmp_path), map=id_of)
    list(stream)
    state = stream.state_dict()
    with path.open("a") as file:
        file.write('{"id": 6}\n{"id": 7}\n')
    grown = make(opened(tmp_path), map=id_of)
    grown.load_state_dict(state)
    assert list(grown) == [6, 7]


@pytest.mark.parametrize("consumed", [3, 5, 9])
def test_a_consumed_prefix_that_has_changed_is_refused_by_the_files_name(tmp_path, consumed):
    first, second = write_jsonl(tmp_path, [4, 6])
    stream = make(opened(tmp_path), map=id_of)
    for _ in zip(range(consumed), stream, strict=False):
        pass
    state = json.loads(json.dumps(stream.state_dict()))
    text = first.read_text()
    for changed in (text.replace("ä", "ö"), text + '{"id": 99}\n', text.split("\n", 1)[1]):
        first.write_text(changed)
        other = make(opened(tmp_path), map=id_of)
        if consumed == 3 and changed.startswith(text):
            continue  # a row more in the file that is being read, behind what was consumed
        with pytest.raises(StateMismatch, match=r"file part-000\.jsonl.* rows.* bytes"):
            other.load_state_dict(state)
        assert other.progress.consumed_samples == 0
        assert state["progress"]["consumed_samples"] == consumed
    first.write_text(text)
    second.write_text(second.read_text().replace("ä", "ö"))
    other = make(opened(tmp_path), map=id_of)
    if consumed == 3:
        other.load_state_dict(state)  # nothing of it was consumed
    else:
        with pytest.raises(StateMismatch, match=r"part-001\.jsonl"):
            other.load_state_dict(state)


def test_a_renamed_or_missing_file_is_named(tmp_path):
    _, second = write_jsonl(tmp_path, [4, 6])
    stream = make(opened(tmp_path), map=id_of)
    list(stream)
    state = stream.state_dict()
    second.rename(tmp_path / "z.jsonl")
    with pytest.raises(StateMismatch, match=r"part-001\.jsonl"):
        make(opened(tmp_path), map=id_of).load_state_dict(state)
    (tmp_path / "z.jsonl").unlink()
    with pytest.raises(StateMismatch, match=r"size: saved 10, here 4[\s\S]*part-001\.jsonl.*is not there"):
        make(opened(tmp_path), map=id_of).load_state_dict(state)


def test_the_folder_may_be_another_one(tmp_path):
    states = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_jsonl(tmp_path / name, [4, 6])
        stream = make(opened(tmp_path / name), map=id_of)
        for _ in zip(range(7), stream, strict=False):
            pass
        states.append(stream.state_dict())
    assert states[0] == states[1]


def test_any_other_order_needs_the_whole_corpus_as_it_was(tmp_path):
    paths = write_jsonl(tmp_path, [4, 6])
    stream = Stream(opened(tmp_path), Shuffle(10), 2, collate_fn=as_list, topology=Topology())
    next(iter(stream))
    state = stream.state_dict()
    paths[1].write_text(paths[1].read_text().replace("ä", "ö"))
    with pytest.raises(StateMismatch, match=r"part-001\.jsonl"):
        Stream(opened(tmp_path), Shuffle(10), 2, topology=Topology()).load_state_dict(state)
    write_jsonl(tmp_path, [1], start=10, name="q")
    with pytest.raises(StateMismatch, match="size: saved 10, here 11"):
        Stream(opened(tmp_path), Shuffle(11), 2, topology=Topology()).load_state_dict(state)


def test_rows_are_added_in_the_first_epoch_only(tmp_path):
    stream = make(list(range(10)), 5)
    for _ in stream.until(3):
        pass
    with pytest.raises(StateMismatch, match="size: saved 10, here 12; rows can be added in the first epoch only"):
        make(list(range(12)), 5).load_state_dict(stream.state_dict())
    with pytest.raises(StateMismatch, match="size: saved 10, here 8"):
        make(list(range(8)), 5).load_state_dict(stream.state_dict())


def test_a_state_over_many_files_holds_the_last_thousand_and_a_digest(tmp_path, monkeypatch):
    monkeypatch.setattr("detdata.streaming.source._WHOLE", 3)
    paths = write_jsonl(tmp_path, [2] * 8)
    stream = make(opened(tmp_path), map=id_of)
    list(stream)
    state = stream.state_dict()
    assert len(state["source"]["files"]["last"]) == 3
    make(opened(tmp_path), map=id_of).load_state_dict(state)
    paths[1].write_text(paths[1].read_text().replace("ä", "ö"))
    with pytest.raises(StateMismatch, match=r"files part-000\.jsonl … part-004\.jsonl"):
        make(opened(tmp_path), map=id_of).load_state_dict(state)


@pytest.mark.parametrize("options", [{"filter": keeps, "tail": "carry"}, {"seq_len": 5, "tokens": tokens_of}])
def test_what_was_consumed_stays_counted_where_the_batch_size_changes(options):
    stream = make(list(range(400)), 8, **options)
    for _ in zip(range(3), stream, strict=False):
        pass
    small = make(list(range(400)), 4, **options)
    small.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    assert (small.progress, small.position) == (stream.progress, stream.position)
    next(iter(small))
    assert (small.progress.global_step, small.progress.consumed_samples) == (4, 28)
    again = make(list(range(400)), 8, **options)
    again.load_state_dict(pickle.loads(pickle.dumps(small)).state_dict())
    assert again.progress == small.progress
    again.resume(0)
    assert again.progress.consumed_samples == 0


# --- kills ------------------------------------------------------------------------------------------------------------

SCRIPT = """
import json, os, signal, sys
from tests.streaming.stream_side import *
folder, kind, stop, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
options = {"filled": {"filter": kept_row, "map": id_of}, "packed": {"seq_len": 4, "tokens": tokens_of}}[kind]
stream = make(open_corpus(os.path.join(folder, "part-*.jsonl"), index="no"), 3, num_workers=workers, **options)
place = os.path.join(folder, "state.txt")
if os.path.exists(place):
    stream.load_state_dict(json.load(open(place)))
for batch in stream:
    with open(os.path.join(folder, "seen.txt"), "a") as file:
        file.write(json.dumps(batch) + "\\n")
    with open(place + ".new", "w") as file:
        json.dump(stream.state_dict(), file)
    os.replace(place + ".new", place)
    if stream.progress.global_step == stop:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kind", "workers"), [("filled", 0), ("packed", 2)])
def test_killed_streams_go_on_as_if_nothing_had_happened(tmp_path, kind, workers):
    write_jsonl(tmp_path, [9, 30, 11])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    codes = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path), kind, str(stop), str(workers)], env=environment, check=False
        ).returncode
        for stop in (2, 5, 0)
    ]
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    options = {"filter": kept_row, "map": id_of} if kind == "filled" else {"seq_len": 4, "tokens": tokens_of}
    straight = list(make(open_corpus(tmp_path / "part-*.jsonl", index="no"), 3, **options))
    assert straight == [json.loads(line) for line in (tmp_path / "seen.txt").read_text().splitlines()]


# --- with a checkpointer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"filter": keeps}])
def test_a_checkpointer_takes_a_stream_for_its_loader(tmp_path, options):
    def run(root, stop):
        stream = Stream(
            [float(x) for x in range(40)],
            batch_size=4,
            topology=Topology(),
            **{name: (lambda row: keeps(int(row))) for name in options},
        )
        model = torch.nn.Linear(1, 1)
        seen = []
        with Checkpointer(root, model=model, loader=stream) as checkpoints:
            checkpoints.resume()
            for batch in stream.until(stop):
                seen.append(batch.tolist())
                checkpoints.step()
        return seen

    straight = run(tmp_path / "a", 8)
    assert straight == run(tmp_path / "b", 3) + run(tmp_path / "b", 8)
