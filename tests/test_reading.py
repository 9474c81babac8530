"""Randomness of samples: what one draws depends on (seed, epoch, id) alone, and the training process never notices."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, Subset, TensorDataset, random_split

from detdata import Loader, Plan, Sequential, Shuffle, Topology
from tests.torch_side import (
    SOURCES,
    SPAWNABLE,
    Believing,
    Both,
    Ids,
    Noisy,
    NoisyBatches,
    WholeBatches,
    as_list,
    draw,
    global_streams,
    make_loader,
    start_method,
)

N = 24


def drawn(epochs=2, *, dataset=None, batch_size=6, world_size=1, consumed=0, **arguments):
    """{(epoch, id): numbers} of all samples that the ranks read from `consumed` samples on."""
    found = {}
    for rank in range(world_size):
        loader = make_loader(
            N,
            batch_size,
            dataset=Noisy(N) if dataset is None else dataset(),
            topology=Topology(rank, world_size),
            **arguments,
        )
        loader.resume(consumed)
        while (epoch := loader.progress.epoch) < epochs:
            for batch in loader:
                for id, *numbers in batch:
                    found[epoch, id] = numbers
    return found


@pytest.fixture(scope="module")
def straight():
    return drawn()


def test_numbers_differ_between_sources_samples_and_epochs(straight):
    numbers = [number for sample in straight.values() for number in sample]
    assert 2 * N * len(SOURCES) == len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": 1},
        {"num_workers": 3, "prefetch_factor": 4},
        {"num_workers": 2, "persistent_workers": True},
        {"batch_size": 1},
        {"batch_size": 8, "micro_steps": 2},
        {"world_size": 2},
        {"world_size": 3, "num_workers": 2},
        {"tail": "keep", "batch_size": 7},
        {"plan": Plan(Sequential(N), 4), "seed": 1},  # another order, the same seed
    ],
    ids=str,
)
def test_what_a_sample_draws_does_not_depend_on(straight, arguments):
    assert straight == drawn(**arguments)


@pytest.mark.parametrize("consumed", [6, 18, 24, 42])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_resume_draws_what_the_straight_run_draws(straight, consumed, num_workers):
    rest = drawn(consumed=consumed, num_workers=num_workers)
    assert 2 * N - consumed == len(rest)
    assert rest == {address: straight[address] for address in rest}


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_started_anew_worker_draws_the_same(method):
    arguments = {"epochs": 1, "dataset": lambda: Noisy(N, SPAWNABLE)}
    assert drawn(**arguments) == drawn(**arguments, num_workers=1, multiprocessing_context=start_method(method))


def test_another_seed_draws_other_numbers_in_the_same_order(straight):
    other = drawn(plan=Plan(Shuffle(N, 1), 6), seed=2)
    assert straight.keys() == other.keys()
    assert all(straight[address] != other[address] for address in straight)


@settings(max_examples=20)
@given(st.integers(0, 2**63 - 1), st.sampled_from([1, 2, 3, 4, 6, 12]), st.sampled_from([1, 2]), st.booleans())
def test_any_batch_size_and_read_gives_a_samples_own_numbers(seed, batch_size, micro_steps, whole):
    plan = Plan(Shuffle(N, 1), batch_size * micro_steps)
    dataset = (lambda: NoisyBatches(N)) if whole else None
    reference = drawn(1, plan=Plan(Sequential(N), 1), seed=seed)
    assert reference == drawn(1, plan=plan, seed=seed, micro_steps=micro_steps, dataset=dataset)


# --- the other modes --------------------------------------------------------------------------------------------------


def test_once_a_batch_is_the_same_for_worker_counts_and_resumes():
    first = drawn(randomness="batch")
    assert 2 * N * len(SOURCES) == len({number for sample in first.values() for number in sample})
    assert first == drawn(randomness="batch", num_workers=1)
    assert first == drawn(randomness="batch", num_workers=2, persistent_workers=True)
    assert first == drawn(randomness="batch", dataset=lambda: NoisyBatches(N))
    rest = drawn(randomness="batch", consumed=30)
    assert rest == {address: first[address] for address in rest}


def test_once_a_batch_differs_by_rank_and_micro_step():
    numbers = drawn(1, randomness="batch", world_size=2, batch_size=8, micro_steps=2)
    assert N * len(SOURCES) == len({number for sample in numbers.values() for number in sample})


def test_off_leaves_the_streams_to_the_user():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    ids = Plan(Shuffle(N, 1), 6).batch(0).ids.tolist()
    dataset = Noisy(N)
    expected = [(id, *(draw(source, dataset) for source in SOURCES)) for id in ids]
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    assert expected == next(iter(make_loader(N, 6, dataset=Noisy(N), randomness="off")))


def test_off_and_once_a_batch_know_no_current_sample():
    for randomness in ("off", "batch"):
        with pytest.raises(RuntimeError, match='randomness="sample"'):
            next(iter(make_loader(N, 6, dataset=Believing(N), randomness=randomness)))


# --- the training process's streams -----------------------------------------------------------------------------------


class Rude(Ids):
    """Seeds and swaps the global streams, and raises at one id."""

    def __init__(self, n, raises=None):
        super().__init__(n)
        self.raises = raises

    def __getitem__(self, id):
        random.seed(id)
        torch.manual_seed(id)
        np.random.seed(id)
        if id % 3 == 0:
            np.random.set_bit_generator(np.random.SFC64(id))
        if id == self.raises:
            raise KeyError(id)
        return id, np.random.rand(), np.random.randn(), torch.rand(()).item(), random.random()


@pytest.fixture(params=["MT19937", "MT19937 with a leftover", "PCG64"])
def streams(request):
    before = np.random.get_bit_generator()
    if request.param == "PCG64":
        np.random.set_bit_generator(np.random.PCG64(3))
    if "leftover" in request.param:
        np.random.seed(0)
        np.random.randn()
    random.gauss(0, 1)
    yield
    np.random.set_bit_generator(before)


@pytest.mark.parametrize("dataset", [Noisy(N), NoisyBatches(N), NoisyBatches(N, quiet=12), WholeBatches(N), Rude(N)])
@pytest.mark.parametrize("randomness", ["sample", "batch"])
def test_reading_here_leaves_the_global_streams_alone(streams, dataset, randomness):
    before = global_streams()
    bits = np.random.get_bit_generator()
    loader = make_loader(N, 6, dataset=dataset, randomness=randomness)
    for _ in range(2):
        for _ in loader:
            assert before == global_streams()
    assert bits is np.random.get_bit_generator()


@pytest.mark.parametrize(
    "arguments", [{}, {"persistent_workers": True}, {"randomness": "batch"}, {"randomness": "off"}]
)
def test_reading_in_workers_leaves_the_global_streams_alone(streams, arguments):
    before = global_streams()
    loader = make_loader(N, 6, dataset=Noisy(N), num_workers=1, **arguments)
    for _ in range(2):
        for _ in loader:
            assert before == global_streams()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_that_is_made_and_dropped_draws_nothing(num_workers):
    before = global_streams()
    for _ in range(2):
        next(iter(make_loader(N, 6, num_workers=num_workers)))
        iter(make_loader(N, 6, num_workers=num_workers))
    assert before == global_streams()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_dataset_that_raises_leaves_the_global_streams_alone_and_the_position_too(streams, num_workers):
    before = global_streams()
    plan = Plan(Sequential(N), 6)
    loader = make_loader(N, 6, plan=plan, dataset=Rude(N, raises=8), num_workers=num_workers)
    with pytest.raises(KeyError):
        list(loader)
    assert before == global_streams()
    assert loader.progress.global_step == 1
    with pytest.raises(KeyError):
        next(iter(loader))


def test_samples_of_any_bit_generator_are_seeded(streams):
    np.random.set_bit_generator(np.random.PCG64(7))
    first = drawn(1)
    np.random.rand()
    assert first == drawn(1)


# --- collate functions ------------------------------------------------------------------------------------------------


class Masking:
    """A collate function that draws, from the global streams and from a generator of its own."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def __call__(self, samples):
        return list(samples), [draw(source, self) for source in ("python", "numpy", "gauss", "torch", "generator")]


