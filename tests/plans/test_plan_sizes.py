"""Plans beyond what 32 bits and floats can count, smaller than a batch, and with arguments that are none."""

import pickle

import numpy as np
import pytest

from detdata import Batch, BlockShuffle, Concat, DetdataError, Plan, Sequential, Shuffle, Subset, from_spec

TAILS = ("drop", "pad", "keep", "carry")


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 1, 2**32 + 1, 2**40])
def test_o_sx2_ids_past_32_bits_stay_in_range_and_do_not_repeat(n):
    batch_size = 64
    plan = Plan(Shuffle(np.int64(n), seed=3), np.int32(batch_size))
    steps = np.unique(np.random.default_rng(n).integers(0, plan.steps(), 100_000))

    ids = plan.order.take(steps * batch_size + steps % batch_size)  # one sample of each step

    assert ids.dtype == np.int64
    assert ids.min() >= 0
    assert ids.max() < n
    assert np.unique(ids).size == steps.size
    for step in steps[:: steps.size // 50].tolist():
        batch = plan.batch(step)
        assert batch.ids[step % batch_size] == ids[np.searchsorted(steps, step)]
        assert batch.start == step * batch_size
        assert plan.when(int(batch.ids[-1])) == step
        assert all(type(id) is int for id in batch.ids.tolist())


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("n", [2**31 + 1, 2**40, 2**53 + 1, 2**62])
def test_o_sx2_steps_and_counts_past_2_to_53_are_exact(n, tail):
    plan = Plan(Shuffle(n, seed=1), 1, tail)

    for step in (2**31, 2**53, 2**53 + 1, 2**62 + 1):
        assert plan.consumed(step) == step == plan.step(step)
        assert plan.batch(step).start == step % n
        assert plan.epoch(step) == step // n
        id = int(plan.batch(step).ids[0])
        assert plan.when(id, step // n) == step
    assert plan.batch(2**53).ids.tolist() != plan.batch(2**53 + 1).ids.tolist()
    assert plan.consumed(2**53 + 1) - plan.consumed(2**53) == 1


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.uint64])
def test_o_sx2_numpy_integers_are_widened(integer):
    plain = Plan(Shuffle(2**31 - 1, 5), 2**16)
    plan = Plan(Shuffle(integer(2**31 - 1), integer(5)), integer(2**16))
    step = 2**31 - 1

    assert plan == plain
    assert plan.consumed(integer(step)) == plain.consumed(step) > 2**46
    assert plan.batch(integer(step)).ids.tolist() == plain.batch(step).ids.tolist()
    assert plan.step(integer(2**16)) == 1
    assert plan.resized(integer(7), integer(9)) == plain.resized(7, 9)
    assert type(plan.resized(integer(7), integer(9)).spec()["resizes"][0][0]) is int
    assert plan.skipping(integer(1), integer(3)) == plain.skipping(1, 3)
    part = plan.shard(integer(step), integer(3), integer(8), integer(1), integer(2))
    assert part.ids.tolist() == plain.shard(step, 3, 8, 1, 2).ids.tolist()


def test_changes_of_a_plan_are_exact_past_2_to_53():
    plan = Plan(Shuffle(2**60, 1), 1000, "carry").resized(2**55, 7).skipping(2**56, 2**56 + 5)
    before, after = 2**55 * 1000, 2**55 * 1000 + (2**56 - 2**55) * 7

    assert plan.consumed(2**55) == before
    assert plan.consumed(2**56) == after
    batch = plan.batch(2**56)
    assert batch.epoch * 2**60 + batch.start == after + 35
    assert plan.step(plan.consumed(2**56 + 1)) == 2**56 + 1


@pytest.mark.parametrize("tail", TAILS)
def test_huge_plans_are_small_and_rebuilt_whole(tail):
    plan = Plan(Shuffle(10**12, 1), 4096, tail).resized(10**9, 8192).skipping(10**10, 10**10 + 100)

    assert len(pickle.dumps(plan)) < 10_000
    assert pickle.loads(pickle.dumps(plan)) == plan == from_spec(plan.spec())
    assert plan.digest(10**11, 10**11 + 2) == pickle.loads(pickle.dumps(plan)).digest(10**11, 10**11 + 2)


