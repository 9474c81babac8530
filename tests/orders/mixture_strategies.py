"""Random mixtures, reweighted on the way, with limits and added sources, small enough to be walked draw by draw."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction

from hypothesis import assume, settings
from hypothesis import strategies as st

from detdata import Concat, Sequential, Shuffle
from detdata.orders.mixture import Mixture
from tests.orders.strategies import SEEDS

MANY = settings(max_examples=4 * settings.default.max_examples)  # two hundred, where no more are asked for
SOME = settings(max_examples=2 * settings.default.max_examples)
STOPS = ("first", "all", "all_once")

WEIGHTS = st.one_of(
    st.integers(0, 4), st.sampled_from([0.1, 0.25, 0.7, 1e-3, Fraction(1, 3), Fraction(2, 7), Fraction(1, 600)])
)


@st.composite
def sources(draw, largest=40, depth=0):
    """An order to draw from, whose ids all come; of depth 1 it may be a mixture."""
    kind = draw(st.sampled_from(["shuffle", "shuffle", "sequential", "concat", "mixture"]))
    n = draw(st.integers(1, largest))
    if kind == "mixture" and depth:
        return draw(mixtures(largest=10, depth=0))
    if kind == "concat":
        return Shuffle(Concat({"a": Shuffle(n, 1), "b": Sequential(2)}), 5)
    return Sequential(n) if kind == "sequential" else Shuffle(n, draw(st.integers(0, 3)))


@st.composite
def weights_of(draw, names):
    """A weight for each name, one of them above 0."""
    weights = {name: draw(WEIGHTS) for name in names}
    if not any(weights.values()):
        weights[draw(st.sampled_from(names))] = 1
    return weights


@st.composite
def mixtures(draw, largest=40, depth=0, rules=("size", *STOPS), changes=3):
    """A mixture of 1 … 5 sources, reweighted up to three times."""
    made = {f"s{index}": draw(sources(largest, depth)) for index in range(draw(st.integers(1, 4)))}
    rule = draw(st.sampled_from(rules))
    size = draw(st.integers(1, 150)) if rule == "size" else None
    limits = draw(st.dictionaries(st.sampled_from(list(made)), st.integers(1, 4))) if rule in ("size", "all") else {}
    weights, seed = draw(weights_of(list(made))), draw(SEEDS)
    stop = None if rule == "size" else rule
    try:
        mixture = Mixture(made, weights, seed, size, stop, limits=limits)
    except ValueError:  # limits that end it before `size`
        mixture = Mixture(made, weights, seed, size, stop)
    for _ in range(draw(st.integers(0, changes))):
        with suppress(ValueError):  # no weight left, or an end before this position
            mixture = draw(changed(mixture))[1]
    assume(mixture.size <= 2000)  # with stop="all" and a rare source it may take long
    return mixture


@st.composite
def changed(draw, mixture):
    """(position, the mixture reweighted from there on). Raises ValueError where that can't be."""
    rule = mixture.spec()["stop"]
    position = draw(st.integers(0, 2 * mixture.size if rule is None else mixture.size - 1))
    new = f"s{len(mixture.names)}"
    add = {new: draw(sources(10))} if len(mixture.names) < 5 and draw(st.booleans()) else {}
    limits = {new: 2} if add and rule in {None, "all"} and draw(st.booleans()) else {}
    names = draw(st.lists(st.sampled_from([*mixture.names, *add]), unique=True))
    weights = {name: draw(WEIGHTS) for name in names}
    return position, mixture.reweighted(position, weights, add=add, limits=limits)
