"""Laws of bucketed plans over random configurations, against sets and counters that know nothing of the arithmetic."""

import os
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.plans.bucket_plan import BucketPlan

EPOCHS = 3
SOME = settings(max_examples=2 * settings.default.max_examples, deadline=None)
MANY = settings(max_examples=3 * settings.default.max_examples, deadline=None)


@st.composite
def plans(draw, tails=("drop", "keep", "pad")):
    divisor = draw(st.sampled_from([1, 1, 2, 3]))
    top = draw(st.sampled_from([3, 30, 200]))
    lengths = draw(st.lists(st.integers(1, top), min_size=divisor, max_size=draw(st.sampled_from([5, 40, 150]))))
    how = {}
    if draw(st.booleans()):
        how["batch_size"] = divisor * draw(st.integers(1, 6))
    else:
        how["max_tokens"] = divisor * max(lengths) * draw(st.integers(1, 5))
    if draw(st.booleans()):
        how["num_buckets"] = draw(st.integers(1, 9))
    elif draw(st.booleans()):
        how["boundaries"] = sorted(draw(st.sets(st.integers(1, top), min_size=1, max_size=6)))
    how["tail"] = draw(st.sampled_from(tails))
    how["longest_first"] = draw(st.booleans())
    how["seed"] = draw(st.integers(0, 2**63 - 1))
    if how["tail"] == "drop" and len(lengths) < how.get("batch_size", len(lengths) + 1):
        how["tail"] = "keep"
    if how["tail"] == "drop" and "max_tokens" in how and len(lengths) * max(lengths) < how["max_tokens"] * 2:
        how["tail"] = "pad"
    return BucketPlan(np.array(lengths), divisor=divisor, **how)


def real_ids(batch):
    return batch.ids[batch.real].tolist()


def epoch_ids(plan, epoch):
    return [
        id for step in range(plan.first_step(epoch), plan.first_step(epoch + 1)) for id in real_ids(plan.batch(step))
    ]


def bucket_of(plan, id):
    return int(np.searchsorted(plan.boundaries, plan.lengths[id]))


@MANY
@given(plan=plans())
def test_each_sample_comes_once_an_epoch(plan):
    for epoch in range(EPOCHS):
        ids = Counter(epoch_ids(plan, epoch))

        assert set(ids.values()) <= {1}
        assert len(ids) == plan.id_bound - plan.dropped(epoch)
        if plan.tail != "drop":
            assert plan.dropped(epoch) == 0


@MANY
@given(plan=plans())
def test_counts_of_samples_and_steps_agree_with_the_batches(plan):
    consumed, step = 0, 0
    for epoch in range(EPOCHS):
        assert plan.first_step(epoch) == step
        for _ in range(plan.steps(epoch)):
            batch = plan.batch(step)
            assert (batch.step, batch.epoch, plan.epoch(step)) == (step, epoch, epoch)
            assert batch.start == consumed - plan.consumed(plan.first_step(epoch))
            assert (plan.consumed(step), plan.step(consumed)) == (consumed, step)
            assert set(batch.epochs.tolist()) == {epoch}
            assert plan.batch_size_at(step) in plan.batch_sizes(step, step + 1)
            assert len(batch) <= plan.batch_size_at(step)
            for between in range(1, int(batch.real.sum())):
                with pytest.raises(ValueError, match=f"{consumed} and step {step + 1} at"):
                    plan.step(consumed + between)
            consumed, step = consumed + int(batch.real.sum()), step + 1


@MANY
@given(plan=plans())
def test_batches_are_of_one_bucket_or_of_neighbours_and_keep_to_the_budget(plan):
    for step in range(plan.first_step(2)):
        batch = plan.batch(step)
        lengths = plan.lengths[batch.ids]

        assert batch.width == int(lengths.max())
        assert (np.diff(lengths[batch.real]) <= 0).all()
        if plan.max_tokens is not None:
            assert len(batch) * batch.width <= plan.max_tokens
        short = not batch.real.all() or step == plan.first_step(plan.epoch(step) + 1) - 1
        if not short:
            assert len(batch) % plan.spec()["divisor"] == 0
        if plan.batch_size is not None and not short:
            assert len(batch) == plan.batch_size


def mixed(plan, epoch):
    steps = range(plan.first_step(epoch), plan.first_step(epoch + 1))
    return sum(len({bucket_of(plan, id) for id in real_ids(plan.batch(step))}) > 1 for step in steps)


@given(plan=plans())
def test_few_batches_are_mixed(plan):
    assert mixed(plan, 0) <= plan.boundaries.size + 3


@SOME
@given(plan=plans())
def test_when_names_the_step_of_each_sample(plan):
    for epoch in range(2):
        found = {}
        for step in range(plan.first_step(epoch), plan.first_step(epoch + 1)):
            found.update(dict.fromkeys(real_ids(plan.batch(step)), step))
        assert [plan.when(id, epoch) for id in range(plan.id_bound)] == [found.get(id) for id in range(plan.id_bound)]


