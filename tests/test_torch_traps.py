"""Traps that torch and the frameworks on top of it set for a resumable loader: one test each, by what is done there."""

import inspect
import itertools

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from detdata import BatchSampler, DistributedSampler, Loader, Plan, Progress, Shuffle, Topology
from tests.torch_side import FORK, Believing, Counting, Ids, Noisy, WholeBatches, as_list, batches, make_loader

PLAN = Plan(Shuffle(26, 1), 2)


def test_trap_1_iterators_do_not_share_a_position_and_asking_for_the_state_starts_nothing():
    sampler = BatchSampler(PLAN, Topology())
    first, second = iter(sampler), iter(sampler)
    assert [next(first), next(first)] == batches(PLAN, 0, 2)
    assert batches(PLAN, 0, 13) == list(second)

    dataset = Counting(26)
    loader = make_loader(26, 0, plan=PLAN, dataset=dataset, num_workers=2)
    before = loader.state_dict()
    assert dataset.reads.value == 0
    loader.resume(6)  # a state asked for before the first pass pins nothing
    assert batches(PLAN, 3, 13) == list(loader)
    assert Progress().to_dict() == before["progress"]


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(2, 2), (2, 4), (4, 2)])
def test_trap_2_consumed_is_not_handed_out(num_workers, prefetch_factor):
    handed = []

    class Watched(Sampler):
        def __iter__(self):
            for batch in BatchSampler(PLAN, Topology()):
                handed.append(batch)
                yield batch

    arguments = {"num_workers": num_workers, "prefetch_factor": prefetch_factor, **FORK}
    next(iter(DataLoader(Ids(26), batch_sampler=Watched(), **arguments)))
    assert num_workers * prefetch_factor + 1 == len(handed)  # how far torch runs ahead of the loop

    loader = make_loader(26, 0, plan=PLAN, **arguments)
    next(iter(loader))
    assert Progress(1, 0, 2) == loader.progress


def test_trap_3_the_length_is_always_the_whole_epochs():
    loader = make_loader(26, 0, plan=PLAN)
    loader.resume(12)
    sampler = BatchSampler(PLAN, Topology(), start_step=6)
    single = DistributedSampler(range(26), 2, 0)
    single.resume(12)
    wrapped = DataLoader(Ids(26), batch_sampler=sampler)
    assert (len(loader), len(sampler), len(single), len(wrapped)) == (13, 13, 13, 13)
    assert len(loader) + len(wrapped) + len(single) == 13 * 3
    assert (len(list(loader)), len(list(wrapped)), len(list(single))) == (7, 7, 7)


def test_trap_4_epochs_go_on_whether_nobody_calls_set_epoch_or_everybody_does():
    called, alone = BatchSampler(PLAN, Topology()), BatchSampler(PLAN, Topology())
    single = DistributedSampler(range(26), 1, 0)
    through = DataLoader(Ids(26), sampler=single, collate_fn=as_list)
    for epoch in range(3):
        for _ in range(2):  # some frameworks call it twice
            DataLoader(Ids(26), batch_sampler=called).batch_sampler.set_epoch(epoch)
            through.sampler.set_epoch(epoch)
        assert batches(PLAN, 13 * epoch, 13 * epoch + 13) == list(called) == list(alone)
        assert [[id] for id in Shuffle(26, 0).take(range(26), epoch).tolist()] == list(through)
    # A framework that counts from 0 after a resume would send an epoch back; of a Loader there is nothing to call.
    assert not any(hasattr(make_loader(26, 0, plan=PLAN), name) for name in ("set_epoch", "sampler", "batch_sampler"))


def test_trap_5_a_loader_is_nothing_that_a_framework_would_shard_again():
    loader = make_loader(26, 0, plan=PLAN, topology=Topology(1, 2))
    assert not isinstance(loader, (DataLoader, IterableDataset))
    assert not hasattr(loader, "batch_size")  # by which some rebuild a loader of their own


def test_trap_6_augmentations_survive_a_resume_and_another_worker_count():
    def numbers(loader):
        return [sample for batch in loader for sample in batch]

    straight = numbers(make_loader(26, 0, plan=PLAN, dataset=Noisy(26)))
    for num_workers in (0, 1, 2):
        loader = make_loader(26, 0, plan=PLAN, dataset=Noisy(26), num_workers=num_workers)
        loader.resume(6)
        assert straight[6:] == numbers(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_trap_7_making_an_iterator_draws_nothing_from_the_global_generator(num_workers):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    for _ in range(2):
        next(iter(DataLoader(Ids(26), num_workers=num_workers, **(FORK if num_workers else {}))))  # torch's own does
    assert not torch.equal(expected, torch.rand(4))
    torch.manual_seed(3)
    loader = make_loader(26, 0, plan=PLAN, num_workers=num_workers)
    for _ in range(2):
        next(iter(loader))
    assert torch.equal(expected, torch.rand(4))


def test_trap_8_the_epoch_reaches_persistent_workers():
    loader = make_loader(26, 0, plan=PLAN, dataset=Believing(26), num_workers=2, persistent_workers=True)
    told = [{tuple(sample[1:]) for batch in loader for sample in batch} for _ in range(3)]
    assert [{(0, 0)}, {(1, 1)}, {(2, 2)}] == told


def test_trap_9_whole_batches_are_read_at_once_and_streams_are_refused():
    dataset = WholeBatches(26)
    assert batches(PLAN, 0, 13) == list(make_loader(26, 0, plan=PLAN, dataset=dataset)) == dataset.calls
    sampler = BatchSampler(PLAN, Topology())
    dataset = WholeBatches(26)
    assert batches(PLAN, 0, 13) == list(DataLoader(dataset, batch_sampler=sampler, collate_fn=as_list)) == dataset.calls

    class Streamed(IterableDataset):
        def __iter__(self):
            return iter(range(26))

    with pytest.raises(TypeError, match="map-style"):
        Loader(Streamed(), PLAN, Topology())
    if "in_order" in inspect.signature(DataLoader.__init__).parameters:
        with pytest.raises(ValueError, match="in_order"):
            make_loader(26, 0, plan=PLAN, num_workers=2, in_order=False)
        make_loader(26, 0, plan=PLAN, num_workers=2, in_order=True)


def test_trap_10_the_state_is_free_of_ranks_so_any_ranks_copy_will_do():
    states = []
    for rank, micro_steps in itertools.product(range(2), (1,)):
        loader = make_loader(26, 0, plan=PLAN, topology=Topology(rank, 2), micro_steps=micro_steps)
        list(loader.until(7))
        states.append(loader.state_dict())
    assert states[0] == states[1]
