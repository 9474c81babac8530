"""Random states of accelerators, with devices made of CPU generators: saved, put back, derived, left alone."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from detdata.checkpoint import Checkpointer, rng
from detdata.errors import CheckpointMismatch
from tests.checkpoint.fakes import make_model


class Devices(SimpleNamespace):
    """What torch.xpu looks like to the library."""

    def __init__(self, count, initialized=True):
        super().__init__(default_generators=(), initialized=False, count=count)
        if initialized:
            self.init()

    def init(self):
        if not self.initialized:
            self.initialized = True
            self.default_generators = tuple(torch.Generator().manual_seed(seed) for seed in range(self.count))

    def is_available(self):
        return self.count > 0

    def is_initialized(self):
        return self.initialized

    def device_count(self):
        return self.count

    def _is_in_bad_fork(self):
        return True  # so torch.manual_seed leaves it alone

    def draw(self):
        return [torch.rand(2, generator=generator).tolist() for generator in self.default_generators]


@pytest.fixture
def plug(monkeypatch):
    def plugged(count, *, initialized=True):
        devices = Devices(count, initialized)
        monkeypatch.setattr(torch, "xpu", devices)
        return devices

    return plugged


def test_each_device_goes_on_where_it_was(tmp_path, plug):
    devices = plug(2)
    devices.draw()
    Checkpointer(tmp_path, model=make_model()).save()
    expected = devices.draw()

    others = plug(2, initialized=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpointer(tmp_path, model=make_model()).resume()
    assert others.draw() == expected


def test_more_devices_than_saved_are_derived_all_distinct_and_the_same_again(tmp_path, plug):
    devices = plug(1)
    Checkpointer(tmp_path, model=make_model()).save()
    expected = devices.draw()

    found = []
    for _ in range(2):
        others = plug(3)
        with pytest.warns(UserWarning, match="1 xpu devices were saved, 3 are here"):
            Checkpointer(tmp_path, model=make_model()).resume()
        found.append(others.draw())
    assert found[0] == found[1]
    assert found[0][:1] == expected
    assert len({str(one) for one in found[0]}) == 3


def test_fewer_devices_are_a_mismatch_that_can_be_accepted(tmp_path, plug):
    devices = plug(2)
    Checkpointer(tmp_path, model=make_model()).save()
    expected = devices.draw()
    others = plug(1)
    checkpointer = Checkpointer(tmp_path, model=make_model())

    with pytest.raises(CheckpointMismatch, match="2 xpu devices"):
        checkpointer.resume()
    checkpointer.resume(accept=("rng",))
    assert others.draw() == expected[:1]


def test_ranks_derive_different_states_for_the_same_device(plug):
    plug(1)
    saved = rng.capture_rng()
    drawn = []
    for rank in (1, 2, 3):
        devices = plug(1)
        rng.derive_rng(saved, rank)
        drawn.append(devices.draw())
    assert len({str(one) for one in drawn}) == 3


def test_devices_that_were_never_touched_stay_so(tmp_path, plug):
    devices = plug(2, initialized=False)
    path = Checkpointer(tmp_path, model=make_model()).save()
    Checkpointer(tmp_path, model=make_model()).resume()

    assert not devices.initialized
    assert torch.load(path / "rng_rank00000.pt", weights_only=True)["accelerators"] == {}
