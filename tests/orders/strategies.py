"""Random orders, nested a few deep, small enough to be listed whole."""

from __future__ import annotations

from hypothesis import strategies as st

from detdata import BlockShuffle, Concat, Sequential, Shuffle, Subset

SEEDS = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1))
EPOCHS = st.one_of(st.integers(0, 3), st.integers(0, 2**63 - 1))


@st.composite
def splits(draw, total):
    """Block sizes that add up to `total`, zeros among them."""
    cuts = sorted(draw(st.lists(st.integers(0, total), max_size=6)))
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, total], strict=True)]


@st.composite
def orders(draw, largest=60, depth=3):
    """An order of 1 … `largest` samples (more where sources are put together)."""
    kind = draw(st.sampled_from(["sequential", "shuffle", "blocks", "shuffle of", "blocks of", "subset", "concat"]))
    if depth == 0 or kind in ("sequential", "shuffle", "blocks"):
        n = draw(st.integers(1, largest))
        if kind == "blocks":
            return BlockShuffle(draw(splits(n)), draw(SEEDS), draw(st.integers(1, 8)))
        return Sequential(n) if kind == "sequential" else Shuffle(n, draw(SEEDS))
    if kind == "concat":
        sources = draw(st.lists(orders(max(1, largest // 2), depth - 1), min_size=1, max_size=3))
        return Concat({f"s{index}": source for index, source in enumerate(sources)})
    inner = draw(orders(largest, depth - 1))
    if kind == "shuffle of":
        return Shuffle(inner, draw(SEEDS))
    if kind == "blocks of":
        return BlockShuffle(draw(splits(inner.size)), draw(SEEDS), draw(st.integers(1, 8)), order=inner)
    positions = draw(st.sets(st.integers(0, inner.size - 1), min_size=1))
    return Subset(inner, inner.take(sorted(positions), 0))
