"""Failures that others have had in training, by the ids under which they were collected: samplers and the loader.

Each test does what its case says, and its name begins with the case's id.
"""

import itertools
import pickle
import tracemalloc
from statistics import mean

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from detdata import BatchSampler, DistributedSampler, Plan, Progress, Shuffle, Topology, worker_init_fn
from detdata.seeding import worker_seed
from tests.torch_side import (
    FORK,
    Believing,
    Counting,
    Noisy,
    as_list,
    batches,
    in_new_process,
    joined,
    make_loader,
    rest_from_consumed,
    rest_from_sampler,
    rest_from_state,
    start_method,
)

# --- resume position --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [rest_from_consumed, rest_from_sampler])
def test_o_rp1_a_resume_in_any_epoch_gives_the_straight_runs_rest(rest):
    straight = [batch for _ in range(1) for batch in make_loader(10, 2).until(15)]
    assert len(straight) == 15
    for k in range(15):
        assert straight[k:] == in_new_process(rest, 10, 2, 1, 2 * k, 15, {})


def test_o_rp2_a_resumes_offset_holds_for_its_own_epoch_only():
    loader = make_loader(12, 3)
    loader.resume(6)
    sampler = BatchSampler(loader.plan, Topology(), start_step=2)
    for passes in (lambda: list(loader), lambda: list(sampler)):
        epochs = [passes() for _ in range(3)]
        assert [len(epoch) for epoch in epochs] == [2, 4, 4]
        for epoch in epochs[1:]:
            assert list(range(12)) == sorted(id for batch in epoch for id in batch)