def resized(plan, step, draw):
    """The plan of another size, or None where an epoch would have no batch of it."""
    try:
        return plan.resized(step, **size_for(plan, draw))
    except ValueError as error:
        refused = str(error)
    if "no batch at all" in refused:
        return None
    return refused


def size_for(plan, draw):
    divisor = plan.spec()["divisor"]
    if plan.batch_size is not None:
        return {"batch_size": divisor * draw(st.integers(1, 7))}
    return {"max_tokens": divisor * int(plan.lengths.max()) * draw(st.integers(1, 5))}


@MANY
@given(plan=plans(tails=("keep", "pad")), data=st.data())
def test_a_resize_goes_on_with_exactly_the_unseen_rest(plan, data):
    step = 0
    changed = plan
    before = []
    for _ in range(data.draw(st.integers(1, 3))):
        step += data.draw(st.integers(0, 5))
        before.append((changed, step))
        changed = changed.resized(step, **size_for(plan, data.draw))
    for was, first in before:  # what is past does not change
        assert was.digest(0, first) == changed.digest(0, first)
    for epoch in range(EPOCHS):
        assert Counter(epoch_ids(changed, epoch)) == Counter(range(plan.id_bound))
    assert [changed.when(id) for id in range(plan.id_bound)] == [
        next(s for s in range(changed.first_step(1)) if id in real_ids(changed.batch(s))) for id in range(plan.id_bound)
    ]
    again = BucketPlan.from_spec(changed.spec(), plan.lengths)
    assert again == changed
    assert again.digest(0, changed.first_step(2)) == changed.digest(0, changed.first_step(2))


@SOME
@given(plan=plans(), data=st.data())
def test_a_resize_of_a_dropping_plan_drops_less_than_a_batch(plan, data):
    step = data.draw(st.integers(0, plan.first_step(2)))
    changed = resized(plan, step, data.draw)
    if changed is None:
        return
    for epoch in range(EPOCHS):
        ids = Counter(epoch_ids(changed, epoch))
        assert set(ids.values()) <= {1}
        if changed.steps(epoch):
            assert len(ids) == plan.id_bound - changed.dropped(epoch)
    consumed = 0
    for number in range(changed.first_step(2)):
        assert changed.consumed(number) == consumed
        consumed += int(changed.batch(number).real.sum())


@MANY
@given(plan=plans(), data=st.data())
def test_skipped_steps_are_gone_and_the_others_move_up(plan, data):
    first = data.draw(st.integers(0, plan.first_step(2)))
    last = first + data.draw(st.integers(0, 6))
    skipped = plan.skipping(first, last)

    def content(plan, step):
        batch = plan.batch(step)
        return batch.ids.tolist(), batch.real.tolist(), batch.epoch, batch.width

    for step in range(first):
        assert content(skipped, step) == content(plan, step)
    for step in range(first, first + 8):
        assert content(skipped, step) == content(plan, step + last - first)
    consumed = 0
    for step in range(first + 5):
        assert (skipped.consumed(step), skipped.step(consumed)) == (consumed, step)
        consumed += int(skipped.batch(step).real.sum())
    for epoch in range(2):
        seen = set(epoch_ids(skipped, epoch))
        for id in range(plan.id_bound):
            assert (skipped.when(id, epoch) is not None) == (id in seen)
    assert BucketPlan.from_spec(skipped.spec(), plan.lengths).digest(0, first + 9) == skipped.digest(0, first + 9)


@SOME
@given(plan=plans(), data=st.data())
def test_a_resize_after_a_skip_and_a_skip_after_a_resize(plan, data):
    first = data.draw(st.integers(0, 4))
    last = first + data.draw(st.integers(1, 4))
    gone = Counter((plan.batch(s).epoch, id) for s in range(first, last) for id in real_ids(plan.batch(s)))
    step = first + data.draw(st.integers(0, 4))
    changed = resized(plan.skipping(first, last), step, data.draw)
    if changed is None:
        return
    for epoch in range(EPOCHS):
        ids = Counter(epoch_ids(changed, epoch))
        assert set(ids.values()) <= {1}
        assert not any((epoch, id) in gone for id in ids)
        if plan.tail != "drop":
            assert len(ids) == plan.id_bound - sum(e == epoch for e, _ in gone)
    later = step + data.draw(st.integers(0, 4))
    twice = changed.skipping(later, later + 2)
    assert twice.batch(later).ids.tolist() == changed.batch(later + 2).ids.tolist()
    if later:
        with pytest.raises(ValueError, match=r"order of steps|without the skip"):
            twice.resized(later - 1, **size_for(plan, data.draw))


