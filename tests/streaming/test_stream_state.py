"""A stream's state: files that grow or change, kills, other ranks, what does not fit, and records made by hand."""

import json
import os
import pickle
import signal
import subprocess
import sys

import pytest
import torch

from detdata import Checkpointer, Plan, Sequential, Shuffle, StateMismatch, Stream, Topology, UnknownFormat, open_corpus
from detdata.loader import StaleIteration
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


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_one_ranks_state_of_a_filled_stream_is_not_taken_for_all():
    ranks = [make(list(range(40)), 8, rank=rank, world_size=4, filter=keeps, tail="carry") for rank in range(4)]
    for stream in ranks:
        list(stream.until(2))
        with pytest.raises(RuntimeError, match=r"rank_state_dict\(\) of every rank"):
            stream.state_dict()
    states = [stream.rank_state_dict() for stream in ranks]
    own = make(list(range(40)), 8, rank=1, world_size=4, filter=keeps, tail="carry")
    own.load_state_dict(states[1])
    assert list(ranks[1].until(5)) == list(own.until(5))
    with pytest.raises(StateMismatch, match=r"lanes \[0\] of 4.*lanes \[1\] are needed here; load the states of all"):
        own.load_state_dict(states[0])
    with pytest.raises(StateMismatch, match=r"lanes: saved 4, here 2; make the stream with lanes=4"):
        make(list(range(40)), 8, rank=0, world_size=2, filter=keeps, tail="carry").load_state_dict(states)
    with pytest.raises(StateMismatch, match="hold a lane twice"):
        own.load_state_dict([states[0], states[0]])
    later = ranks[0].rank_state_dict()
    list(ranks[0].until(3))
    with pytest.raises(StateMismatch, match=r"not of one moment.*\[2, 3\]"):
        own.load_state_dict([ranks[0].rank_state_dict(), *states[1:]])
    assert later == states[0]


def test_steps_that_could_not_be_equal_are_refused_when_the_stream_is_made():
    for options in ({"filter": keeps}, {"seq_len": 4, "tokens": tokens_of}):
        with pytest.raises(ValueError, match=r"40 rows, 2 rank\(s\).*tail=\"carry\".*fill=False.*Subset"):
            make(list(range(40)), 4, world_size=2, **options)
    with pytest.raises(ValueError, match=r"3 rows cannot be shared by 4 lane\(s\) of 4 rank"):
        make(list(range(3)), 4, world_size=4, filter=keeps, tail="carry")
    with pytest.raises(ValueError, match=r"41 rows in batches of 8 ends with a step of 1 row\(s\) for 2 ranks"):
        make(list(range(41)), 8, world_size=2)
    with pytest.raises(ValueError, match="multiple of lanes 3"):
        make(list(range(40)), 4, filter=keeps, lanes=3, tail="carry")


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"batch_size": 5, "order": Shuffle(30)}, "order"),
        ({"batch_size": 5, "tail": "drop"}, "tail: saved keep, here drop"),
        ({"batch_size": 5, "seed": 3}, "seed: saved 0, here 3"),
        ({"batch_size": 5, "randomness": "off"}, "randomness: saved sample, here off"),
        ({}, "kind: saved batches, here rows"),
        ({"batch_size": 5, "filter": keeps, "fill": False}, "filter: saved none, here one"),
        ({"batch_size": 5, "seq_len": 3, "tokens": tokens_of}, "kind: saved batches, here packed"),
    ],
)
def test_a_state_of_another_stream_is_refused_by_name(arguments, match):
    stream = make(list(range(30)), 5)
    next(iter(stream))
    other = Stream(list(range(30)), topology=Topology(), **arguments)
    with pytest.raises(StateMismatch, match=match):
        other.load_state_dict(stream.state_dict())
    assert other.check_state(stream.state_dict()) != []
    assert other.progress.global_step == 0


def test_another_packing_is_refused():
    stream = make(list(range(30)), 2, seq_len=3, tokens=tokens_of)
    next(iter(stream))
    with pytest.raises(StateMismatch, match=r"packing: saved .*'seq_len': 3.*here .*'seq_len': 4"):
        make(list(range(30)), 2, seq_len=4, tokens=tokens_of).load_state_dict(stream.state_dict())


def test_a_row_that_has_become_shorter_than_what_was_used_of_it_is_noticed():
    rows = [[1] * 10 for _ in range(5)]
    stream = make(rows, 1, seq_len=7)
    next(iter(stream))
    rows[0] = [1] * 5
    other = make(rows, 1, seq_len=7)
    other.load_state_dict(stream.state_dict())
    with pytest.raises(StateMismatch, match="7 tokens inside source row 0"):
        next(iter(other))


def test_states_made_by_hand_are_refused_for_what_is_wrong_with_them():
    batches, packed = make(list(range(30)), 5), make(list(range(30)), 2, seq_len=3, tokens=tokens_of)
    list(packed.until(2))
    good, lanes = batches.state_dict(), packed.state_dict()
    bad = [
        (batches, {**good, "format": "detdata.stream/2"}),
        (batches, {**good, "more": 1}),
        (batches, {key: value for key, value in good.items() if key != "source"}),
        (batches, {**good, "kind": "cows"}),
        (batches, {**good, "kind": []}),
        (batches, {**good, "lanes": lanes["lanes"]}),
        (batches, {**good, "progress": {**good["progress"], "consumed_samples": 3}}),
        (batches, {**good, "plan": Sequential(30).spec()}),
        (batches, {**good, "filtered": "no"}),
        (batches, {**good, "source": None}),
        (batches, {**good, "source": {"rows": 30, "files": {"count": 2, "earlier": None, "last": []}}}),
        (batches, {**good, "counted": [1]}),
        (batches, []),
        (packed, {**lanes, "lanes": None}),
        (packed, {**lanes, "packing": None}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "places": [[0, 0, 0, 0]]}}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "places": [[1, 0, 0, 0, 0]]}}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "places": []}}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "places": [[0, 0, -1, 0, 0]]}}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "places": [[0, 0, 31, 0, 0]]}}),
        (packed, {**lanes, "lanes": {**lanes["lanes"], "ended": 1}}),
    ]
    for stream, state in bad:
        before = stream.progress
        with pytest.raises((UnknownFormat, StateMismatch, ValueError)):
            stream.load_state_dict(state)
        assert stream.progress == before
    for state in (None, 3, "state"):
        with pytest.raises(TypeError):
            batches.load_state_dict(state)


