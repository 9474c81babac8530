"""Global streams saved and put back to the bit; generators found in a dataset object and seeded."""

import random
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from detdata import streams
from detdata.streams import find_streams, restore_global, same_global, save_global, seed_stream, stream_state
from tests.torch_side import Noisy, global_streams

BITS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


@pytest.fixture
def own_numpy_stream():
    """NumPy's global bit generator may be swapped in the test."""
    before = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(before)


def draw_all(count=3):
    return (
        [random.random() for _ in range(count)],
        [random.gauss(0, 1) for _ in range(count)],  # the second of a pair is kept by the generator
        np.random.rand(count).tolist(),
        np.random.randn(count).tolist(),
        torch.rand(count).tolist(),
        torch.randn(count).tolist(),
    )


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("normals", [0, 1, 2])
@pytest.mark.parametrize("meanwhile", ["draws", "seeds", "swaps"])
def test_saving_changes_nothing_and_putting_back_is_exact(own_numpy_stream, bits, normals, meanwhile):
    np.random.set_bit_generator(bits(3))
    np.random.randn(normals)
    before = global_streams()

    state = save_global()

    assert before == global_streams()
    if meanwhile == "draws":
        draw_all()
    elif meanwhile == "seeds":
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
    else:
        np.random.set_bit_generator(np.random.PCG64(9))
        draw_all()
    assert before != global_streams()
    restore_global(state)
    assert before == global_streams()
    drawn = draw_all()
    restore_global(state)
    assert drawn == draw_all()
    restore_global(state)
    assert np.random.get_bit_generator().__class__ is bits


@pytest.mark.parametrize("unseen", ["_numpy_leftover_at", "_python_words_at"])
@pytest.mark.parametrize("normals", [0, 1, 2])
def test_where_memory_does_not_look_as_expected_the_slow_way_is_as_exact(monkeypatch, unseen, normals):
    monkeypatch.setattr(streams, unseen, lambda: None)
    np.random.randn(normals)
    random.gauss(0, 1)
    before = global_streams()
    state = save_global()
    drawn = draw_all()
    restore_global(state)
    assert before == global_streams()
    assert drawn == draw_all()


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="the words are copied on CPython only")
def test_the_fast_way_is_taken_here():
    assert streams._numpy_leftover_at() is not None
    assert streams._python_words_at() is not None


@pytest.mark.parametrize("bits", BITS)
def test_saved_states_differ_as_soon_as_one_number_is_drawn(own_numpy_stream, bits):
    np.random.set_bit_generator(bits(3))
    state = save_global()
    assert same_global(state, save_global())
    for one in (random.random, np.random.rand, np.random.randn, lambda: torch.rand(())):
        one()
        assert not same_global(state, save_global())
        restore_global(state)
        assert same_global(state, save_global())


def test_a_leftover_normal_number_is_part_of_the_state():
    state = save_global()
    np.random.randn()
    once = save_global()
    np.random.randn()
    assert not same_global(once, save_global())
    restore_global(state)


@dataclass
class Transform:
    rng: object


class Slotted:
    __slots__ = ("rng", "unset")

    def __init__(self, rng):
        self.rng = rng


@dataclass
class Pipeline:
    base: object
    steps: list = field(default_factory=list)


def test_generators_are_found_wherever_a_dataset_holds_them_in_a_fixed_order():
    held = [np.random.default_rng(0), np.random.RandomState(0), random.Random(0), torch.Generator()]
    dataset = Pipeline(
        torch.utils.data.Subset(Pipeline(Transform(held[0])), [0]),
        [Slotted(held[1]), {"a": (held[2],)}, [[held[3]]]],
    )
    dataset.base.dataset.steps.append(dataset)  # round in a circle
    found = find_streams(dataset)
    assert {id(stream) for stream in held} == {id(stream) for stream in found}
    assert [id(stream) for stream in found] == [id(stream) for stream in find_streams(dataset)]


def test_the_global_streams_and_the_systems_entropy_are_not_taken_for_a_datasets_own():
    shared = [np.random.mtrand._rand, torch.default_generator, random._inst, random.SystemRandom(), np.random, random]
    assert find_streams(Pipeline(shared)) == []


def test_a_large_dataset_is_not_walked_through():
    generator = np.random.default_rng(0)
    found = find_streams(Pipeline([list(range(100_000)), {i: [i] for i in range(100_000)}], [generator]))
    assert generator in found


STREAMS = {
    **{f"Generator-{bits.__name__}": lambda bits=bits: np.random.Generator(bits(0)) for bits in BITS},
    **{f"RandomState-{bits.__name__}": lambda bits=bits: np.random.RandomState(bits(0)) for bits in BITS},
    "python": lambda: random.Random(0),
    "torch": torch.Generator,
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_a_generator_is_seeded_in_place_whatever_it_had_drawn(name, seed):
    stream = STREAMS[name]()
    seed_stream(stream, seed)
    expected = [numbers(stream) for _ in range(3)]
    seed_stream(stream, seed)
    assert expected == [numbers(stream) for _ in range(3)]
    seed_stream(stream, seed ^ 5)
    assert expected[0] != numbers(stream)


@pytest.mark.parametrize("name", STREAMS)
def test_a_generators_state_tells_of_every_number_drawn(name):
    stream = STREAMS[name]()
    states = [stream_state(stream)]
    for _ in range(3):
        numbers(stream)
        states.append(stream_state(stream))
    assert len(set(states)) == 4
    assert states[-1] == stream_state(stream)


def numbers(stream):
    if isinstance(stream, torch.Generator):
        return float(torch.randn((), generator=stream))
    if isinstance(stream, random.Random):
        return stream.gauss(0, 1)
    return float(stream.normal())


def test_the_datasets_of_these_tests_hold_all_four_kinds():
    assert len(find_streams(Noisy(1))) == 4
