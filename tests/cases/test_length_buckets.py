"""Failures that others have had in training, by the ids under which they were collected: length buckets.

Each test does what its case says, and its name begins with the case's id.
"""

import multiprocessing
import os
import pickle
import random
import sys
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from detdata.plans.bucket_plan import BucketPlan
from tests.torch_side import Counting


def counted_calls(action):
    """(what `action` returns, calls of Python and C functions in it, bytes that it held at most)."""
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    tracemalloc.start()
    sys.setprofile(note)
    try:
        result = action()
    finally:
        sys.setprofile(None)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return result, calls, held


@pytest.mark.parametrize("size", [{"batch_size": 64}, {"max_tokens": 30_000}], ids=["batch_size", "max_tokens"])
def test_o_lb1_a_resume_at_90_percent_does_no_more_than_one_at_the_start(size):
    n = 1_000_000
    lengths = np.random.default_rng(1).lognormal(5, 1, n).astype(np.int64) + 1
    dataset = Counting(n)
    plan = BucketPlan(lengths, **size, num_buckets=20, oversized="clip")
    late = plan.consumed(plan.steps() * 9 // 10)
    assert late > 0.85 * n
    first, warm = BucketPlan(lengths, **size, num_buckets=20, oversized="clip"), pickle.loads(pickle.dumps(plan))

    def resumed(plan, consumed):
        """Look only at a run's state: how far it was. Then make the batches that workers begin with."""
        step = plan.step(consumed)
        return [plan.batch(step + ahead).ids.tolist() for ahead in range(4)]

    begin, begin_calls, begin_held = counted_calls(lambda: resumed(first, 0))
    rest, rest_calls, rest_held = counted_calls(lambda: resumed(warm, late))
    assert begin != rest
    assert rest_calls <= 2 * begin_calls
    # Neither goes through the samples: not a byte for each, not a call for every tenth.
    assert max(begin_held, rest_held) < n
    assert max(begin_calls, rest_calls) < n // 100
    assert dataset.reads.value == 0
    assert rest == [plan.batch(plan.step(late) + ahead).ids.tolist() for ahead in range(4)]


def ties(n=1003):
    return [id * 7919 % 12 * 25 + 1 for id in range(n)]


TAILS = ("keep", "pad", "drop")


def rank_batches(rank, options):
    """What one rank of four makes of three epochs with each tail, in a process with global seeds of its own."""
    import torch

    random.seed(rank)
    np.random.seed(rank)
    torch.manual_seed(rank)
    found = {}
    for tail in TAILS:
        plan = BucketPlan(ties(), num_buckets=8, seed=5, divisor=4, tail=tail, **options)
        for epoch in range(3):
            steps = range(plan.first_step(epoch), plan.first_step(epoch + 1))
            parts = [plan.shard(step, rank, 4) for step in steps]
            found[tail, epoch] = [(part.ids.tolist(), part.real.tolist(), part.width) for part in parts]
    return os.getpid(), found


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 5000}], ids=["batch_size", "max_tokens"])
def test_o_lb2_four_processes_with_seeds_of_their_own_build_the_same_batches(options):
    with multiprocessing.get_context("spawn").Pool(4, maxtasksperchild=1) as pool:
        answers = pool.starmap(rank_batches, [(rank, options) for rank in range(4)], chunksize=1)
    assert len({process for process, _ in answers}) == 4
    for tail in TAILS:
        plan = BucketPlan(ties(), num_buckets=8, seed=5, divisor=4, tail=tail, **options)
        for epoch in range(3):
            ranks = [found[tail, epoch] for _, found in answers]
            assert [plan.steps(epoch)] * 4 == [len(batches) for batches in ranks]
            ids = Counter()
            for parts in zip(*ranks, strict=True):
                assert len({len(part) for part, _, _ in parts}) == 1
                assert len({width for _, _, width in parts}) == 1
                ids.update(id for part, real, _ in parts for id, is_real in zip(part, real, strict=True) if is_real)
            assert set(ids.values()) == {1}
            assert len(ids) == 1003 - plan.dropped(epoch)
            assert tail == "drop" or plan.dropped(epoch) == 0
        assert answers[0][1][tail, 0] != answers[0][1][tail, 1] != answers[0][1][tail, 2]


@pytest.mark.parametrize("size", [{"batch_size": 16}, {"max_tokens": 2000}], ids=["batch_size", "max_tokens"])
@pytest.mark.parametrize("tail", ["keep", "pad", "drop"])
def test_o_lb3_no_sample_goes_missing_unsaid(size, tail):
    n, world_size = 1003, 2
    lengths = np.random.default_rng(3).integers(1, 501, n)
    plan = BucketPlan(lengths, **size, num_buckets=10, divisor=world_size, tail=tail)
    always = set(range(n))
    for epoch in range(5):
        ids = Counter()
        for step in range(plan.first_step(epoch), plan.first_step(epoch + 1)):
            parts = [plan.shard(step, rank, world_size) for rank in range(world_size)]
            assert len(parts[0]) == len(parts[1])
            if "batch_size" in size and tail != "keep":
                assert len(parts[0]) == 8
            for part in parts:
                ids.update(part.ids[part.real].tolist())
        dropped = set(range(n)) - set(ids)
        assert set(ids.values()) == {1}
        assert plan.dropped(epoch) == len(dropped)
        # The tail is one of the whole epoch, not of each bucket: less than one batch.
        assert len(dropped) < max(plan.batch_sizes(plan.first_step(epoch), plan.first_step(epoch + 1)))
        if tail == "drop":
            assert "max_tokens" in size or len(dropped) <= 15
        else:
            assert dropped == set()
        always &= dropped
    assert always == set()
