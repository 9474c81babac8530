"""What a hostile user found in plans, streams and the loader."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from detdata import Loader, Plan, Sequential, Shuffle, Topology
from detdata.streams import find_streams


class Aug:
    def __init__(self):
        self.rng = np.random.default_rng(0)


class ManyPaths:
    """The shape of an image folder: a list of (path, label), and a transform with a generator one level deeper."""

    def __init__(self, n):
        self.samples = [(f"{i}.png", i) for i in range(n)]
        self.aug = Aug()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return i, int(self.aug.rng.integers(2**31))


def test_a_generator_beside_a_hundred_thousand_paths_is_found():
    assert len(find_streams(ManyPaths(100_000))) == 1


def test_draws_of_a_held_generator_beside_many_paths_do_not_depend_on_workers():
    dataset, plan = ManyPaths(4000), Plan(Shuffle(4000, 1), 50)
    few = [batch[1].tolist() for batch in Loader(dataset, plan)]
    many = [batch[1].tolist() for batch in Loader(ManyPaths(4000), plan, num_workers=2, multiprocessing_context="fork")]
    assert few == many
    assert len({draw for batch in few for draw in batch}) == 4000


def test_collating_is_seeded_and_moves_no_stream_of_training():
    def collate(samples):
        return samples, torch.rand(3), np.random.rand(2)

    plan = Plan(Shuffle(20, 1), 4)
    for randomness in ("sample", "batch"):
        state = torch.get_rng_state()
        here = list(Loader(list(range(20)), plan, collate_fn=collate, randomness=randomness))
        assert torch.equal(state, torch.get_rng_state())
        there = list(
            Loader(
                list(range(20)),
                plan,
                collate_fn=collate,
                randomness=randomness,
                num_workers=2,
                multiprocessing_context="fork",
            )
        )
        assert repr(here) == repr(there)
        assert len({float(batch[1][0]) for batch in here}) == 5


def test_a_later_batch_size_that_does_not_divide_is_refused_before_the_loop_begins():
    loader = Loader(list(range(20)), Plan(Shuffle(20), 4).resized(3, 5), Topology(0, 2))
    with pytest.raises(ValueError, match="batch_size 5"):
        next(loader.until(10))
    assert len(list(loader.until(3))) == 3


def test_the_loader_says_which_rows_pad():
    loader = Loader(list(range(10)), Plan(Sequential(10), 4, tail="pad"), Topology(1, 2))
    assert loader.batch is None
    seen = [(batch.tolist(), loader.batch.ids.tolist(), loader.batch.real.tolist()) for batch in loader]
    assert seen[-1] == ([9, 1], [9, 1], [True, False])


def test_a_collate_fn_that_is_none_is_refused_at_once():
    with pytest.raises(TypeError, match="collate_fn"):
        Loader([1, 2], Plan(Sequential(2), 1), collate_fn=0)


def test_a_step_beyond_the_last_epoch_says_so():
    with pytest.raises(ValueError, match="epochs go up to"):
        Plan(Sequential(1), 1000, tail="carry").batch(2**62)


def test_changes_given_as_lists_or_numpy_integers_are_those_given_as_tuples():
    rows = [[np.int64(3), np.int32(2)]]
    plan = Plan(Sequential(10), 4, resizes=rows)
    rows.append(5)
    assert plan == Plan(Sequential(10), 4).resized(3, 2)
    assert hash(plan) == hash(Plan(Sequential(10), 4).resized(3, 2))
    json.dumps(plan.spec())
    with pytest.raises(TypeError, match="resizes"):
        Plan(Sequential(10), 4, resizes=5)