@pytest.mark.parametrize("randomness", ["sample", "batch"])
@pytest.mark.parametrize("dataset", [Ids(N), Noisy(N), WholeBatches(N), NoisyBatches(N)])
def test_what_a_collate_function_draws_belongs_to_the_batch(dataset, randomness):
    def run(consumed=0, **arguments):
        loader = make_loader(N, 6, dataset=dataset, collate_fn=Masking(), randomness=randomness, **arguments)
        loader.resume(consumed)
        before = global_streams()
        found = list(loader.until(8))
        assert before == global_streams()
        return found

    straight = run()
    assert len({number for _, numbers in straight for number in numbers}) == 8 * 5
    assert straight[3:] == run(18)
    assert straight == run(num_workers=2)


# --- kinds of datasets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [WholeBatches, Both])
def test_whole_batches_are_read_by_one_call_each(kind):
    dataset = kind(N)
    plan = Plan(Shuffle(N, 1), 6)
    loader = make_loader(N, 6, plan=plan, dataset=dataset, micro_steps=2)
    expected = [plan.shard(step, 0, 1, micro, 2).ids.tolist() for step in range(4) for micro in range(2)]
    assert expected == list(loader)
    assert expected == dataset.calls


def test_whole_batches_that_draw_fall_back_to_one_by_one_with_the_same_numbers(straight):
    made = []

    def dataset():
        made.append(NoisyBatches(N))
        return made[-1]

    assert straight == drawn(dataset=dataset)
    assert made[0].calls == 1 + 2 * N  # one call that showed it, then each sample by itself
    assert straight == drawn(dataset=lambda: NoisyBatches(N), num_workers=2)