@pytest.mark.parametrize("consumed", [0, 900_000])
@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(0, None), (2, 2), (2, 4)])
def test_o_rp3_a_resume_reads_nothing_that_was_trained_on(consumed, num_workers, prefetch_factor):
    dataset = Counting(1_000_000)
    arguments = {"num_workers": num_workers, "prefetch_factor": prefetch_factor} if num_workers else {}
    loader = make_loader(1_000_000, 100, dataset=dataset, **arguments)
    loader.resume(consumed)
    assert loader.plan.batch(consumed // 100).ids.tolist() == next(iter(loader))
    ahead = num_workers * (prefetch_factor or 0)
    assert dataset.reads.value <= 100 * (1 + ahead)


# --- distributed shards -----------------------------------------------------------------------------------------------


def test_o_ds1_every_epoch_has_its_own_order_without_a_call():
    walking = DistributedSampler(range(1000), 1, 0)
    epochs = [list(walking) for _ in range(3)]
    for epoch, ids in enumerate(epochs):
        fresh = DistributedSampler(range(1000), 1, 0)
        fresh.set_epoch(epoch)
        assert list(range(1000)) == sorted(ids)
        assert list(fresh) == ids
    for a, b in itertools.combinations(epochs, 2):
        assert sum(x == y for x, y in zip(a, b, strict=True)) < 20


@pytest.mark.parametrize(
    ("tail", "counts", "marked"), [("pad", [3, 3, 3, 3], 2), ("drop", [2, 2, 2, 2], 0), ("keep", [3, 3, 2, 2], 0)]
)
def test_o_ds2_padding_can_be_told_from_data(tail, counts, marked):
    plan = Plan(Shuffle(10, 1), 4, tail)
    read, real, padding = [], [], 0
    for rank in range(4):
        mine = []
        loader = make_loader(10, 4, plan=plan, topology=Topology(rank, 4))
        step = loader.progress.global_step
        for batch in loader:
            shard = plan.shard(step, rank, 4)  # what the evaluation asks to know which rows count
            assert shard.ids.tolist() == batch
            real += shard.ids[shard.real].tolist()
            padding += int((~shard.real).sum())
            mine += batch
            step += 1
        read.append(len(mine))
    assert (counts, marked) == (read, padding)
    if tail == "drop":
        assert 8 == len(set(real)) == len(real)
    else:
        assert list(range(10)) == sorted(real)
        assert mean(real) == 4.5


@pytest.mark.parametrize("drop_last", [False, True])
def test_o_ds3_fewer_samples_than_ranks_are_shared_out_or_none(drop_last):
    for n, world_size in itertools.product(range(9), range(1, 10)):
        expected = n // world_size if drop_last else -(-n // world_size)
        for rank in range(world_size):
            sampler = DistributedSampler(range(n), world_size, rank, drop_last=drop_last)
            for _ in range(2):
                assert expected == len(sampler) == len(list(sampler))
            sampler.set_epoch(1)
            sampler.load_state_dict(sampler.state_dict())
            sampler.resume(0)
            assert expected == len(list(sampler))
            assert expected * world_size == sampler.total_size


@pytest.mark.parametrize("tail", ["drop", "pad", "keep", "carry"])
def test_o_ds3_tiny_plans_are_shared_out_or_refused_naming_both_sizes(tail):
    for n, world_size in itertools.product(range(1, 9), range(1, 10)):
        if tail == "drop" and n < world_size:
            with pytest.raises(ValueError, match=rf"{world_size}.*{n} samples"):
                Plan(Shuffle(n), world_size, tail)
            continue
        plan = Plan(Shuffle(n), world_size, tail)
        parts = [make_loader(n, 0, plan=plan, topology=Topology(rank, world_size)) for rank in range(world_size)]
        lengths = [len(loader) for loader in parts]
        found = [[id for batch in loader for id in batch] for loader in parts]
        assert lengths == [len(ids) for ids in found]
        assert set(range(n)) >= {id for ids in found for id in ids}
        if tail in {"pad", "keep"}:
            assert set(range(n)) == {id for ids in found for id in ids}


# --- randomness in workers --------------------------------------------------------------------------------------------

FOUR = ("numpy", "python", "torch", "generator")


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_o_wr1_no_two_workers_draw_the_same_numbers(method):
    loader = DataLoader(
        Noisy(64, FOUR),
        batch_size=4,
        num_workers=4,
        worker_init_fn=worker_init_fn(0),
        collate_fn=as_list,
        multiprocessing_context=method,
        generator=torch.Generator().manual_seed(0),
    )
    samples = [sample for batch in loader for sample in batch]
    assert [len({sample[k] for sample in samples}) for k in range(1, 5)] == [64] * 4


def test_o_wr1_nor_do_a_loaders_workers():
    loader = make_loader(64, 4, dataset=Noisy(64, FOUR), num_workers=4)
    samples = [sample for batch in loader for sample in batch]
    assert [len({sample[k] for sample in samples}) for k in range(1, 5)] == [64] * 4


def test_o_wr2_worker_seeds_are_distinct_over_seeds_epochs_ranks_and_workers():
    seeds = []
    for base in range(100):
        base_seeds = torch.Generator().manual_seed(base)  # what a DataLoader draws at every epoch, equal on all ranks
        places = itertools.product(
            [int(torch.empty((), dtype=torch.int64).random_(generator=base_seeds)) for _ in range(3)],
            range(4),
            range(4),
        )
        mine = [worker_seed(base, *place) for place in places]
        assert len(set(mine)) == 48
        seeds += mine
    assert len(set(seeds)) == 4800
    assert max(seeds) > 2**63  # 64 bits are in use
    small = [
        worker_seed(base, *place) for base in range(100) for place in itertools.product(range(3), range(4), range(4))
    ]
    assert len(set(small)) == 4800  # nor do neighbouring numbers collide


@pytest.mark.parametrize("persistent", [False, True])
def test_o_wr3_augmentations_differ_between_epochs_and_repeat_with_the_run(persistent):
    def run():
        loader = make_loader(1000, 50, dataset=Noisy(1000, FOUR), num_workers=2, persistent_workers=persistent)
        return [sorted(sample for batch in loader for sample in batch) for _ in range(3)]

    first = run()
    for a, b in itertools.combinations(first, 2):
        for k in range(1, 5):
            assert sum(x[k] != y[k] for x, y in zip(a, b, strict=True)) >= 990
    assert first == run()


@pytest.mark.parametrize("persistent", [False, True])
def test_o_wr3_with_a_plain_dataloader_too(persistent):
    def run():
        loader = DataLoader(
            Noisy(1000, FOUR),
            batch_size=50,
            num_workers=2,
            persistent_workers=persistent,
            **FORK,
            worker_init_fn=worker_init_fn(7),
            generator=torch.Generator().manual_seed(1),
            collate_fn=as_list,
        )
        return [sorted(sample for batch in loader for sample in batch) for _ in range(3)]

    first = run()
    for a, b in itertools.combinations(first, 2):
        for k in range(1, 5):
            assert sum(x[k] != y[k] for x, y in zip(a, b, strict=True)) >= 990
    assert first == run()


# --- worker processes -------------------------------------------------------------------------------------------------


def test_o_wp1_persistent_workers_know_the_epoch():
    def run(persistent):
        dataset = Believing(12)
        loader = make_loader(12, 3, dataset=dataset, num_workers=2, persistent_workers=persistent)
        return [list(loader) for _ in range(3)]

    run_on, fresh = run(True), run(False)
    for epoch, seen in enumerate(run_on):
        assert {(epoch, epoch)} == {beliefs for batch in seen for _, *beliefs in batch for beliefs in [tuple(beliefs)]}
    orders = [[id for batch in seen for id, *_ in batch] for seen in run_on]
    assert len({tuple(order) for order in orders}) == 3
    assert fresh == run_on


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_o_wp2_everything_that_workers_get_is_picklable(method):
    loader = make_loader(
        24, 2, num_workers=2, worker_init_fn=worker_init_fn(0), multiprocessing_context=start_method(method)
    )
    plan = loader.plan
    for batch in loader:
        assert plan.batch(loader.progress.global_step - 1).ids.tolist() == batch
        if loader.progress.global_step == 3:
            state = loader.state_dict()  # by then, six batches and more are with the workers
    assert Progress(12, 1, 24) == loader.progress
    other = make_loader(24, 2)
    other.load_state_dict(state)
    assert batches(plan, 3, 12) == list(other)


def test_o_wp2_a_pickle_round_trip_in_mid_epoch_gives_the_same_next_batch():
    plan = Plan(Shuffle(24, 1), 4)
    for made in (BatchSampler(plan, Topology()), DistributedSampler(range(24), 1, 0)):
        walking = iter(made)
        next(walking)
        next(walking)
        copy = pickle.loads(pickle.dumps(made))
        assert list(walking) == list(copy)
    assert len(pickle.dumps(Plan(Shuffle(10**8, 1), 512))) < 10_000
    assert len(pickle.dumps(BatchSampler(Plan(Shuffle(10**8, 1), 512), Topology()))) < 10_000


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(0, None), (1, 2), (1, 8), (4, 2), (4, 8)])
def test_o_wp3_a_state_counts_what_training_consumed(num_workers, prefetch_factor):
    arguments = {"num_workers": num_workers, "prefetch_factor": prefetch_factor} if num_workers else {}
    loader = make_loader(200, 2, **arguments)
    for _ in zip(range(5), loader, strict=False):
        pass
    state = loader.state_dict()
    assert state["progress"]["consumed_samples"] == 10
    first = in_new_process(rest_from_state, state, 6, {})
    assert [loader.plan.batch(5).ids.tolist()] == first