def test_o_tc3_another_batch_size_goes_on_inside_the_epoch():
    for tail, left, last in (("keep", 7, 8), ("drop", 6, 12)):
        plan = Plan(Shuffle(120, 4), 8, tail).resized(5, 12)
        order = plan.order.take(np.arange(120)).tolist()

        assert plan.consumed(5) == 40
        assert order[40:52] == plan.batch(5).ids.tolist()
        assert plan.first_step(1) - 5 == left
        assert len(plan.batch(plan.first_step(1) - 1)) == last
        seen = [id for step in range(plan.first_step(1)) for id in plan.batch(step).ids.tolist()]
        assert seen == order[: len(seen)]


def test_o_sx3_an_empty_dataset_is_a_value_error_that_says_what_was_empty():
    for make, what in [
        (lambda: Sequential(0), "dataset is empty"),
        (lambda: Shuffle(0), "dataset is empty"),
        (lambda: BlockShuffle([]), "corpus is empty"),
        (lambda: BlockShuffle([0, 0]), "corpus is empty"),
        (lambda: Subset(Shuffle(3), []), "ids is empty"),
        (lambda: Concat({}), "sources is empty"),
        (lambda: from_spec({"format": "detdata.shuffle/1", "n": 0, "seed": 0}), "dataset is empty"),
    ]:
        with pytest.raises(ValueError, match=what) as caught:
            make()
        assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize("world_size", [1, 2])
def test_o_sx4_fewer_samples_than_a_batch(world_size):
    def rows(plan, step):
        parts = [plan.shard(step, rank, world_size) for rank in range(world_size)]
        return [pair for part in parts for pair in zip(part.ids.tolist(), part.real.tolist(), strict=True)]

    with pytest.raises(ValueError, match=r"batch_size is 8.*3 samples"):
        Plan(Shuffle(3), 8, "drop")
    keep, pad = Plan(Shuffle(3), 8, "keep"), Plan(Shuffle(3), 8, "pad")
    for epoch in range(3):
        assert keep.steps(epoch) == pad.steps(epoch) == 1
        assert sorted(rows(keep, epoch)) == [(0, True), (1, True), (2, True)]
        padded = rows(pad, epoch)
        assert len(padded) == 8
        assert sum(not real for _, real in padded) == 5
        assert {id for id, _ in padded} == {0, 1, 2}
        assert sorted(id for id, real in padded if real) == [0, 1, 2]
    assert (keep.consumed(3), pad.consumed(3)) == (9, 9)


@pytest.mark.parametrize(
    ("tail", "steps", "handed", "marked"), [("pad", 3, 12, 2), ("drop", 2, 8, 0), ("keep", 3, 10, 0)]
)
def test_o_ds2_padding_is_marked_and_counted_out(tail, steps, handed, marked):
    plan = Plan(Shuffle(10, 1), 4, tail)
    parts = [plan.shard(step, rank, world_size=4) for step in range(plan.steps()) for rank in range(4)]
    ids = np.concatenate([part.ids for part in parts])
    real = np.concatenate([part.real for part in parts])

    assert plan.steps() == steps
    assert ids.size == handed
    assert (~real).sum() == marked
    assert np.unique(ids[real]).size == ids[real].size == min(handed, 10)
    if tail != "drop":
        assert ids[real].mean() == 4.5
        assert sorted(ids[real].tolist()) == list(range(10))


