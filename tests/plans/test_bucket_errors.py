"""What BucketPlan refuses, and what it does with what is too long."""

import pickle

import numpy as np
import pytest

from detdata import UnknownFormat
from detdata.plans.bucket_plan import BucketPlan

LENGTHS = [3, 90, 5, 80, 4, 6, 7, 8]


@pytest.mark.parametrize(
    "lengths",
    [
        [1.0, 2.0],
        [True, False],
        [1, True],
        ["1", "2"],
        [[1, 2], [3, 4]],
        5,
        None,
        np.array([1.5, 2.5]),
        np.array([True, False]),
        np.array([1, 2], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.ones((2, 2), dtype=np.int64),
    ],
)
def test_lengths_that_are_no_integers_in_one_dimension(lengths):
    with pytest.raises(TypeError, match="lengths must be integers in one dimension"):
        BucketPlan(lengths, 1)


@pytest.mark.parametrize("empty", [np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint8)])
def test_no_lengths(empty):
    with pytest.raises(ValueError, match="lengths is empty"):
        BucketPlan(empty, 1)


@pytest.mark.parametrize(
    ("lengths", "named"),
    [
        ([4, -1, 2], r"lengths\[1\] is -1"),
        (np.array([4, 2, -(2**63)]), rf"lengths\[2\] is {-(2**63)}"),
        ([4, 2**40 + 1], rf"lengths\[1\] is {2**40 + 1}"),
        (np.array([4, 2**64 - 1], dtype=np.uint64), rf"lengths\[1\] is {2**64 - 1}"),
    ],
)
def test_a_length_out_of_range_is_named(lengths, named):
    with pytest.raises(ValueError, match=named + r"; .* 0 … 2\*\*40"):
        BucketPlan(lengths, 1)


@pytest.mark.parametrize("how", [{}, {"batch_size": 2, "max_tokens": 500}])
def test_batch_size_and_max_tokens_are_one_or_the_other(how):
    with pytest.raises(TypeError, match="batch_size or max_tokens"):
        BucketPlan(LENGTHS, **how)


@pytest.mark.parametrize("name", ["batch_size", "max_tokens", "divisor", "num_buckets", "max_length", "seed"])
@pytest.mark.parametrize("value", [True, 2.0, "2", [2]])
def test_what_must_be_an_integer(name, value):
    how = {"batch_size": 2} if name != "max_tokens" else {}
    with pytest.raises(TypeError, match=name):
        BucketPlan(LENGTHS, **{**how, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -4),
        ("batch_size", 2**31),
        ("divisor", 0),
        ("num_buckets", 0),
        ("num_buckets", 2**15 + 1),
        ("max_length", 0),
        ("seed", -1),
        ("seed", 2**63),
        ("tail", "carry"),
        ("tail", None),
        ("oversized", "cut"),
        ("oversized", True),
    ],
)
def test_what_is_out_of_range(name, value):
    with pytest.raises(ValueError, match=name):
        BucketPlan(LENGTHS, **{"batch_size": 2, name: value})


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_longest_first_is_true_or_false(value):
    with pytest.raises(TypeError, match="longest_first must be True or False"):
        BucketPlan(LENGTHS, 2, longest_first=value)


@pytest.mark.parametrize(
    ("boundaries", "error", "named"),
    [
        ([10, 5], ValueError, "boundaries must ascend"),
        ([5, 5], ValueError, "boundaries must ascend"),
        ([-1, 5], ValueError, "boundaries must ascend"),
        ([5, 2**40 + 1], ValueError, "boundaries must ascend"),
        (range(1, 2**15 + 1), ValueError, "buckets; at most"),
        ([], TypeError, "boundaries must be integers"),
        ([5.0], TypeError, "boundaries must be integers"),
        ([True], TypeError, "boundaries must be integers"),
        ([[5], [10]], TypeError, "boundaries must be integers"),
        (5, TypeError, "boundaries must be integers"),
        ("5", TypeError, "boundaries must be integers"),
    ],
)
def test_boundaries_that_are_none(boundaries, error, named):
    with pytest.raises(error, match=named):
        BucketPlan(LENGTHS, 2, boundaries=boundaries)


def test_boundaries_and_a_number_of_buckets():
    with pytest.raises(TypeError, match="boundaries and num_buckets"):
        BucketPlan(LENGTHS, 2, boundaries=[5], num_buckets=2)


def test_a_divisor_that_does_not_divide_is_named():
    with pytest.raises(ValueError, match="batch_size 6 is not a multiple of divisor, 4"):
        BucketPlan(LENGTHS, 6, divisor=4)
    with pytest.raises(ValueError, match="batch_size 6 is not a multiple of divisor, 4"):
        BucketPlan(LENGTHS, 4, divisor=4).resized(1, 6)
    with pytest.raises(ValueError, match=r"batch_size 4 .*world_size 3"):
        BucketPlan(LENGTHS, 4, divisor=4).shard(0, 0, 3)