@SOME
@given(plan=plans(tails=("keep",)), data=st.data())
def test_a_later_change_of_size_moves_up_with_a_skip(plan, data):
    at = data.draw(st.integers(1, 9))
    ramp = plan.resized(at, **size_for(plan, data.draw))
    first = data.draw(st.integers(0, 9))
    last = first + data.draw(st.integers(1, 4))
    skipped = ramp.skipping(first, last)
    for step in range(first, first + 8):
        assert skipped.batch(step).ids.tolist() == ramp.batch(step + last - first).ids.tolist()
    step = first + data.draw(st.integers(0, 6))
    moved = at - (last - first) if at >= last else min(at, first)
    changed = resized(skipped, step, data.draw)
    if isinstance(changed, str):
        assert moved > step
        assert "reach beyond" in changed
        assert last > at
        return
    assert changed.digest(0, step) == skipped.digest(0, step)
    for epoch in range(2):
        assert set(Counter(epoch_ids(changed, epoch)).values()) <= {1}


@given(plan=plans(), parts=st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]))
def test_the_parts_of_ranks_and_micro_steps_make_up_the_batch(plan, parts):
    ranks, micro = parts
    for step in range(min(12, plan.first_step(1))):
        size = plan.batch_size_at(step)
        if size % (ranks * micro):
            with pytest.raises(ValueError, match=f"batch_size {size} .* world_size {ranks} .*micro_steps {micro}"):
                plan.shard(step, 0, ranks, 0, micro)
            continue
        found = [plan.shard(step, rank, ranks, m, micro) for rank in range(ranks) for m in range(micro)]
        joined = Counter(id for part in found for id in part.ids.tolist())
        assert joined == Counter(plan.batch(step).ids.tolist())
        assert {part.width for part in found} == {plan.batch(step).width}
        if len(plan.batch(step)) == size:
            assert {len(part) for part in found} == {size // ranks // micro}


def test_the_ranks_of_a_step_are_even_in_tokens():
    lengths = np.random.default_rng(1).lognormal(5, 1, 5000).astype(np.int64) + 1
    plan = BucketPlan(lengths, 64, seed=3)
    for step in range(plan.steps()):
        tokens = [int(lengths[plan.shard(step, rank, 4).ids].sum()) for rank in range(4)]
        width = plan.batch(step).width
        assert max(tokens) - min(tokens) <= width - int(lengths[plan.batch(step).ids].min())


@given(plan=plans())
def test_a_pickled_plan_is_the_same_and_plans_are_values(plan):
    again = pickle.loads(pickle.dumps(plan))

    assert again == plan
    assert hash(again) == hash(plan)
    assert again.digest(0, 6) == plan.digest(0, 6)


@settings(max_examples=settings.default.max_examples // 2)
@given(lengths=st.lists(st.integers(1, 500), min_size=60, max_size=300), seed=st.integers(0, 100))
def test_what_comes_together_and_in_what_order_changes_every_epoch(lengths, seed):
    plan = BucketPlan(np.array(lengths), 4, seed=seed, num_buckets=4)
    orders = [epoch_ids(plan, epoch) for epoch in range(3)]
    together = [
        {frozenset(real_ids(plan.batch(s))) for s in range(plan.first_step(e), plan.first_step(e + 1))}
        for e in range(3)
    ]
    assert orders[0] != orders[1] != orders[2]
    assert len(together[0] & together[1]) < len(together[0]) / 2


@given(
    lengths=st.lists(st.integers(1, 200), min_size=8, max_size=200),
    batch_size=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_the_longest_comes_first_where_that_is_asked_for(lengths, batch_size, seed):
    plan = BucketPlan(np.array(lengths), batch_size, seed=seed, longest_first=True)
    assert plan.batch(0).width == max(lengths)
    other = BucketPlan(np.array(lengths), batch_size, seed=seed)
    assert sorted(epoch_ids(plan, 1)) == sorted(epoch_ids(other, 1)) or plan.tail == "drop"


def test_what_an_epoch_drops_is_never_what_the_one_before_did():
    for n, size in ((1003, 16), (31, 16), (20, 16), (17, 8), (50, 49)):
        lengths = np.random.default_rng(n).integers(1, 501, n)
        plan = BucketPlan(lengths, size, num_buckets=10)
        dropped = [set(range(n)) - set(epoch_ids(plan, epoch)) for epoch in range(6)]
        assert [len(ids) for ids in dropped] == [n % size] * 6
        assert set.intersection(*dropped) == set()


def private_kib():
    """Memory that this process shares with no other, KiB."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's smaps_rollup")
def test_forked_processes_share_the_lengths_and_the_index():
    lengths = np.arange(4_000_000, dtype=np.int64) % 997 + 1  # 32 MB, and 16 MB of index
    plan = BucketPlan(lengths, 512, seed=1)
    plan.batch(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        before = private_kib()
        for step in range(0, plan.steps(), plan.steps() // 50):
            plan.batch(step)
            plan.when(step)
        os.write(write, str(private_kib() - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) < 8 * 1024
