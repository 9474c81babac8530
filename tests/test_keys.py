"""Keys: no two addresses share one, and only addresses are taken."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata import DetdataError, derive_seed, sample_rng
from detdata.keys import fold, mix64, sample_seeds

PARTS = st.one_of(st.integers(0, 2**64 - 1), st.text(max_size=8))
PATHS = st.lists(PARTS, max_size=4)


@given(PATHS, PATHS)
def test_different_paths_have_different_keys(a, b):
    assert (a == b) == (fold(*a) == fold(*b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, 1), (1, 0)),
        (("ab", "c"), ("a", "bc")),
        (("ab",), ("a", "b")),
        ((1,), ("1",)),
        ((0,), ("\0" * 8,)),
        ((0,), (0, 0)),
        ((), ("",)),
        ((2**63,), (2**64 - 1,)),
    ],
)
def test_paths_that_look_alike_have_different_keys(a, b):
    assert fold(*a) != fold(*b)
    assert derive_seed(0, *a) != derive_seed(0, *b)


def test_an_epoch_more_is_not_a_seed_more():
    table = {fold("detdata.shuffle/1", seed, epoch) for seed in range(64) for epoch in range(64)}

    assert len(table) == 64 * 64


def test_neighbouring_addresses_differ_in_half_the_bits():
    pairs = [(fold("t", seed, epoch), fold("t", seed + 1, epoch), fold("t", seed, epoch + 1)) for seed in range(40)
             for epoch in range(25)]  # fmt: skip
    for other in (1, 2):
        flipped = sum((row[0] ^ row[other]).bit_count() for row in pairs)
        mean, deviation = 32 * len(pairs), (16 * len(pairs)) ** 0.5  # Binomial(64 k, 1/2)
        assert abs(flipped - mean) < 5 * deviation


@pytest.mark.parametrize("integer", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_numpy_integers_are_the_same_address_as_python_ones(integer):
    assert fold(5, "x", 7) == fold(integer(5), "x", integer(7))
    assert derive_seed(5, 7) == derive_seed(integer(5), integer(7))
    assert sample_rng(1, 2, 3).integers(2**62) == sample_rng(integer(1), integer(2), integer(3)).integers(2**62)


@pytest.mark.parametrize("part", [True, np.True_, 1.0, None, b"x", bytearray(b"x"), (1,), np.array([1, 2])])
def test_only_integers_and_strings_are_parts(part):
    with pytest.raises(TypeError) as caught:
        fold(part)
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize("part", [-1, 2**64])
def test_a_part_outside_64_bits_is_refused(part):
    with pytest.raises(ValueError, match=str(part)):
        derive_seed(0, part)


@pytest.mark.parametrize(("seed", "kind"), [(-1, ValueError), (2**63, ValueError), (1.0, TypeError), (True, TypeError),
                                            ("1", TypeError), (None, TypeError)])  # fmt: skip
def test_a_bad_seed_is_refused_by_name(seed, kind):
    for call in (derive_seed, lambda s: sample_seeds(s, 0, [1]), lambda s: sample_rng(s, 0, 1)):
        with pytest.raises(kind, match="seed"):
            call(seed)


def test_mix64_is_one_to_one_and_leaves_its_argument_alone():
    values = np.concatenate([np.arange(2**16, dtype=np.uint64) + np.uint64(start) for start in (0, 2**63)])
    before = values.copy()

    assert np.unique(mix64(values)).size == values.size
    assert np.array_equal(before, values)


def test_sample_seeds_depend_on_the_sample_and_not_on_its_company():
    together = sample_seeds(3, 1, [[5, 6], [7, 2**62 - 1]])

    assert together.shape == (2, 2)
    assert together.dtype == np.uint64
    assert [[int(sample_seeds(3, 1, id)) for id in row] for row in ([5, 6], [7, 2**62 - 1])] == together.tolist()
    assert sample_seeds(3, 1, np.array(5)).shape == ()
    assert sample_seeds(3, 1, []).shape == (0,)


def test_sample_seeds_differ_over_ids_epochs_and_seeds():
    made = [sample_seeds(seed, epoch, np.arange(1000)) for seed in range(10) for epoch in range(10)]

    assert np.unique(np.concatenate(made)).size == 10 * 10 * 1000


def test_a_sample_rng_is_fresh_at_every_call():
    first, second = sample_rng(0, 1, 42), sample_rng(0, 1, 42)
    first.random(100)

    assert sample_rng(0, 1, 42).random() == second.random()
    assert sample_rng(0, 1, 43).random() != sample_rng(0, 1, 42).random() != sample_rng(0, 2, 42).random()


@pytest.mark.parametrize("id", [-1, 2**63])
def test_an_id_outside_the_range_is_refused(id):
    with pytest.raises((ValueError, IndexError)):
        sample_rng(0, 0, id)
