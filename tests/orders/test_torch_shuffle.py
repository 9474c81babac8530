"""TorchShuffle gives the ids of torch's own sampler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import TorchShuffle

torch_data = pytest.importorskip("torch.utils.data")


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(1, 5))
def test_it_is_what_the_distributed_sampler_of_torch_gives(n, seed, epoch, world_size):
    order = TorchShuffle(n, seed)
    ids = order.take(np.arange(n), epoch)
    for rank in range(world_size):
        sampler = torch_data.DistributedSampler(range(n), world_size, rank, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        positions = np.arange(rank, sampler.total_size, world_size) % n  # torch pads from the front
        assert list(sampler) == ids[positions].tolist()
    assert np.array_equal(np.arange(n), order.find(ids, epoch))


def test_alternating_epochs_are_each_their_own():
    order = TorchShuffle(100, 1)
    expected = [order.take(np.arange(100), epoch).tolist() for epoch in range(5)]

    for epoch in (4, 0, 3, 1, 2, 0, 4):
        assert expected[epoch] == order.take(np.arange(100), epoch).tolist()


def test_the_ends_of_the_range_of_seeds_and_epochs_are_taken():
    order = TorchShuffle(10, 2**63 - 1)

    assert sorted(order.take(np.arange(10), 2**63 - 1).tolist()) == list(range(10))
