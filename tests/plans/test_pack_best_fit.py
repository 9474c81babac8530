"""PackPlan "best_fit": whole documents, each once an epoch, packed as best-fit decreasing would, item by item."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import isqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import Plan, Sequential
from detdata.plans.lengths import CHUNK
from detdata.plans.pack_fit import best_fit
from detdata.plans.pack_plan import PackPlan
from detdata.plans.pack_primes import prime_from
from tests.plans import pack_second as second
from tests.plans.test_pack_oracle import SEEDS, TAILS, rows_of
from tests.reference import Stream

SPAN = 30


@st.composite
def plans(draw):
    """(lengths, seq_len, seed, tail, batch size, changes)"""
    lengths = draw(st.lists(st.integers(0, 25), min_size=1, max_size=25).filter(any))
    seq_len, seed, tail = draw(st.integers(1, 12)), draw(SEEDS), draw(st.sampled_from(TAILS))
    largest = len(second.packed(lengths, seq_len, seed, 0)) if tail == "drop" else 8
    sizes = st.integers(1, largest)
    changes = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 9), sizes), max_size=3))
    return lengths, seq_len, seed, tail, draw(sizes), changes


def build(case):
    lengths, seq_len, seed, tail, batch_size, changes = case
    plan = PackPlan(lengths, seq_len, batch_size, seed, "best_fit", tail)
    oracle = Stream(plan.sequences, batch_size, tail)
    for is_resize, step, steps, size in changes:
        if is_resize:
            plan, oracle = plan.resized(step, size), oracle.resized(step, size)
        else:
            plan, oracle = plan.skipping(step, step + steps), oracle.skipping(step, step + steps)
    return plan, oracle


def walk(case, oracle):
    """(epoch, [(sequence number, its segments, real), …]) of each step, sequences from the second implementation."""
    lengths, seq_len, seed, *_ = case
    epochs = {}
    for rows in oracle.batches():
        for epoch in {epoch for epoch, *_ in rows} - set(epochs):
            epochs[epoch] = second.visited(second.packed(lengths, seq_len, seed, epoch), seed, epoch)
        yield rows[0][0], [(*epochs[epoch][position], real) for epoch, position, real in rows]


@given(plans())
def test_every_batch_is_what_lists_give(case):
    plan, oracle = build(case)
    tokens = consumed = 0
    for step, (epoch, rows) in enumerate(islice(walk(case, oracle), SPAN)):
        batch = plan.batch(step)
        assert [number for number, _, _ in rows] == batch.ids.tolist()
        assert [found for _, found, _ in rows] == rows_of(batch)
        assert [real for *_, real in rows] == batch.real.tolist()
        assert (epoch, case[1]) == (batch.epoch, batch.width)
        assert (consumed, tokens) == (plan.consumed(step), plan.consumed_tokens(step))
        assert step == plan.step(consumed)
        tokens += sum(stop - start for _, found, real in rows if real for _, start, stop in found)
        consumed += sum(real for *_, real in rows)


@given(plans())
def test_every_token_comes_once_an_epoch_and_no_row_is_too_long(case):
    lengths, seq_len, *_ = case
    plan, _ = build(case)
    for epoch in (0, 1, 10**9):
        found = plan.segments(np.arange(plan.sequences), epoch)
        seen = Counter((d, t) for _, d, start, stop in found.tolist() for t in range(start, stop))
        filled = Counter()
        for row, _, start, stop in found.tolist():
            filled[row] += stop - start
        assert seen == Counter((d, t) for d, length in enumerate(lengths) for t in range(length))
        assert sorted(filled) == list(range(plan.sequences))
        assert max(filled.values()) <= seq_len
        whole = {d: (start, stop) for _, d, start, stop in found.tolist() if lengths[d] <= seq_len}
        assert whole == {d: (0, length) for d, length in enumerate(lengths) if 0 < length <= seq_len}


@given(plans())
def test_when_finds_the_first_step_with_a_token_of_every_document(case):
    plan, oracle = build(case)
    used, last = {}, 0
    for step, rows in enumerate(islice(oracle.batches(), SPAN)):
        for (epoch, _, real), segments in zip(rows, rows_of(plan.batch(step)), strict=True):
            for document, _, _ in segments if real else ():
                used.setdefault((epoch, document), step)
            last = epoch
    for epoch in range(min(last, 4)):
        for document in range(len(case[0])):
            assert used.get((epoch, document)) == plan.when(document, epoch)


@given(plans(), st.integers(0, SPAN), st.integers(1, 5))
def test_parts_are_the_rows_of_a_plain_plan(case, step, world_size):
    plan, _ = build(case)
    if plan.tail == "drop" and plan.sequences < world_size:
        return
    plan = plan.resized(step, max(plan.batch_size_at(step) // world_size, 1) * world_size)
    whole = rows_of(plan.batch(step))
    parts = [rows_of(plan.shard(step, rank, world_size)) for rank in range(world_size)]

    assert parts == [whole[rank::world_size] for rank in range(world_size)]


@given(st.dictionaries(st.integers(1, 30), st.integers(1, 9), min_size=1, max_size=12), st.integers(30, 60))
def test_bins_are_as_full_as_item_by_item(counts, size):
    bins = []
    for length in sorted(counts, reverse=True):
        for _ in range(counts[length]):
            fitting = [room for room in bins if room >= length]
            if fitting:
                bins.remove(min(fitting))
            bins.append((min(fitting) if fitting else size) - length)

    lengths = sorted(counts)
    patterns = best_fit(lengths, [counts[length] for length in lengths], size)

    filled, items = [], Counter()
    for p, (begin, end) in enumerate(zip(patterns.edges[:-1], patterns.edges[1:], strict=True)):
        entries = range(patterns.first[p], patterns.first[p + 1])
        rows = [(lengths[patterns.length[e]], int(patterns.copies[e])) for e in entries]
        filled += [size - sum(length * copies for length, copies in rows)] * (end - begin)
        for length, copies in rows:
            items[length] += copies * int(end - begin)
        assert rows == sorted(rows, reverse=True)
    assert sorted(bins) == sorted(filled)
    assert items == counts


@given(st.dictionaries(st.integers(1, 50), st.integers(1, 10**6), min_size=1, max_size=20), st.integers(50, 3000))
def test_patterns_are_those_of_the_second_implementation(counts, size):
    lengths = sorted(counts)
    found = best_fit(lengths, [counts[length] for length in lengths], size)

    rows = []
    for p in range(found.edges.size - 1):
        entries = range(found.first[p], found.first[p + 1])
        row = [(lengths[found.length[e]], int(found.copies[e])) for e in entries]
        rows.append((int(found.edges[p + 1] - found.edges[p]), row))
    assert second.patterns(counts, size) == rows


@pytest.mark.parametrize(("seq_len", "middle"), [(2048, 200), (2048, 600), (8192, 700), (131072, 900)])
def test_log_normal_lengths_fill_at_least_99_of_100_places(seq_len, middle):
    lengths = np.random.default_rng(seq_len).lognormal(np.log(middle), 0.8, 200_000).astype(np.int64) + 1
    lengths = lengths[lengths <= seq_len]
    plan = PackPlan(lengths, seq_len, 64, method="best_fit")

    assert plan.efficiency >= 0.99
    assert plan.efficiency == lengths.sum() / (plan.sequences * seq_len)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 8, 24, 90, 114, 200, 2**16, 10**6, 2**31 - 1])
def test_a_modulus_is_the_next_prime(n):
    def is_prime(p):
        return p > 1 and all(p % d for d in range(2, isqrt(p) + 1))

    found = prime_from(n)

    assert found >= n
    assert is_prime(found)
    assert not any(is_prime(p) for p in range(n, found))


def test_the_first_primes_are_those_of_a_sieve():
    primes = [p for p in range(2, 5000) if all(p % d for d in range(2, isqrt(p) + 1))]

    assert primes == sorted({prime_from(n) for n in range(primes[-1] + 1)})


@pytest.mark.parametrize("n", [29_341, 46_657, 252_601, 314_821, 25_326_001, 161_304_001])
def test_what_looks_like_a_prime_to_some_tests_is_none(n):
    assert prime_from(n) > n


def test_the_place_of_every_document_is_found_however_far_the_prime_is():
    lengths = np.full(114, 5)  # the next prime is 127
    plan = PackPlan(lengths, 11, 1, seed=3, method="best_fit", tail="keep")
    for epoch in range(20):
        first = plan.first_step(epoch)
        for step in range(first, first + plan.steps(epoch)):
            for document in plan.batch(step).segments["document"].tolist():
                assert step == plan.when(document, epoch)


def test_more_documents_than_are_counted_at_a_time():
    lengths = np.random.default_rng(0).integers(0, 40, CHUNK + 5000).astype(np.int8)
    for method in ("best_fit", "concat"):
        plan = PackPlan(lengths, 32, 64, seed=3, method=method)
        found = plan.segments(np.arange(plan.sequences), 1)
        seen = np.bincount(found["document"], found["stop"] - found["start"], minlength=lengths.size)
        assert np.array_equal(seen.astype(np.int64), lengths)
        assert np.bincount(found["row"], found["stop"] - found["start"]).max() == 32
        assert plan.tokens == int(lengths.sum(dtype=np.int64))


def test_documents_of_one_length_meet_others_each_epoch_evenly():
    lengths = [3] * 24 + [5] * 24  # bins of 8: one of each, 24 · 24 pairs
    plan, epochs = PackPlan(lengths, 8, 1, seed=5, method="best_fit"), 2000
    met = Counter()
    for epoch in range(epochs):
        documents = plan.segments(np.arange(plan.sequences), epoch)["document"].reshape(-1, 2)
        met.update(map(tuple, documents.tolist()))

    expected = epochs / 24
    assert plan.sequences == 24
    assert len(met) == 24 * 24
    chi = sum((count - expected) ** 2 / expected for count in met.values())
    assert abs(chi - 24 * 24) < 6 * (2 * 24 * 24) ** 0.5


def test_documents_of_one_length_in_one_bin_change_each_epoch():
    plan = PackPlan([4] * 60, 16, 1, seed=5, method="best_fit")
    pairs = Counter()
    for epoch in range(500):
        for row in plan.segments(np.arange(plan.sequences), epoch)["document"].reshape(-1, 4).tolist():
            pairs.update((a, b) for a in row for b in row if a < b)

    expected = 500 * 15 * 6 / (60 * 59 / 2)
    assert len(pairs) == 60 * 59 / 2
    assert max(pairs.values()) < 2.5 * expected
    assert min(pairs.values()) > expected / 2.5


def test_all_of_one_length_beside_larger_ones_in_many_bins():
    plan = PackPlan(np.repeat(np.array([1, 1000], np.int16), [10**6, 10]), 1001, 1, method="best_fit")

    assert plan.sequences == 10 + -(-(10**6 - 10) // 1001)
    assert plan.order.size == plan.id_bound == plan.sequences


def test_a_long_document_gives_sequences_of_its_own_and_its_rest_is_packed():
    plan = PackPlan([20, 3, 8], 8, 1, seed=1, method="best_fit")  # 20 = 8 + 8 + 4
    found = rows_of(plan.batch(0)) + rows_of(plan.batch(1)) + rows_of(plan.batch(2)) + rows_of(plan.batch(3))

    assert sorted(found) == [[(0, 0, 8)], [(0, 8, 16)], [(0, 16, 20), (1, 0, 3)], [(2, 0, 8)]]
    assert Plan(Sequential(4), 1).steps() == plan.steps()


def test_seq_len_changes_where_an_epoch_begins_and_nowhere_else():
    lengths = list(range(1, 30))
    plan = PackPlan(lengths, 32, 2, seed=3, method="best_fit")
    step = plan.first_step(2)
    longer = plan.relengthened(step, 64, batch_size=1)
    other = PackPlan(lengths, 64, 1, seed=3, method="best_fit")

    assert [rows_of(longer.batch(s)) for s in range(step)] == [rows_of(plan.batch(s)) for s in range(step)]
    for s in range(step, step + 20):
        assert rows_of(longer.batch(s)) == rows_of(other.batch(s - step + other.first_step(2)))
        assert longer.batch(s).width == 64 == longer.seq_len_at(s)
        assert plan.consumed_tokens(step) + other.consumed_tokens(s - step + other.first_step(2)) == (
            longer.consumed_tokens(s) + other.consumed_tokens(other.first_step(2))
        )
    assert PackPlan.from_spec(longer.spec(), lengths) == longer
    with pytest.raises(ValueError, match=f"{plan.first_step(1)} and {step}"):
        plan.relengthened(step - 1, 64)
