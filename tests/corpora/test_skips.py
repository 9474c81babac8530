"""Which row stands in for a skipped one: the rule, against walking forward row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.corpora.skips import Skips


def stand_in(row, skipped, rows):
    """Walk on from the row, and from the end to the beginning: the oracle."""
    while row in skipped:
        row = (row + 1) % rows
    return row


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 30).flatmap(lambda rows: st.tuples(st.just(rows), st.sets(st.integers(0, rows - 1)))))
def test_the_next_row_that_is_not_skipped_stands_in(case):
    rows, skipped = case
    if len(skipped) == rows:
        with pytest.raises(ValueError, match="none is left"):
            Skips.of(sorted(skipped), rows)
        return

    skips = Skips.of(sorted(skipped), rows)

    expected = [stand_in(row, skipped, rows) for row in range(rows)]
    assert skips.fill(np.arange(rows)).tolist() == expected
    assert skips.fill(np.arange(rows)[::-1]).tolist() == expected[::-1]
    assert skips.fill(np.arange(0)).tolist() == []


def test_a_million_skips_of_a_huge_corpus():
    rows = 2**40
    ids = np.arange(rows - 10**6, rows)
    skips = Skips.of(ids, rows)
    assert skips.fill(np.array([0, rows - 10**6 - 1, rows - 10**6, rows - 1])).tolist() == [0, rows - 10**6 - 1, 0, 0]
    both = Skips.of(np.concatenate([np.arange(1000), ids]), rows)
    assert both.fill(np.array([0, 999, 1000, rows - 1])).tolist() == [1000, 1000, 1000, 1000]


@pytest.mark.parametrize(
    ("ids", "error"), [([10], IndexError), ([-1], IndexError), ([1.0], TypeError), ([True], TypeError)]
)
def test_numbers_outside_are_refused(ids, error):
    with pytest.raises(error):
        Skips.of(ids, 10)
