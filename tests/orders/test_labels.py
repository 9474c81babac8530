"""Labels: groups are numbered as their labels rise, and members and groups find each other."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.orders.labels import GroupIndex, numbered


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30), st.data())
def test_members_and_groups_are_found(labels, data):
    ids = data.draw(st.none() | st.sets(st.integers(0, len(labels) - 1), min_size=1))
    used = range(len(labels)) if ids is None else sorted(ids)
    index = GroupIndex(np.array(labels), None if ids is None else list(ids))
    names = sorted({labels[id] for id in used})
    expected = [[id for id in used if labels[id] == name] for name in names]

    assert [len(mine) for mine in expected] == index.counts.tolist()
    for group, mine in enumerate(expected):
        assert mine == index.members(np.full(len(mine), group), np.arange(len(mine))).tolist()
    groups, ranks = index.find(np.arange(len(labels)))
    for id in range(len(labels)):
        assert (groups[id] >= 0) == (id in used)
        if id in used:
            assert expected[groups[id]][ranks[id]] == id


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint64, np.int64, ">i8"])
def test_labels_of_every_width_are_taken(kind):
    low, high = (0, np.iinfo(kind).max) if np.dtype(kind).kind == "u" else (np.iinfo(kind).min, np.iinfo(kind).max)
    labels = np.array([high, low, high, low + 1], dtype=kind)

    assert [part.tolist() for part in numbered(labels)] == [[2, 0, 2, 1], [1, 1, 2]]


def test_numbers_rise_with_labels():
    labels = (np.arange(1000) * 7919) % 997 * 10**6
    group, _ = numbered(labels)

    assert all(
        (one < other) == (a < b)
        for (one, a), (other, b) in pairwise(zip(labels.tolist(), group.tolist(), strict=True))
        if one != other
    )
