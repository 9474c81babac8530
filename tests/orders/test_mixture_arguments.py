"""What a mixture refuses, by name, and the one form in which its spec stands."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import numpy as np
import pytest

from detdata import DetdataError, Sequential, Shuffle, Subset, Weighted, from_spec
from detdata.orders.mixture import Mixture

A, B = Shuffle(10, 1), Shuffle(30, 2)
TWO = {"a": A, "b": B}
EVEN = {"a": 1, "b": 1}


def make(**changes):
    arguments = {"sources": TWO, "weights": EVEN, "seed": 0, "size": 100}
    return Mixture(**{**arguments, **changes})


BAD = [
    ({"sources": {}}, ValueError, "sources"), ({"sources": [A]}, TypeError, "sources"),
    ({"sources": {"a": 5, "b": B}}, TypeError, r"sources\['a'\]"), ({"sources": {1: A, "b": B}}, TypeError, "sources"),
    ({"sources": {"a": Sequential(2**62), "b": B}}, ValueError, "2\\*\\*62"),
    ({"weights": {"a": 1}}, ValueError, "'b'"), ({"weights": {**EVEN, "c": 1}}, ValueError, "'c'"),
    ({"weights": {"a": 0, "b": 0.0}}, ValueError, "all 0"), ({"weights": {"a": -1, "b": 1}}, ValueError, "'a'"),
    ({"weights": {"a": "1", "b": 1}}, TypeError, "'a'"), ({"weights": [1, 1]}, TypeError, "weights"),
    ({"weights": {"a": 1e-10, "b": 1}}, ValueError, "'a'"),
    ({"weights": {"a": float("nan"), "b": 1}}, ValueError, "'a'"),
    ({"seed": -1}, ValueError, "seed"), ({"seed": 1.0}, TypeError, "seed"),
    ({"size": 0}, ValueError, "size"), ({"size": 2**62 + 1}, ValueError, "size"), ({"size": True}, TypeError, "size"),
    ({"stop": "all"}, ValueError, "size or stop"),
    ({"size": None, "stop": "never"}, ValueError, "first, all, all_once"),
    ({"size": None, "stop": 1}, ValueError, "stop"),
    ({"limits": {"c": 1}}, ValueError, "'c'"), ({"limits": {"a": 0}}, ValueError, r"limits\['a'\]"),
    ({"limits": {"a": 1.5}}, TypeError, r"limits\['a'\]"), ({"limits": [1]}, TypeError, "limits"),
    ({"size": None, "stop": "first", "limits": {"a": 1}}, ValueError, "no effect"),
    ({"size": None, "stop": "all_once", "limits": {"a": 1}}, ValueError, "no effect"),
    ({"limits": {"a": 1, "b": 2}}, ValueError, "after 70 draws"),
    ({"changes": [(5, {"c": 1})]}, ValueError, r"changes\[0\].*'c'"), ({"changes": 5}, TypeError, "changes"),
    ({"changes": [(5, {"a": 2}), (5, {"a": 3})]}, ValueError, "rising"), ({"changes": [5]}, TypeError, "changes"),
    ({"changes": [(-1, {"a": 2})]}, ValueError, "position"),
    ({"changes": [(5, {"a": 0, "b": 0})]}, ValueError, "all weights"),
    ({"size": None, "changes": [(10**6, {"a": 2})]}, ValueError, "1000000"),
    ({"size": None, "sources": {"a": Shuffle(2**61), "b": Shuffle(2**61)}, "stop": "all",
      "weights": {"a": 1, "b": 1000}}, ValueError, "give a size"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "error", "text"), BAD, ids=lambda x: str(x)[:50])
def test_bad_arguments_are_refused_by_name(changes, error, text):
    with pytest.raises(error, match=text) as caught:
        make(**changes)
    assert isinstance(caught.value, DetdataError)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((-1, {"a": 1}), ValueError, "position"), ((1.0, {"a": 1}), TypeError, "position"),
        ((5, {"c": 1}), ValueError, "'c'"), ((5, {"a": 0, "b": 0}), ValueError, "all weights"),
        ((5, {"a": 1}, [A]), TypeError, "add"), ((5, {"a": 1}, {"a": A}), ValueError, "'a'"),
        ((5, {"c": 1}, {"c": 5}), TypeError, "'c'"), ((5, {"c": 1}, {"c": A}, {"a": 2}), ValueError, "limits"),
        ((5, None), TypeError, "changes"),
    ],
    ids=lambda x: str(x)[:50],
)  # fmt: skip
def test_bad_changes_are_refused_by_name(arguments, error, text):
    with pytest.raises(error, match=text) as caught:
        make().reweighted(*arguments)
    assert isinstance(caught.value, DetdataError)


def test_with_a_stopping_rule_a_change_lies_within_an_epoch():
    mixture = make(size=None, stop="first")
    with pytest.raises(ValueError, match="position"):
        mixture.reweighted(mixture.size, {"a": 2})
    assert mixture.reweighted(mixture.size - 1, {"a": 2}).counts(3) == mixture.counts(3)
    at = make().reweighted(10**6, {"a": 2})  # with a size, in any epoch of the run
    assert at.counts(0, 10_000) == make().counts(0, 10_000)


def test_where_limits_end_the_mixture_it_says_so():
    mixture = make(limits={"a": 2, "b": 4})
    assert mixture.take(np.arange(100)).size == 100
    assert mixture.counts(40, 1) == {"a": 20, "b": 120}
    for call in (lambda: mixture.take(41, 1), lambda: mixture.counts(41, 1), lambda: mixture.passes(0, 2)):
        with pytest.raises(ValueError, match="ends after draw 140"):
            call()
    assert mixture.find_all(0, 2).size == 0
    assert mixture.find(mixture.take(39, 1), 1) <= 39
    later = mixture.reweighted(140, {"c": 1}, add={"c": Shuffle(7)})  # goes on where it would have ended
    assert later.counts(0, 3) == {"a": 20, "b": 120, "c": 160}


def test_what_changes_nothing_is_left_out():
    mixture = make()
    assert mixture.reweighted(10, {"a": 1}) == mixture == mixture.reweighted(10, {})
    assert mixture.reweighted(0, {"a": 2}) == make(weights={"a": 2, "b": 1})
    assert mixture.reweighted(20, {"a": 2}).reweighted(10, {}) == mixture  # later ones are replaced
    assert mixture.reweighted(10, {"a": 2}).reweighted(20, {"b": 3}) == make(changes=[(10, {"a": 2}), (20, {"b": 3.0})])
    assert make(weights={"b": 1, "a": 1}) == mixture
    assert make(size=None, stop=None) == make(size=None, stop="first") != make(size=None, stop="all")
    added = mixture.reweighted(10, {"c": Fraction(1, 2)}, add={"c": A})
    assert added == Mixture({**TWO, "c": A}, {**EVEN, "c": 0}, size=100, changes=[(10, {"c": 0.5})])
    assert added.spec()["changes"] == [[10, [["c", "1/2"]]]]


def test_sources_keep_their_ids_and_names():
    mixture = make().reweighted(10, {"c": 1}, add={"c": Subset(Shuffle(9), [8])})
    assert (mixture.names, mixture.id_bound, mixture.seed, mixture.stop) == (("a", "b", "c"), 49, 0, None)
    assert mixture.source_of([[0, 9], [10, 48]]).tolist() == [[0, 0], [1, 2]]
    assert mixture.source_of(40) == 2
    assert isinstance(mixture.source_of(40), np.int64)
    assert set(mixture.take(np.arange(10, 100)).tolist()) & set(range(40, 49)) == {48}
    with pytest.raises(IndexError, match="ids"):
        mixture.source_of(49)
    with pytest.raises(IndexError, match="ids"):
        mixture.find(41)


def test_agreement_ends_where_draws_differ():
    mixture = make()
    later = mixture.reweighted(150, {"b": 2}).reweighted(400, {"c": 1}, add={"c": A})
    assert later.agrees(mixture, 50, 1)
    assert mixture.agrees(later, 50, 1)
    assert not later.agrees(mixture, 51, 1)
    assert not later.agrees(mixture, 0, 2)
    assert later.agrees(later, 0, 10**6)
    for other in (make(seed=1), make(size=101), make(weights={"a": 2, "b": 1}), make(limits={"a": 50}), A,
                  Mixture({"a": A, "b": Shuffle(30, 3)}, EVEN, size=100)):  # fmt: skip
        assert not mixture.agrees(other, 5)
    first = make(size=None)
    changed = first.reweighted(5, {"b": 2})
    assert changed.agrees(first, 5)
    assert not changed.agrees(first, 5, 1)  # the change holds in each epoch


SPEC = json.loads(json.dumps(
    Mixture({"a": A, "b": B}, {"a": 0.5, "b": 1}, 3, 40, limits={"a": 9}, changes=[(7, {"b": 2, "a": 3})]).spec()
))  # fmt: skip
HOSTILE = [
    {"sources": []}, {"sources": {}}, {"sources": [["a"]]}, {"sources": [["a", SPEC["sources"][0][1]]] * 2},
    {"sources": [[1, SPEC["sources"][0][1]], SPEC["sources"][1]]}, {"sources": [["a", 5], SPEC["sources"][1]]},
    {"sources": [[["a"], 5], SPEC["sources"][1]]},
    {"weights": ["1/2"]}, {"weights": {"a": "1"}}, {"weights": [0.5, 1]}, {"weights": ["2/4", "1"]},
    {"weights": ["0", "0"]}, {"weights": ["9" * 10**6, "1"]}, {"weights": [None, "1"]},
    {"seed": "3"}, {"seed": -1}, {"size": None}, {"size": 2**63}, {"size": "first"}, {"stop": "first"}, {"stop": []},
    {"limits": {"a": 9}}, {"limits": [["a", 9], ["a", 9]]}, {"limits": [["c", 9]]}, {"limits": [["a", None]]},
    {"limits": [["a", 0]]}, {"limits": [[["a"], 9]]}, {"limits": [["b", 9], ["a", 9]]},
    {"changes": [[7, [["a", "3"], ["b", "2"], ["a", "3"]]]]}, {"changes": [[7, [["b", "2"], ["a", "3"]]]]},
    {"changes": [[0, [["a", "3"]]]]}, {"changes": [[7, []]]}, {"changes": [[7, [["a", "1/2"]]]]}, {"changes": [[7]]},
    {"changes": [[7, {"a": "3"}]]}, {"changes": [["7", [["a", "3"]]]]}, {"changes": [[True, [["a", "3"]]]]},
    {"changes": [[7, [["c", "3"]]]]}, {"changes": [[7, [["a", 3]]]]}, {"changes": [[2**63, [["a", "3"]]]]},
]  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: str(change)[:60])
def test_a_spec_that_stands_in_another_form_is_refused(change):
    assert from_spec(SPEC).spec() == SPEC
    with pytest.raises(DetdataError):
        from_spec({**SPEC, **change})


def test_a_mixture_carries_the_tables_of_its_sources():
    weighted = Weighted([1, 2, 3], 5, size=4)
    mixture = Mixture({"drawn": weighted, "a": A}, {"drawn": 1, "a": 1}, size=30)
    copy = pickle.loads(pickle.dumps(mixture.reweighted(9, {"a": 2})))

    assert copy.take(np.arange(9)).tolist() == mixture.take(np.arange(9)).tolist()
    with pytest.raises(ValueError, match="weights"):
        from_spec(mixture.spec())