def test_no_batch_at_all():
    with pytest.raises(ValueError, match=r"batch_size is 9.*8 samples.*tail='keep' or 'pad'"):
        BucketPlan(LENGTHS, 9)
    assert BucketPlan(LENGTHS, 9, tail="keep").steps() == 1
    with pytest.raises(ValueError, match="batch_size is 9"):
        BucketPlan(LENGTHS, 4).resized(1, 9)


def test_a_resize_by_what_the_plan_does_not_go_by():
    with pytest.raises(TypeError, match="goes by batch_size"):
        BucketPlan(LENGTHS, 4).resized(1, max_tokens=500)
    with pytest.raises(TypeError, match="goes by max_tokens"):
        BucketPlan(LENGTHS, max_tokens=500).resized(1, 4)
    with pytest.raises(ValueError, match="last must be at least first, 3; got 2"):
        BucketPlan(LENGTHS, 4).skipping(3, 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda plan: plan.batch(-1), ValueError),
        (lambda plan: plan.batch(1.0), TypeError),
        (lambda plan: plan.batch(True), TypeError),
        (lambda plan: plan.when(8), IndexError),
        (lambda plan: plan.when(-1), ValueError),
        (lambda plan: plan.when("0"), TypeError),
        (lambda plan: plan.steps(-1), ValueError),
        (lambda plan: plan.consumed(0.5), TypeError),
        (lambda plan: plan.step(-1), ValueError),
        (lambda plan: plan.digest(3, 1), ValueError),
    ],
)
def test_wrong_steps_epochs_and_ids(call, error):
    with pytest.raises(error):
        call(BucketPlan(LENGTHS, 4))


# --- what is too long ---


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"batch_size": 2, "max_length": 50}, r"lengths\[1\] is 90, but max_length is 50"),
        ({"batch_size": 2, "max_length": 85}, r"lengths\[1\] is 90, but max_length is 85"),
        ({"max_tokens": 89}, r"lengths\[1\] is 90, but max_tokens is 89"),
        ({"max_tokens": 179, "divisor": 2}, r"lengths\[1\] is 90, but max_tokens is 179.* 2 samples .*more than 89"),
        ({"max_tokens": 1000, "max_length": 10}, r"lengths\[1\] is 90, but max_length is 10"),
    ],
)
def test_an_oversized_sample_is_named_with_its_length(how, named):
    with pytest.raises(ValueError, match=named + ".*oversized='clip'.*oversized='alone'"):
        BucketPlan(LENGTHS, **how)


def test_a_sample_at_the_limit_is_not_oversized():
    assert BucketPlan(LENGTHS, max_tokens=90, tail="keep").steps() > 0
    assert BucketPlan(LENGTHS, 2, max_length=90).steps() == 4


@pytest.mark.parametrize("how", [{"max_tokens": 40, "max_length": 20}, {"max_tokens": 20}])
def test_clipped_samples_count_as_long_as_the_limit(how):
    plan = BucketPlan(LENGTHS, **how, tail="keep", oversized="clip")
    seen = []
    for step in range(plan.steps()):
        batch = plan.batch(step)
        seen += batch.ids.tolist()
        assert batch.width == max(min(20, LENGTHS[id]) for id in batch.ids)
        assert batch.width * len(batch) <= plan.max_tokens
    assert sorted(seen) == list(range(8))
    assert plan.boundaries[-1] == 20
    assert plan.lengths.tolist() == LENGTHS  # those given, not those clipped


@pytest.mark.parametrize("divisor", [1, 2])
@pytest.mark.parametrize("tail", ["keep", "pad"])
def test_oversized_samples_are_alone_in_batches_of_the_divisor(divisor, tail):
    plan = BucketPlan(LENGTHS * 4, max_tokens=40, divisor=divisor, tail=tail, oversized="alone")
    seen = []
    for step in range(plan.steps()):
        batch = plan.batch(step)
        ids = batch.ids[batch.real].tolist()
        seen += ids
        long = [id for id in ids if (LENGTHS * 4)[id] > 40 // divisor]
        if long:
            assert len(batch) == divisor
        else:
            assert batch.width * len(batch) <= 40
    assert sorted(seen) == list(range(32))


def test_a_larger_budget_may_take_what_was_alone():
    plan = BucketPlan(LENGTHS * 4, max_tokens=40, tail="keep", oversized="alone").resized(3, max_tokens=400)
    seen = [id for step in range(plan.steps()) for id in plan.batch(step).ids.tolist()]
    assert sorted(seen) == list(range(32))


def test_a_smaller_budget_that_some_sample_exceeds_is_refused():
    plan = BucketPlan(LENGTHS * 4, max_tokens=400)
    with pytest.raises(ValueError, match=r"max_tokens is 80.*as long as 90"):
        plan.resized(1, max_tokens=80)


# --- lengths of other kinds ---


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "<u4", ">u8", "<i8"])
def test_any_integer_type_gives_the_same_plan(dtype):
    expected = BucketPlan(LENGTHS, 2, seed=3)
    plan = BucketPlan(np.array(LENGTHS, dtype=dtype), 2, seed=3)
    assert plan == expected
    assert plan.digest(0, 12) == expected.digest(0, 12)