# --- another topology on resume ---------------------------------------------------------------------------------------


def test_o_tc1_any_world_size_goes_on_with_the_same_global_batches():
    plan = Plan(Shuffle(240, 1), 24)
    straight = batches(plan, 0, 10)
    ranks = [make_loader(240, 24, topology=Topology(rank, 4)) for rank in range(4)]
    begun = [joined(parts) for parts in zip(*(list(loader.until(3)) for loader in ranks), strict=True)]
    assert straight[:3] == begun
    state = ranks[0].state_dict()
    for world_size in (2, 3, 6, 8):
        rests = [in_new_process(rest_from_state, state, 10, {}, rank, world_size) for rank in range(world_size)]
        found = [joined(parts) for parts in zip(*rests, strict=True)]
        assert straight[3:] == found
        assert list(range(240)) == sorted(id for batch in begun + found for id in batch)
    with pytest.raises(ValueError, match=r"24.*5"):
        make_loader(240, 24, topology=Topology(0, 5))


@pytest.mark.parametrize("saved", [0, 1, 4])
def test_o_tc2_any_worker_count_goes_on_from_any_other(saved):
    loader = make_loader(40, 4, num_workers=saved)
    for _ in zip(range(3), loader, strict=False):
        pass
    state = loader.state_dict()
    for resumed in (0, 2, 5):
        other = make_loader(40, 4, num_workers=resumed)
        other.load_state_dict(state)
        assert batches(loader.plan, 3, 14) == list(other.until(14))


