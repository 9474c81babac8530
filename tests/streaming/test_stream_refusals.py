"""What streams refuse, and what their places mean: other ranks and streams, records made by hand, wrong arguments."""

import pickle

import pytest

from detdata import Plan, Sequential, Shuffle, StateMismatch, Stream, Subset, Topology, UnknownFormat
from detdata.loader import StaleIteration
from tests.streaming.stream_side import as_list, keeps, make, tokens_of

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
    with pytest.raises(ValueError, match="2 rows cannot be shared by 3 lane"):
        Stream(
            list(range(40)), Subset(Sequential(40), [3, 9]), 3, filter=keeps, lanes=3, tail="carry", topology=Topology()
        )
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
        ([2**63], {}, "row 0 has the token 9223372036854775808"),
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


def test_another_batch_size_is_told_before_a_state_is_loaded():
    stream = make(list(range(48)), 8)
    next(iter(stream))
    assert make(list(range(48)), 12).batch_size_change(stream.state_dict()) == (8, 12)
    assert make(list(range(48)), 8).batch_size_change(stream.state_dict()) is None
    rows = make(list(range(48)), world_size=2)
    assert make(list(range(48)), world_size=3).batch_size_change(rows.state_dict()) is None
    filled = make(list(range(48)), 2, filter=keeps)
    other = make(list(range(48)), 3, filter=keeps)
    assert other.batch_size_change(filled.state_dict()) == (2, 3)
    next(iter(filled))
    other.load_state_dict(filled.state_dict())
    assert next(iter(other)) == [id for id in range(48) if keeps(id)][2:5]