def test_lists_tuples_ranges_and_strided_views_give_the_same_plan():
    lengths = list(range(1, 33))
    plans = [BucketPlan(given, 4) for given in (lengths, tuple(lengths), range(1, 33), np.arange(1, 65)[:32])]
    plans.append(BucketPlan(np.repeat(np.arange(1, 33), 2)[::2], 4))
    assert all(plan == plans[0] and plan.digest(0, 20) == plans[0].digest(0, 20) for plan in plans)


def test_memory_mapped_lengths_give_the_same_plan_and_are_not_copied(tmp_path):
    lengths = np.random.default_rng(2).integers(1, 3000, 5000).astype(np.uint16)
    lengths.tofile(tmp_path / "lengths.bin")
    np.save(tmp_path / "lengths.npy", lengths)
    expected = BucketPlan(lengths, max_tokens=50_000, seed=9)
    for mapped in (
        np.memmap(tmp_path / "lengths.bin", dtype=np.uint16, mode="r"),
        np.load(tmp_path / "lengths.npy", mmap_mode="r"),
    ):
        plan = BucketPlan(mapped, max_tokens=50_000, seed=9)
        assert plan == expected
        assert plan.digest(0, 300) == expected.digest(0, 300)
        assert np.shares_memory(plan.lengths, mapped)
        assert pickle.loads(pickle.dumps(plan)).digest(0, 300) == expected.digest(0, 300)


@pytest.mark.parametrize("tail", ["drop", "keep", "pad"])
def test_batches_of_more_than_2_to_the_31_tokens(tail):
    lengths = np.array([2**33, 2**33 - 1, 2**31, 2**31 + 1, 2**40, 2**40 - 5, 7, 0] * 3)
    plan = BucketPlan(lengths, 4, num_buckets=3, tail=tail)
    seen = [id for step in range(plan.steps()) for id in plan.batch(step).ids.tolist()]
    assert sorted(seen) == list(range(24))
    assert max(plan.batch(step).width for step in range(plan.steps())) == 2**40
    by_tokens = BucketPlan(lengths[lengths <= 2**33], max_tokens=2**35, tail=tail)
    for step in range(by_tokens.steps()):
        assert by_tokens.batch(step).width * len(by_tokens.batch(step)) <= 2**35


def test_lengths_of_zero_count():
    for how in ({"batch_size": 3}, {"max_tokens": 5}):
        plan = BucketPlan([0] * 7, **how, tail="keep")
        seen = [id for step in range(plan.steps()) for id in plan.batch(step).ids.tolist()]
        assert sorted(seen) == list(range(7))
        assert plan.batch(0).width == 0


# --- specs ---


def test_a_spec_is_about_its_own_lengths():
    spec = BucketPlan(LENGTHS, 2).spec()
    for other in ([*LENGTHS[:-1], 9], LENGTHS[:-1], [*LENGTHS, 1], LENGTHS[::-1]):
        with pytest.raises(ValueError, match=r"lengths are not those of the spec.*xxh3-128"):
            BucketPlan.from_spec(spec, other)


def change(spec, name):
    if name == "unknown key":
        return {**spec, "shuffle": True}
    if name == "newer format":
        return {**spec, "format": "detdata.bucket_plan/2"}
    if name == "missing key":
        return {key: value for key, value in spec.items() if key != "divisor"}
    if name == "missing format":
        return {key: value for key, value in spec.items() if key != "format"}
    return list(spec.items())


@pytest.mark.parametrize("name", ["unknown key", "newer format", "missing key", "missing format", "no dict"])
def test_a_spec_of_another_form_is_refused(name):
    spec = BucketPlan(LENGTHS, 2).spec()
    with pytest.raises(UnknownFormat, match=r"detdata\.bucket_plan/1"):
        BucketPlan.from_spec(change(spec, name), LENGTHS)


@pytest.mark.parametrize(
    "changes",
    [[["grow", 1, 2]], [["skip", 1]], ["skip"], [["skip", 1, "2"]], [["resize", -1, 2]], [["resize", 1.0, 2]], [None]],
)
def test_changes_of_another_form_are_refused(changes):
    spec = {**BucketPlan(LENGTHS, 2).spec(), "changes": changes}
    with pytest.raises((ValueError, TypeError), match="changes"):
        BucketPlan.from_spec(spec, LENGTHS)


def test_a_resize_in_a_spec_keeps_to_the_divisor():
    spec = {**BucketPlan(LENGTHS, 4, divisor=4).spec(), "changes": [["resize", 1, 3]]}
    with pytest.raises(ValueError, match="divisor"):
        BucketPlan.from_spec(spec, LENGTHS)


def test_a_skip_in_a_spec_ends_behind_its_beginning():
    spec = {**BucketPlan(LENGTHS, 4).spec(), "changes": [["skip", 5, 2]]}
    with pytest.raises(ValueError, match="last"):
        BucketPlan.from_spec(spec, LENGTHS)
