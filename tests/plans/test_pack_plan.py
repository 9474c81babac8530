"""PackPlan beyond a few documents: windows, mapped files, sizes past 32 bits, arguments that are none, identity."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import DetdataError, UnknownFormat, from_spec
from detdata.plans.pack_order import DocumentShuffle
from detdata.plans.pack_plan import PackPlan

METHODS = ("concat", "best_fit")


def random_lengths(n, longest, seed=0):
    return np.random.default_rng(seed).integers(0, longest + 1, n)


def tokens_of(segments, lengths):
    """Every token as one number: where its document begins in the corpus, and how far in it."""
    begins = np.concatenate([[0], np.cumsum(lengths)])
    return np.concatenate([np.arange(a, b) + begins[d] for _, d, a, b in segments.tolist()] or [np.empty(0, int)])


@given(
    st.sampled_from([1, 255, 256, 257, 4095, 4096, 4097, 9000, 13_000]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 3),
    st.integers(1, 3000),
    st.integers(0, 6),
)
def test_concat_over_many_windows_is_the_order_of_documents_joined(n, seed, epoch, seq_len, longest):
    lengths = random_lengths(n, longest, seed % 1000)
    lengths[n // 2] += 1  # at least one token
    plan = PackPlan(lengths, seq_len, 5, seed, tail="keep")
    documents = DocumentShuffle(n, seed).take(np.arange(n), epoch)
    expected = tokens_of(
        np.array([(0, d, 0, lengths[d]) for d in documents.tolist()], dtype=plan.batch(0).segments.dtype), lengths
    )

    whole = plan.segments(np.arange(plan.sequences), epoch)

    assert expected.tolist() == tokens_of(whole, lengths).tolist()
    filled = np.bincount(whole["row"], whole["stop"] - whole["start"]).astype(int)
    assert set(filled[:-1].tolist()) <= {seq_len}
    assert filled.sum() == lengths.sum()
    some = np.arange(plan.sequences)[:: max(1, plan.sequences // 7)]
    for row, id in enumerate(some.tolist()):
        alone = plan.segments([id], epoch)
        here = plan.segments(some, epoch)
        assert (
            alone[["document", "start", "stop"]].tolist()
            == here[here["row"] == row][["document", "start", "stop"]].tolist()
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tail", ["drop", "carry", "keep", "pad"])
def test_any_step_by_any_world_size_gives_what_the_whole_run_gives(method, tail):
    lengths = random_lengths(9000, 40)
    plan = PackPlan(lengths, 100, 24, seed=3, method=method, tail=tail)
    steps = range(plan.first_step(1) + 3)
    whole = [plan.batch(step).segments for step in steps]
    again = pickle.loads(pickle.dumps(plan))

    for step in reversed(steps[::9]):
        assert whole[step].tolist() == again.batch(step).segments.tolist()
        for world_size in (2, 8, 24):
            rows = {}
            for rank in range(world_size):
                part = again.shard(step, rank, world_size)
                for segment in part.segments.tolist():
                    rows.setdefault(segment[0] * world_size + rank, []).append(segment[1:])
            flat = [(row, *segment) for row in sorted(rows) for segment in rows[row]]
            assert flat == whole[step].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_every_token_comes_once_an_epoch_whatever_changes_on_the_way(method):
    lengths = random_lengths(5000, 30)
    plan = PackPlan(lengths, 64, 7, seed=3, method=method, tail="keep").resized(40, 11).resized(200, 3)
    edges = [plan.first_step(epoch) for epoch in range(4)]

    assert all(begin < end for begin, end in pairwise(edges))
    for epoch, (begin, end) in enumerate(pairwise(edges)):
        tokens = np.concatenate([tokens_of(plan.batch(step).segments, lengths) for step in range(begin, end)])
        assert np.array_equal(np.sort(tokens), np.arange(lengths.sum()))
        assert plan.consumed_tokens(end) == (epoch + 1) * plan.tokens
        assert plan.consumed(end) == (epoch + 1) * plan.sequences


def test_a_length_that_grows_in_steps_loses_and_repeats_nothing():
    lengths = random_lengths(3000, 50)
    plan = PackPlan(lengths, 32, 64, seed=1, tail="keep")
    for step, seq_len in ((5, 48), (9, 100), (13, 333), (20, 1024)):
        plan = plan.relengthened(step, seq_len, batch_size=2048 // seq_len)
    end = plan.first_step(1)

    tokens = np.concatenate([tokens_of(plan.batch(step).segments, lengths) for step in range(end)])

    assert np.array_equal(np.sort(tokens), np.arange(lengths.sum()))
    assert plan.relengths == ((5, 48), (9, 100), (13, 333), (20, 1024))
    assert plan.resizes == ((5, 42), (9, 20), (13, 6), (20, 2))
    assert [plan.seq_len_at(step) for step in (0, 4, 5, 19, 10**9)] == [32, 32, 48, 333, 1024]
    assert plan.batch_sizes(0, 14) == (64, 42, 20, 6)
    assert plan.skips == ()
    assert (plan.seq_len, plan.batch_size) == (32, 64)


@pytest.mark.parametrize("method", METHODS)
def test_a_length_that_does_not_change_is_no_change(method):
    plan = PackPlan([9, 5, 7], 4, 2, method=method)

    assert plan.relengthened(0, 4) == plan
    assert plan.relengthened(plan.first_step(1), 4) == plan
    step = plan.first_step(2)
    assert plan.relengthened(step, 8, 1).relengthened(step, 4, 2) == plan
    assert plan.relengthened(0, 8, 1) == PackPlan([9, 5, 7], 8, 1, method=method)
    assert plan.relengthened(step, 4, 1) == plan.resized(step, 1) != plan


def test_what_a_later_change_of_length_replaces_leaves_no_trace():
    plan = PackPlan([90, 5, 7], 4, 2).relengthened(5, 8, 1)

    assert plan.resized(9, 3).relengthened(7, 16, 1) == plan.relengthened(7, 16, 1)
    assert plan.relengthened(9, 5, 1).relengthened(7, 16, 1) == plan.relengthened(7, 16, 1)
    assert plan.relengthened(2, 3) == PackPlan([90, 5, 7], 4, 2).relengthened(2, 3)


def test_numbers_go_on_behind_a_phase_that_was_skipped_whole():
    plan = PackPlan([40], 4, 1).relengthened(1, 3).relengthened(3, 5)  # of 4, of 3 twice, then from token 10 on
    left = plan.skipping(1, 3)

    assert [left.batch(step).segments.tolist() for step in (0, 1)] == [[(0, 0, 0, 4)], [(0, 0, 10, 15)]]
    assert [left.batch(step).ids.tolist() for step in (0, 1, 2)] == [[0], [3], [4]]  # 0, 1, 2 are those up to token 12
    assert left.segments([0, 3, 4]).tolist() == [(0, 0, 0, 4), (1, 0, 10, 15), (2, 0, 15, 20)]
    assert PackPlan.from_spec(left.spec(), [40]) == left


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_lengths_of_any_width_make_the_same_plan_and_are_not_copied(dtype, tmp_path):
    lengths = random_lengths(1000, 100).astype(dtype)
    np.save(tmp_path / "lengths.npy", lengths)
    mapped = np.load(tmp_path / "lengths.npy", mmap_mode="r")
    for method in METHODS:
        plan = PackPlan(mapped, 64, 4, 1, method)
        other = PackPlan(lengths.astype(np.int64).tolist(), 64, 4, 1, method)

        assert plan == other
        assert plan.digest(0, 20) == other.digest(0, 20)
        assert np.shares_memory(plan._documents.lengths, mapped)


def test_o_sx2_totals_past_2_to_53_are_exact():
    lengths = [2**40] * 5000 + [3, 2**40 - 1, 0]
    plan = PackPlan(lengths, 2**12 + 1, 64, seed=7, tail="keep")
    total = 5000 * 2**40 + 2**40 + 2

    assert plan.tokens == total
    assert plan.sequences == -(-total // (2**12 + 1))
    for document in (0, 4999, 5000, 5001):
        step = plan.when(document, epoch=2)
        found = plan.batch(step).segments
        mine = found[found["document"] == document]
        assert mine["start"][0] == 0
        assert document not in plan.batch(step - 1).segments["document"]
    assert plan.when(5002) is None
    last = plan.batch(plan.first_step(3) - 1)
    assert last.segments["stop"][-1] == lengths[last.segments["document"][-1]]
    assert plan.consumed_tokens(plan.first_step(3)) == 3 * total
    assert plan.consumed_tokens(plan.first_step(3) + 1) == 3 * total + 64 * (2**12 + 1)
    step = plan.first_step(1) + 2**35
    assert plan.step(plan.consumed(step)) == step


def test_documents_without_a_token_never_appear():
    lengths = np.zeros(5000, np.int8)
    lengths[[7, 4000]] = 3, 2
    for method in METHODS:
        plan = PackPlan(lengths, 4, 1, method=method, tail="keep")

        assert {*plan.batch(0).segments["document"], *plan.batch(1).segments["document"]} == {7, 4000}
        assert plan.documents == 5000
        assert plan.when(8) is None
        assert plan.when(7) is not None


def test_efficiency_of_concat_is_1_but_for_the_last_sequence():
    assert PackPlan([10] * 10, 10, 1).efficiency == 1.0
    assert PackPlan([10] * 10, 33, 1).efficiency == 100 / (4 * 33)
    assert PackPlan(random_lengths(10_000, 1000), 2048, 1).efficiency > 0.999


@pytest.mark.parametrize(
    ("arguments", "kind", "names"),
    [
        (([], 4, 1), ValueError, "lengths"),
        (([0, 0], 4, 1), ValueError, "2 documents with 0 tokens"),
        (([3, -1], 4, 1), ValueError, r"lengths\[1\] is -1"),
        (([2.0], 4, 1), TypeError, "lengths"),
        (([True], 4, 1), TypeError, "lengths"),
        ((["a"], 4, 1), TypeError, "lengths"),
        (([[1]], 4, 1), TypeError, "lengths"),
        ((None, 4, 1), TypeError, "lengths"),
        ((5, 4, 1), TypeError, "lengths"),
        (([2**40 + 1], 4, 1), ValueError, r"lengths\[0\]"),
        (([4], 0, 1), ValueError, "seq_len"),
        (([4], 2.0, 1), TypeError, "seq_len"),
        (([4], 4, 0), ValueError, "batch_size"),
        (([4], 4, True), TypeError, "batch_size"),
        (([4], 4, 2), ValueError, "batch_size"),
        (([4], 4, 1, -1), ValueError, "seed"),
        (([4], 4, 1, 0, "first_fit"), ValueError, "concat, best_fit"),
        (([4], 4, 1, 0, None), ValueError, "method"),
        (([4], 4, 1, 0, "concat", "cut"), ValueError, "tail"),
        (([4], 2**24 + 1, 1, 0, "best_fit"), ValueError, "seq_len"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, kind, names):
    with pytest.raises(kind, match=names) as caught:
        PackPlan(*arguments)
    assert isinstance(caught.value, DetdataError)


def test_bad_calls_are_refused_by_name():
    plan = PackPlan([9, 5, 7], 4, 2)
    calls = [
        (lambda: plan.batch(-1), ValueError, "step"),
        (lambda: plan.batch(1.0), TypeError, "step"),
        (lambda: plan.shard(0, 2, 2), ValueError, "rank"),
        (lambda: plan.shard(0, 0, 3), ValueError, "3"),
        (lambda: plan.when(3), IndexError, "document"),
        (lambda: plan.when(-1), ValueError, "document"),
        (lambda: plan.when(0, -1), ValueError, "epoch"),
        (lambda: plan.segments([6]), IndexError, "sequence 6"),
        (lambda: plan.segments([0.5]), TypeError, "ids"),
        (lambda: plan.segments([[0]]), TypeError, "dimension"),
        (lambda: plan.step(3), ValueError, r"2 .*4"),
        (lambda: plan.resized(2, 0), ValueError, "batch_size"),
        (lambda: plan.skipping(3, 2), ValueError, "last"),
        (lambda: plan.relengthened(2, 0), ValueError, "seq_len"),
        (lambda: plan.relengthened(2, "4"), TypeError, "seq_len"),
        (lambda: plan.skipping(4, 6).relengthened(2, 8, 1), ValueError, "first, then skip"),
        (lambda: plan.relengthened(2, 8, 1).skipping(4, 6).resized(1, 1), ValueError, "first, then skip"),
        (lambda: plan.relengthened(2, 8, 1).skipping(4, 6).relengthened(1, 3, 1), ValueError, "first, then skip"),
    ]
    for call, kind, names in calls:
        with pytest.raises(kind, match=names):
            call()


@pytest.mark.parametrize("method", METHODS)
def test_equal_specs_are_equal_plans_and_others_are_not(method):
    plan = PackPlan([9, 5, 7], 4, 2, 1, method)
    others = [
        PackPlan([9, 7, 5], 4, 2, 1, method),
        PackPlan([9, 5, 7], 5, 2, 1, method),
        PackPlan([9, 5, 7], 4, 3, 1, method),
        PackPlan([9, 5, 7], 4, 2, 2, method),
        PackPlan([9, 5, 7], 4, 2, 1, method, "keep"),
        plan.resized(3, 1),
        plan.skipping(1, 2),
        plan.relengthened(plan.first_step(3), 5, 1),
    ]
    for other in (PackPlan(np.array([9, 5, 7], np.uint8), 4, 2, 1, method), copy.copy(plan), copy.deepcopy(plan)):
        assert plan == other
        assert hash(plan) == hash(other)
    assert len({plan, *others}) == 1 + len(others)
    assert plan != plan.spec()
    assert method in repr(plan)


def test_a_spec_alone_says_how_to_go_on():
    spec = PackPlan([9, 5, 7], 4, 2).spec()

    with pytest.raises(ValueError, match=r"PackPlan\.from_spec\(spec, lengths\)"):
        from_spec(spec)
    with pytest.raises(ValueError, match="lengths"):
        PackPlan.from_spec(spec, [9, 5, 8])
    with pytest.raises(ValueError, match="lengths"):
        PackPlan.from_spec(spec, [9, 5])
    assert len(json.dumps(PackPlan(np.arange(10**5), 4, 2).spec())) < 400


def phase(**changes):
    plain = {"step": 0, "epoch": 0, "token": 0, "seq_len": 4, "batch_size": 2, "resizes": [], "skips": []}
    return {**plain, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "detdata.pack_plan/2"},
        {"method": "other"},
        {"seed": True},
        {"tail": "other"},
        {"extra": 1},
        {"phases": []},
        {"phases": None},
        {"phases": [[]]},
        {"phases": [phase(extra=1)]},
        {"phases": [phase(step=1)]},
        {"phases": [phase(token=3)]},
        {"phases": [phase(token=21)]},
        {"phases": [phase(epoch=1)]},
        {"phases": [phase(epoch=2**63, skips=[[0, 0, 2**63, 0]])]},
        {"phases": [phase(seq_len=True)]},
        {"phases": [phase(batch_size=2.0)]},
        {"phases": [phase(resizes=[[0, 3]])]},
        {"phases": [phase(resizes=[[3, 3], [3, 2]])]},
        {"phases": [phase(resizes=[3])]},
        {"phases": [phase(resizes={})]},
        {"phases": [phase(skips=[[0, 0, 0, 9]])]},
        {"phases": [phase(), phase(step=1)]},
        {"phases": [phase(), phase(step=1, token=8)]},
        {"phases": [phase(), phase(step=1, seq_len=8, token=8, skips=[[0, 1, 0, 2]])]},
        {"phases": [phase(), phase(step=2, seq_len=8, token=8, batch_size=1, skips=[[0, 0, 0, 1]]), phase(step=1)]},
    ],
)
def test_a_spec_that_is_none_is_refused(changes):
    spec = {**PackPlan([9, 5, 7], 4, 2).spec(), **changes}

    with pytest.raises((ValueError, TypeError)) as caught:
        PackPlan.from_spec(spec, [9, 5, 7])
    assert isinstance(caught.value, DetdataError)


def test_keys_that_are_missing_or_unknown_are_an_unknown_format():
    spec = PackPlan([9, 5, 7], 4, 2).spec()

    for wrong in ({**spec, "more": 1}, {key: value for key, value in spec.items() if key != "seed"}):
        with pytest.raises(UnknownFormat):
            PackPlan.from_spec(wrong, [9, 5, 7])
        with pytest.raises(UnknownFormat):
            from_spec(wrong)
    with pytest.raises(TypeError):
        PackPlan.from_spec(None, [9, 5, 7])
