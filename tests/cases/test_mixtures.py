"""Failures that others have had in training, by the ids under which they were collected: mixtures.

Each test does what its case says, and its name begins with the case's id.
"""

from collections import Counter

import numpy as np
import pytest

from detdata import Loader, Plan, Sequential, Shuffle, Topology
from detdata.orders.mixture import Mixture
from tests.torch_side import FORK, as_list

THREE = {"a": 3, "b": 4, "c": 3}
WEIGHTS = {"a": 0.2, "b": 0.6, "c": 0.2}


def loader_of(mixture, batch_size, num_workers, tail="keep"):
    plan = Plan(mixture, batch_size, tail)
    options = FORK if num_workers else {}
    dataset = list(range(mixture.id_bound))
    return Loader(dataset, plan, Topology(), num_workers=num_workers, collate_fn=as_list, **options)


def epochs_of(loader, count=3):
    return [[id for batch in loader for id in batch] for _ in range(count)]


@pytest.mark.parametrize("kind", [Shuffle, Sequential])
@pytest.mark.parametrize("seed", range(4))
def test_o_mx1_a_stopping_rule_holds_however_the_sources_are_read(kind, seed):
    made = {name: kind(n) for name, n in THREE.items()}
    found = {}
    for num_workers in (0, 2) if seed == 0 else (0,):
        for stop in ("first", "all", "all_once"):
            epochs = epochs_of(loader_of(Mixture(made, WEIGHTS, seed, stop=stop), 4, num_workers))
            assert found.setdefault(stop, epochs) == epochs  # the same for all worker counts
    for ids in found["all"]:
        assert set(range(10)) == set(ids)
        assert set(range(10)) > set(ids[:-1])
    for ids in found["all_once"]:
        assert list(range(10)) == sorted(ids)
    for ids in found["first"]:
        counts = Counter("aaabbbbccc"[id] for id in ids)
        assert [counts[name] == n for name, n in THREE.items()].count(True) == 1
        assert all(counts[name] <= n for name, n in THREE.items())
        assert THREE["aaabbbbccc"[ids[-1]]] == counts["aaabbbbccc"[ids[-1]]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [{"small": 0.001, "big": 0.999}, {"small": 0.0001, "big": 0.9999}])
def test_o_mx2_extreme_weights_stay_within_their_quota_and_their_source(weights, seed):
    mixture = Mixture({"small": Shuffle(100, 1), "big": Shuffle(100, 2)}, weights, seed, size=1000)
    ids = mixture.take(np.arange(1000)).tolist()
    small = sum(id < 100 for id in ids)
    assert abs(small - 1000 * weights["small"]) <= 1
    assert {"small": small, "big": 1000 - small} == mixture.counts(1000)
    big = [id for id in ids if id >= 100]
    for begin in range(0, len(big) - 99, 100):
        assert list(range(100, 200)) == sorted(big[begin : begin + 100])
    assert len({tuple(big[begin : begin + 100]) for begin in range(0, 900, 100)}) == 9  # each pass in its own order


@pytest.mark.parametrize("num_workers", [0, 2])
def test_o_mx3_a_mixture_resumes_after_any_number_of_passes(num_workers):
    made = {"small": Shuffle(50, 1), "large": Shuffle(500, 2)}
    mixture = Mixture(made, {"small": 1, "large": 1}, 3, size=400)
    straight = [id for batch in loader_of(mixture, 1, 0) for id in batch]
    assert mixture.passes(400)["small"] >= (3, 40)  # about 200 draws of 50: the small one wraps again and again
    for draws in range(37, 400, 37) if num_workers == 0 else (37, 222, 370):
        loader = loader_of(mixture, 1, num_workers)
        begun = [id for batch in loader.until(draws) for id in batch]
        resumed = loader_of(mixture, 1, num_workers)
        resumed.load_state_dict(loader.state_dict())
        assert straight == begun + [id for batch in resumed for id in batch]
        consumed = loader_of(mixture, 1, num_workers)
        consumed.resume(draws)
        assert straight[draws:] == [id for batch in consumed for id in batch]
