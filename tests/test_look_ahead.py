"""What is told of the future is true: each block once for as long as it is needed, in time, to one process each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.look_ahead import LookAhead, look_ahead
from detdata.plans.shards import Part
from detdata.reading import pack, unpack

ROWS = 10  # of a block


class Dataset:
    def __init__(self, answer=True):
        self.answer = answer
        self.asked = []

    def blocks_of(self, ids):
        return ids // ROWS

    def expect(self, notice):
        self.asked.append(notice)
        return self.answer


def walk(blocks, readers, in_flight=1):
    """Notices for requests that need these blocks."""
    ahead = LookAhead(Dataset(), readers, in_flight)
    parts = [Part(step, 0, np.array(needed, dtype=np.int64) * ROWS, 0) for step, needed in enumerate(blocks)]
    found = list(ahead.walk(iter(parts)))
    assert [part for part, _ in found] == parts
    return [notice for _, notice in found]


NEEDS = st.lists(st.sets(st.integers(0, 30), min_size=1, max_size=6).map(sorted), min_size=1, max_size=40)


@given(blocks=NEEDS, readers=st.integers(0, 4), in_flight=st.integers(1, 8))
def test_each_block_is_announced_to_one_process_in_time_and_is_done_when_nobody_is_at_it(blocks, readers, in_flight):
    turns = max(1, readers)
    held = set()
    for number, notice in enumerate(walk(blocks, readers, in_flight)):
        if notice is not None:
            assert (notice.number, notice.first, notice.readers) == (number, 0, readers)
            for block in notice.done:
                assert all(block not in needed for needed in blocks[max(0, number + 1 - turns) : number + 1])
                held.discard(block)
            for block, when in notice.loads:
                assert block in blocks[when]
                assert block not in held
                held.add(block)
        if number + 1 >= turns:
            assert held >= set(blocks[number + 1 - turns])


@pytest.mark.parametrize("readers", [0, 1, 2, 3])
def test_every_process_hears_of_the_pass_with_its_first_request(readers):
    notices = walk([[0]] * 10, readers)
    assert all(notice is not None for notice in notices[: max(1, readers)])
    assert all(notice is None for notice in notices[max(1, readers) + 1 :])


def test_what_is_needed_at_once_is_spread_over_all_processes():
    notices = walk([list(range(12))] * 8, 3)
    assert [len(notice.loads) for notice in notices[:3]] == [4, 4, 4]


def test_a_block_that_is_needed_again_later_is_announced_again():
    notices = walk([[1], *[[2]] * 20_000, [1]], 0)
    assert sum(block == 1 for notice in notices if notice for block, _ in notice.loads) == 2


def test_how_far_is_looked_is_bounded():
    seen = []

    def parts():
        for step in range(20_000):
            seen.append(step)
            yield Part(step, 0, np.arange(step * 500, step * 500 + 500, dtype=np.int64), 0)

    walked = LookAhead(Dataset(), 0, 1).walk(parts())
    next(walked)
    assert len(seen) == 2  # the first batch waits for nothing
    for _ in range(1000):
        next(walked)
    assert len(seen) < 1000 + 100  # 4,096 blocks of 50 a batch


def test_passes_are_told_apart_and_one_that_was_broken_off_leaves_nothing():
    ahead = LookAhead(Dataset(), 0, 1)
    parts = [Part(step, 0, np.array([step * ROWS]), 0) for step in range(5)]
    first = ahead.walk(iter(parts))
    assert [next(first)[1].first for _ in range(2)] == [0, 0]
    notices = [notice for _, notice in ahead.walk(iter(parts)) if notice]
    assert {notice.first for notice in notices} == {2}
    assert [notice.number for notice in notices] == [2, 3, 4, 5, 6]


def test_a_dataset_without_blocks_or_without_use_for_them_is_left_alone():
    assert look_ahead([1, 2], 0, 1) is None
    assert look_ahead(Dataset(answer=False), 2, 4) is None
    dataset = Dataset()
    assert look_ahead(dataset, 2, 4) is not None
    assert [(notice.number, notice.loads, notice.done) for notice in dataset.asked] == [(-1, (), ())]


def test_a_request_is_a_plain_tuple_with_the_notice_at_its_end():
    part = Part(3, 1, np.array([5, 6]), 0)
    (notice,) = walk([[1]], 0)
    assert type(pack(part)) is tuple
    assert (pack(part)[-1], pack(part, notice)[-1]) == (None, notice)
    assert unpack(pack(part, notice)).ids.tolist() == [5, 6]