PLAN = Plan(Shuffle(100, 1), 12)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: Plan(100, 10), TypeError, "order"),
        (lambda: Plan([1, 2], 10), TypeError, "order"),
        (lambda: Plan(Shuffle(10), 0), ValueError, "batch_size"),
        (lambda: Plan(Shuffle(10), -4), ValueError, "batch_size"),
        (lambda: Plan(Shuffle(10), 2.0), TypeError, "batch_size"),
        (lambda: Plan(Shuffle(10), True), TypeError, "batch_size"),
        (lambda: Plan(Shuffle(10), "2"), TypeError, "batch_size"),
        (lambda: Plan(Shuffle(10), 2**31), ValueError, "batch_size"),
        (lambda: Plan(Shuffle(10), 2, "wrap"), ValueError, "tail.*drop, pad, keep, carry.*wrap"),
        (lambda: Plan(Shuffle(10), 2, None), ValueError, "tail"),
        (lambda: Plan(Shuffle(10), 2, True), ValueError, "tail"),
        (lambda: PLAN.batch(-1), ValueError, "step"),
        (lambda: PLAN.batch(1.0), TypeError, "step"),
        (lambda: PLAN.batch(True), TypeError, "step"),
        (lambda: PLAN.batch("1"), TypeError, "step"),
        (lambda: PLAN.batch(2**63), ValueError, "step"),
        (lambda: PLAN.batch([1, 2]), TypeError, "step"),
        (lambda: PLAN.steps(-1), ValueError, "epoch"),
        (lambda: PLAN.steps(2**63), ValueError, "epoch"),
        (lambda: PLAN.consumed(-1), ValueError, "step"),
        (lambda: PLAN.step(-1), ValueError, "consumed"),
        (lambda: PLAN.step(12.0), TypeError, "consumed"),
        (lambda: PLAN.step(13), ValueError, "12.*24"),
        (lambda: PLAN.when(100), IndexError, "100"),
        (lambda: PLAN.when(-1), ValueError, "id"),
        (lambda: PLAN.when(1, -1), ValueError, "epoch"),
        (lambda: PLAN.when("1"), TypeError, "id"),
        (lambda: PLAN.shard(0, 0, 5), ValueError, "12.*5.*1"),
        (lambda: PLAN.shard(0, 0, 2, None, 5), ValueError, "12.*2.*5"),
        (lambda: PLAN.shard(0, 2, 2), ValueError, "rank.*world_size is 2"),
        (lambda: PLAN.shard(0, -1, 2), ValueError, "rank"),
        (lambda: PLAN.shard(0, 0, 0), ValueError, "world_size"),
        (lambda: PLAN.shard(0, 0, 2, 3, 3), ValueError, "micro_step"),
        (lambda: PLAN.shard(0, 0, 1, 0, 0), ValueError, "micro_steps"),
        (lambda: PLAN.shard(0, 0.0, 2), TypeError, "rank"),
        (lambda: PLAN.resized(-1, 4), ValueError, "step"),
        (lambda: PLAN.resized(0, 0), ValueError, "batch_size"),
        (lambda: PLAN.resized(3, 101), ValueError, "batch_size is 101.*100 samples"),
        (lambda: PLAN.skipping(3, 2), ValueError, "last"),
        (lambda: PLAN.skipping(-1, 2), ValueError, "first"),
        (lambda: PLAN.digest(3, 2), ValueError, "last"),
        (lambda: PLAN.digest("0", 2), TypeError, "first"),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, kind, words):
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, DetdataError)


def test_a_plan_and_a_batch_cannot_be_changed():
    for name in ("order", "batch_size", "tail", "skips"):
        with pytest.raises(AttributeError):
            setattr(PLAN, name, 1)
    batch = PLAN.batch(0)
    assert isinstance(batch, Batch)
    assert len(batch) == 12
    with pytest.raises(AttributeError):
        batch.step = 3


def test_what_is_done_to_a_batch_does_not_reach_the_plan():
    first = PLAN.batch(0)
    kept = first.ids.copy()
    first.ids[:] = -1

    assert np.array_equal(kept, PLAN.batch(0).ids)


def test_plans_are_equal_and_hash_alike_exactly_if_their_specs_are_equal():
    same = Plan(Shuffle(100, 1), 12)

    assert same == PLAN
    assert hash(same) == hash(PLAN)
    others = [Plan(Shuffle(100, 2), 12), Plan(Shuffle(100, 1), 13), Plan(Shuffle(100, 1), 12, "keep"),
              PLAN.resized(1, 3), PLAN.skipping(0, 1)]  # fmt: skip
    assert all(other != PLAN and other.spec() != PLAN.spec() for other in others)