@pytest.mark.parametrize("source", SOURCES)
def test_any_source_of_numbers_is_noticed(source):
    reference = drawn(1, dataset=lambda: Noisy(N, (source,)))
    assert reference == drawn(1, dataset=lambda: NoisyBatches(N, (source,)))


@pytest.mark.parametrize("batch_size", [2, 6, 8])
@pytest.mark.parametrize("quiet", [4, 12])
def test_whole_batches_that_draw_for_some_samples_only(batch_size, quiet):
    reference = drawn(1)
    found = drawn(1, batch_size=batch_size, dataset=lambda: NoisyBatches(N, quiet=quiet))
    assert found == {(e, id): ([] if id < quiet else numbers) for (e, id), numbers in reference.items()}


class Asking(Believing):
    """Whole batches that ask for the current sample, and go on without where there is none."""

    def __getitems__(self, ids):
        return [super(Asking, self).__getitem__(id) for id in ids]


def test_whole_batches_that_ask_for_the_sample_are_read_one_by_one():
    loader = make_loader(N, 6, dataset=Asking(N))
    for epoch in range(2):
        assert {(id, epoch, epoch) for id in range(N)} == {sample for batch in loader for sample in batch}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_over_an_epochs_end_tells_each_samples_own_epoch(num_workers):
    plan = Plan(Shuffle(10, 1), 4, "carry")
    loader = make_loader(10, 4, plan=plan, dataset=Believing(10), num_workers=num_workers)
    for step, batch in enumerate(loader.until(6)):
        expected = plan.batch(step)
        assert list(zip(expected.ids.tolist(), *[expected.epochs.tolist()] * 2, strict=True)) == batch


def test_torchs_own_datasets_are_read():
    values = torch.arange(N) * 10
    plain = TensorDataset(values)
    both = ConcatDataset([TensorDataset(values[:5]), TensorDataset(values[5:])])
    some = Subset(plain, list(range(0, N, 2)))
    train, held_out = random_split(plain, [18, 6], generator=torch.Generator().manual_seed(0))
    for dataset in (plain, both, some, train, held_out, range(9), values, [3] * 8):
        n = len(dataset)
        plan = Plan(Shuffle(n, 1), 3)
        loader = Loader(dataset, plan, Topology(), collate_fn=as_list)
        for step, batch in enumerate(loader):
            assert [dataset[id] for id in plan.batch(step).ids.tolist()] == batch
        assert n // 3 == loader.progress.global_step


def test_noise_inside_torchs_wrappers_is_a_samples_own():
    def numbers(batch_size, **arguments):
        dataset = Subset(ConcatDataset([Noisy(10), Noisy(10)]), list(range(3, 15)))
        loader = make_loader(12, batch_size, dataset=dataset, **arguments)
        return sorted(sample for batch in loader for sample in batch)

    reference = numbers(1)
    assert 12 * len(SOURCES) == len({number for _, *sample in reference for number in sample})
    assert reference == numbers(4) == numbers(6, num_workers=2)