@pytest.mark.parametrize(("tail", "steps", "last"), [("keep", 7, 8), ("drop", 6, 12)])
def test_o_tc3_another_batch_size_goes_on_at_the_next_unseen_sample(tail, steps, last):
    loader = make_loader(120, 8, tail=tail)
    begun = [batch for _, batch in zip(range(5), loader, strict=False)]
    assert loader.progress.consumed_samples == 40
    other = make_loader(120, 12, tail=tail)
    other.load_state_dict(loader.state_dict())
    order = Shuffle(120, 1)
    rest = list(other)
    assert order.take(np.arange(40, 52)).tolist() == rest[0]
    assert (steps, last) == (len(rest), len(rest[-1]))
    ids = [id for batch in begun + rest for id in batch]
    assert len(ids) == len(set(ids))
    assert other.progress.epoch == 1


# --- scale and extremes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10**6, 10**8, 10**10])
def test_o_sx1_samplers_hold_no_list_of_the_ids(n):
    for made in (DistributedSampler(range(n), 8, 3), BatchSampler(Plan(Shuffle(n), 64), Topology(3, 8))):
        assert len(pickle.dumps(made)) <= 10_000
    tracemalloc.start()
    try:
        made = DistributedSampler(range(n), 8, 3), BatchSampler(Plan(Shuffle(n), 64), Topology(3, 8))
        for one in made:
            assert len([item for _, item in zip(range(5000), one, strict=False)]) == 5000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 50 * 2**20


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 1, 2**32 + 1, 2**40])
def test_o_sx2_ids_beyond_32_bits_are_plain_python_ints(n):
    loader = make_loader(n, 1, dataset=range(n))
    sampler = DistributedSampler(range(n), 1, 0, seed=1)
    seen = []
    for consumed in (0, n // 2, n - 3):
        loader.resume(consumed)
        sampler.resume(consumed)
        ids = [id for _, (id,) in zip(range(3), loader, strict=False)]
        assert ids == [id for _, id in zip(range(3), sampler, strict=False)]
        assert {int} == {type(id) for id in ids}
        seen += ids
    assert len(set(seen)) == 9
    assert 0 <= min(seen) <= max(seen) < n
    there = []
    for consumed in (2**53, 2**53 + 1):
        loader.resume(consumed)
        assert consumed == loader.progress.consumed_samples
        there.append(next(iter(loader)))
    assert there[0] != there[1]
    loader.resume(np.int32(5))
    assert (5, int) == (loader.progress.global_step, type(loader.progress.global_step))


def test_o_sx3_an_empty_dataset_gives_no_ids_or_says_what_is_empty():
    for order in ("keyed", "torch"):
        for shuffle in (False, True):
            sampler = DistributedSampler([], 2, 1, shuffle=shuffle, order=order)
            assert (len(sampler), list(sampler)) == (0, [])
            loader = DataLoader([], batch_size=4, sampler=sampler)
            assert (len(loader), list(loader)) == (0, [])
            sampler.resume(0)
            with pytest.raises(ValueError, match="no samples"):
                sampler.resume(2)
    with pytest.raises(ValueError, match=r"empty|0"):
        Plan(Shuffle(0), 4)


@pytest.mark.parametrize("world_size", [1, 2])
def test_o_sx4_fewer_samples_than_a_batch(world_size):
    with pytest.raises(ValueError, match=r"8.*3 samples"):
        make_loader(3, 8, tail="drop")
    for tail, marked in (("keep", 0), ("pad", 5)):
        plan = Plan(Shuffle(3, 1), 8, tail)
        loaders = [make_loader(3, 0, plan=plan, topology=Topology(rank, world_size)) for rank in range(world_size)]
        for epoch in range(3):
            parts = [list(loader) for loader in loaders]
            assert [1] * world_size == [len(part) for part in parts]
            ids = joined([part[0] for part in parts])
            assert 3 + marked == len(ids)
            assert {0, 1, 2} == set(ids)
            assert marked == int((~plan.batch(epoch).real).sum())
            assert epoch + 1 == loaders[0].progress.epoch
