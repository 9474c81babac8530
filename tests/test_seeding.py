"""Seeding of workers, and what a dataset may ask about the sample that is being read."""

import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from detdata import DetdataError, current_sample, derive_seed, sample_rng, worker_init_fn
from detdata.seeding import Sample, seed_global, worker_seed
from tests.torch_side import FORK, SPAWNABLE, Noisy, as_list, global_streams, start_method


def test_the_global_streams_get_different_halves_of_a_seed():
    before = global_streams()
    seed_global(2**40 + 7)
    python, numpy, own = random.getrandbits(32), np.random.randint(0, 2**32), torch.randint(0, 2**32, ())
    seed_global(2**40 + 7)
    assert (python, numpy, own) == (random.getrandbits(32), np.random.randint(0, 2**32), torch.randint(0, 2**32, ()))
    seed_global(2**40 + 8)  # another low half: NumPy's stream is fed from the high one
    assert numpy == np.random.randint(0, 2**32)
    assert own != torch.randint(0, 2**32, ())
    assert before != global_streams()


def test_a_sample_outside_a_loader_has_no_address():
    with pytest.raises(RuntimeError, match="current_sample") as raised:
        current_sample()
    assert isinstance(raised.value, DetdataError)


def test_a_samples_generator_depends_on_its_address_alone():
    first = Sample(1, 2, 3).rng().integers(0, 2**62, 4).tolist()
    assert first == sample_rng(1, 2, 3).integers(0, 2**62, 4).tolist()
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2)):
        assert first != sample_rng(*other).integers(0, 2**62, 4).tolist()


def test_derived_seeds_of_different_paths_differ():
    paths = [("a",), ("a", 0), ("a", "0"), (0, "a"), (0, 1), (1, 0), (1,), ()]
    assert len(paths) * 3 == len({derive_seed(seed, *path) for path in paths for seed in range(3)})
    assert 0 <= derive_seed(2**63 - 1, 2**64 - 1) < 2**64


def test_worker_init_is_picklable_and_refuses_what_is_no_seed():
    init = worker_init_fn(np.int64(7))
    assert init == pickle.loads(pickle.dumps(init))
    for wrong, error in ((-1, ValueError), (2**63, ValueError), (1.0, TypeError), (True, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="seed"):
            worker_init_fn(wrong)


def test_a_workers_rank_is_that_of_the_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    first = noise_of_workers()
    monkeypatch.setenv("RANK", "1")
    second = noise_of_workers()
    assert len(set(first) & set(second)) == 0


def noise_of_workers(seed=3, base=5, epochs=1, **arguments):
    """All numbers that two workers draw, each source by itself; equal arguments, equal numbers."""
    loader = DataLoader(
        Noisy(8),
        batch_size=2,
        num_workers=2,
        worker_init_fn=worker_init_fn(seed),
        generator=torch.Generator().manual_seed(base),
        collate_fn=as_list,
        **FORK,
        **arguments,
    )
    return [number for _ in range(epochs) for batch in loader for _, *numbers in batch for number in numbers]


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_seeds_differ_by_seed_and_epoch_and_repeat_with_the_run(persistent):
    first = noise_of_workers(epochs=2, persistent_workers=persistent)
    assert first == noise_of_workers(epochs=2, persistent_workers=persistent)
    assert len(set(first)) == 2 * 8 * 8
    assert set(first).isdisjoint(noise_of_workers(seed=4))
    assert set(first).isdisjoint(noise_of_workers(base=6))


def test_worker_init_works_where_no_worker_is():
    before = global_streams()
    try:
        torch.manual_seed(1)
        worker_init_fn(0)(0)
        first = random.random()
        torch.manual_seed(1)
        worker_init_fn(0)(0)
        assert first == random.random()
    finally:
        assert before != global_streams()


def test_worker_init_under_another_start_method_draws_the_same():
    drawn = {}
    for method in ("fork", "forkserver"):
        loader = DataLoader(
            Noisy(4, SPAWNABLE),
            batch_size=1,
            num_workers=1,
            worker_init_fn=worker_init_fn(3),
            generator=torch.Generator().manual_seed(5),
            collate_fn=as_list,
            multiprocessing_context=start_method(method),
        )
        drawn[method] = list(loader)
    assert drawn["fork"] == drawn["forkserver"]


def test_worker_seeds_do_not_collide_where_sums_would():
    places = [(rank, worker) for rank in range(8) for worker in range(8)]
    assert len({worker_seed(0, base, *place) for place in places for base in (-1, 2**63 - 1)}) == 64 * 2