def test_a_second_loop_ends_the_first():
    for options in ({}, {"filter": keeps}):
        stream = make(list(range(30)), 3, **options)
        first, second = iter(stream), iter(stream)
        next(first)
        next(second)
        with pytest.raises(StaleIteration):
            next(first)
        next(second)


def test_set_epoch_goes_to_an_epochs_beginning_and_keeps_a_pending_resume():
    stream = Stream(list(range(12)), Shuffle(12, 1), 4, collate_fn=as_list, topology=Topology())
    stream.resume(8)
    stream.set_epoch(0)
    assert len(list(stream)) == 1
    stream.set_epoch(3)
    assert stream.progress.epoch == 3
    assert next(iter(stream)) == Shuffle(12, 1).take(range(4), 3).tolist()
    filled = make(list(range(12)), 2, filter=keeps)
    first = list(filled)
    filled.set_epoch(5)
    assert (first, 6) == (list(filled), filled.progress.epoch)


def test_resume_says_where_steps_begin_and_what_needs_a_state():
    with pytest.raises(ValueError, match="begins at 4"):
        make(list(range(12)), 4).resume(6)
    filled = make(list(range(12)), 2, filter=keeps)
    with pytest.raises(ValueError, match="use load_state_dict"):
        filled.resume(4)
    filled.resume(0)


def test_a_length_is_exact_or_a_clear_error():
    assert len(make(list(range(10)), 4)) == 3
    assert len(make(list(range(10)), rank=1, world_size=3, tail="drop")) == 3
    assert len(Stream(list(range(10)), Plan(Sequential(10), 4), topology=Topology())) == 2
    for options in ({"filter": keeps}, {"seq_len": 3, "tokens": tokens_of}):
        with pytest.raises(TypeError, match=r"no length.*until"):
            len(make(list(range(10)), 4, **options))


def test_a_filter_that_keeps_nothing_ends_or_is_an_error():
    assert list(make(list(range(10)), 2, filter=bool, map=None, tail="keep")) != []
    assert list(make([0] * 10, 2, filter=bool)) == []
    with pytest.raises(ValueError, match="none of the 10 rows of an epoch was kept"):
        next(iter(make([0] * 10, 2, filter=bool, tail="carry")))
    with pytest.raises(ValueError, match="an epoch has no sample"):
        list(make([0] * 10, 2, filter=bool).until(3))
    with pytest.raises(ValueError, match="none of the 4 rows"):
        next(iter(make([[], [], [], []], 2, seq_len=2, tail="carry")))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"dataset": iter([1])}, TypeError, r"Resumable"),
        ({"order": 3}, TypeError, "order must be an order or a Plan"),
        ({"order": Sequential(4)}, ValueError, "dataset has 10 rows.*dataset of 4"),
        ({"order": Plan(Sequential(10), 2), "batch_size": 2}, ValueError, "the plan's own"),
        ({"filter": 3}, TypeError, "filter must be a function"),
        ({"shuffle": True}, TypeError, "shuffle: neither an argument of Stream"),
        ({"tokens": "text"}, ValueError, "give seq_len too"),
        ({"seq_len": 0}, ValueError, "seq_len must be"),
        ({"seq_len": 4, "tail": "keep"}, ValueError, "does not fit packing"),
        ({"filter": bool, "tail": "pad", "batch_size": 2}, ValueError, "does not fit a filter"),
        ({"tail": "carry"}, ValueError, "for batches"),
        ({"lanes": 2, "batch_size": 2}, ValueError, "lanes is for batches that are filled"),
        ({"pin_memory": True}, ValueError, "pin_memory"),
        ({"fill": 1}, TypeError, "fill must be"),
        ({"randomness": "much"}, ValueError, "randomness must be one of"),
        ({"topology": 3}, TypeError, "topology must be"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"num_workers": -1}, ValueError, "num_workers"),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, error, match):
    given = {"dataset": list(range(10)), "topology": Topology(), **arguments}
    with pytest.raises(error, match=match):
        Stream(**given)


@pytest.mark.parametrize(
    ("row", "options", "match"),
    [
        ({"text": "a"}, {"tokens": "ids"}, r"row 0 has no column 'ids'"),
        ("abc", {}, "the tokens of row 0 must be integers"),
        ([1.5], {}, "the tokens of row 0 must be integers"),
        ([[1, 2]], {}, "the tokens of row 0 must be integers"),
    ],
)
def test_rows_that_hold_no_tokens_are_named(row, options, match):
    with pytest.raises((TypeError, ValueError), match=match):
        next(iter(Stream([row], seq_len=2, topology=Topology(), **options)))


def test_a_copy_shares_nothing_with_its_original():
    stream = make(list(range(20)), 4)
    next(iter(stream))
    copy = pickle.loads(pickle.dumps(stream))
    list(copy)
    assert (stream.progress.global_step, copy.progress.global_step) == (1, 5)


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
