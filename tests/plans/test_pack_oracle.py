"""PackPlan "concat" against a walk over lists of tokens, with batch sizes and lengths that change on the way."""

from __future__ import annotations

import json
import pickle
from functools import lru_cache
from itertools import islice

from hypothesis import example, given
from hypothesis import strategies as st

from detdata.plans.batch import part_of
from detdata.plans.pack_plan import PackPlan
from tests.plans import pack_second as second

SPAN = 40  # steps that are compared
TAILS = ("drop", "pad", "keep", "carry")
SEEDS = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1))


@st.composite
def runs(draw):
    """(lengths, seed, tail, [(first step, seq_len, batch size), …])"""
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(any))
    tail, tokens = draw(st.sampled_from(TAILS)), sum(lengths)
    terms = []
    for step in [0, *sorted(draw(st.sets(st.integers(1, 25), max_size=3)))]:
        seq_len = draw(st.integers(1, 9))
        terms.append((step, seq_len, draw(st.integers(1, -(-tokens // seq_len) if tail == "drop" else 8))))
    return lengths, draw(SEEDS), tail, terms


def build(run):
    lengths, seed, tail, terms = run
    plan = PackPlan(lengths, *terms[0][1:], seed=seed, tail=tail)
    for step, seq_len, batch_size in terms[1:]:
        plan = plan.relengthened(step, seq_len, batch_size)
    return plan


def walk(run):
    lengths, seed, tail, terms = run
    return second.steps(lru_cache(lambda epoch: second.stream(lengths, seed, epoch)), tail, terms)


def rows_of(batch):
    rows = [[] for _ in range(len(batch))]
    for row, *segment in batch.segments.tolist():
        rows[row].append(tuple(segment))
    return rows


@given(runs())
@example(([1, 12], 0, "drop", [(0, 4, 2), (5, 4, 3)]))  # a larger batch leaves the rest of an epoch unused
def test_every_batch_is_what_a_walk_over_tokens_gives(run):
    plan = build(run)
    consumed = tokens = 0
    for step, (epoch, seq_len, rows) in enumerate(islice(walk(run), SPAN)):
        batch = plan.batch(step)
        assert [second.segments(row) for _, _, row, _ in rows] == rows_of(batch), step
        assert [real for *_, real in rows] == batch.real.tolist()
        assert [epoch for epoch, *_ in rows] == batch.epochs.tolist()
        assert (step, epoch, seq_len, rows[0][1]) == (batch.step, batch.epoch, batch.width, batch.start)
        numbers = [number for _, number, _, real in rows if real]
        assert numbers == batch.ids[batch.real].tolist()
        assert (consumed, tokens) == (plan.consumed(step), plan.consumed_tokens(step))
        assert step == plan.step(consumed)
        consumed += len(numbers)
        tokens += sum(len(row) for _, _, row, real in rows if real)


@given(runs())
def test_a_sequence_is_found_again_by_its_number_and_epoch(run):
    plan = build(run)
    for step in range(SPAN):
        batch = plan.batch(step)
        for epoch in set(batch.epochs.tolist()):
            mine = batch.epochs == epoch
            ids = batch.ids[mine]
            again = plan.segments(ids, epoch)
            rows = [row for row, here in zip(rows_of(batch), mine, strict=True) if here]
            assert rows == [[s[1:] for s in again.tolist() if s[0] == row] for row in range(len(ids))]
            assert set(plan.widths(ids, epoch).tolist()) == {batch.width}


@given(runs())
def test_steps_and_first_steps_count_the_batches_of_each_epoch(run):
    plan = build(run)
    begins = [epoch for epoch, *_ in islice(walk(run), SPAN)]
    for epoch in range(begins[-1]):
        assert begins.count(epoch) == plan.steps(epoch)
        assert sum(begin < epoch for begin in begins) == plan.first_step(epoch)


@given(runs())
def test_when_finds_the_first_step_with_a_token_of_every_document(run):
    plan, lengths = build(run), run[0]
    used, last = {}, 0
    for step, (_, _, rows) in enumerate(islice(walk(run), SPAN)):
        for epoch, _, row, real in rows:
            for document, _ in row if real else ():
                used.setdefault((epoch, document), step)
            last = epoch
    for epoch in range(min(last, 4)):
        for document in range(len(lengths)):
            assert used.get((epoch, document)) == plan.when(document, epoch)


@given(runs(), st.integers(0, SPAN), st.integers(1, 8))
def test_another_batch_size_goes_on_at_the_next_unseen_token_and_keeps_later_lengths(run, step, batch_size):
    lengths, seed, tail, terms = run
    seq_len = [length for first, length, _ in terms if first <= step][-1]
    shortest = min([-(-sum(lengths) // length) for first, length, _ in terms if first > step] or [8])
    batch_size = min(batch_size, shortest, -(-sum(lengths) // seq_len)) if tail == "drop" else batch_size
    plan = build(run).resized(step, batch_size)

    later = [(first, length, batch_size) for first, length, _ in terms if first > step]
    changed = [*(item for item in terms if item[0] < step), (step, seq_len, batch_size), *later]

    for number, (_, _, rows) in enumerate(islice(walk((lengths, seed, tail, changed)), SPAN)):
        assert [second.segments(row) for _, _, row, _ in rows] == rows_of(plan.batch(number)), number


@given(runs(), st.integers(0, 30), st.integers(0, 20))
def test_what_is_skipped_is_never_seen_and_later_data_move_up(run, first, count_):
    plan = build(run)
    skipping = plan.skipping(first, first + count_)

    for step in range(SPAN):
        expected, found = plan.batch(step if step < first else step + count_), skipping.batch(step)
        if run[2] != "pad" or found.real.all():
            assert rows_of(expected) == rows_of(found), step
        assert (expected.epoch, expected.width) == (found.epoch, found.width)
        assert expected.real.tolist() == found.real.tolist()
        lost = 0 if step < first else plan.consumed(first + count_) - plan.consumed(first)
        assert plan.consumed(step if step < first else step + count_) - lost == skipping.consumed(step)


@given(runs(), st.integers(1, 4), st.integers(1, 3), st.integers(0, SPAN))
def test_parts_are_disjoint_and_their_union_is_the_batch(run, world_size, micro_steps, step):
    plan = build(run)
    size = plan.batch_size_at(step)
    if plan.tail == "drop" and size % (world_size * micro_steps):
        return
    plan = plan if plan.tail == "drop" else plan.resized(step, size * world_size * micro_steps)
    whole, grid = plan.batch(step), plan.batch_size_at(step) // micro_steps
    rows = {}
    for rank in range(world_size):
        for micro in range(micro_steps):
            part = plan.shard(step, rank, world_size, micro, micro_steps)
            assert (part.step, part.epoch, part.start, part.width) == (step, whole.epoch, whole.start, whole.width)
            cut = part_of(whole, grid * micro_steps, rank, world_size, range(micro, micro + 1), micro_steps)
            assert (rows_of(cut), cut.ids.tolist()) == (rows_of(part), part.ids.tolist())
            places = range(micro * grid + rank, (micro + 1) * grid, world_size)
            for place, id, real, row in zip(places, part.ids.tolist(), part.real.tolist(), rows_of(part), strict=False):
                assert place not in rows
                rows[place] = id, real, row
    assert sorted(rows) == list(range(len(whole)))
    assert [rows[row][0] for row in range(len(whole))] == whole.ids.tolist()
    assert [rows[row][1] for row in range(len(whole))] == whole.real.tolist()
    assert [rows[row][2] for row in range(len(whole))] == rows_of(whole)


@given(runs())
def test_a_plan_survives_json_and_pickle_whole(run):
    plan = build(run)
    spec = json.loads(json.dumps(plan.spec()))

    for other in (PackPlan.from_spec(spec, run[0]), pickle.loads(pickle.dumps(plan))):
        assert other == plan
        assert hash(other) == hash(plan)
        assert other.digest(0, 10) == plan.digest(0, 10)


@given(runs())
def test_the_digest_is_that_of_the_second_implementation(run):
    batches = [
        (seq_len, [(second.segments(row), real) for _, _, row, real in rows])
        for _, seq_len, rows in islice(walk(run), 20)
    ]

    assert second.digest(batches) == build(run).digest(0, 20)
