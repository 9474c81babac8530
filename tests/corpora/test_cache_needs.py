"""The cache of blocks with a known future: what is needed soonest stays, and nothing is lost just before its turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.corpora.cache import BlockCache

SIZE = 10_000


def use(cache, block):
    """Whether the block had to be loaded."""
    loaded = []
    cache.get(block, lambda: (bytes(SIZE), loaded.append(1) or "rows"))
    return bool(loaded)


def held(cache, blocks=range(20)):
    return [block for block in blocks if block in cache]


def test_a_block_that_nobody_needs_goes_first_however_lately_it_was_used():
    cache = BlockCache(3 * SIZE)
    cache.need([(0, 5), (1, 6)])
    for block in (0, 1, 7, 8):
        use(cache, block)
    assert held(cache) == [0, 1, 8]


def test_among_needed_blocks_the_one_that_is_needed_last_goes_even_if_it_is_the_newcomer():
    cache = BlockCache(2 * SIZE)
    cache.need([(0, 5), (1, 9), (2, 6), (3, 10)])
    for block in (0, 1, 2):
        use(cache, block)
    assert held(cache) == [0, 2]
    use(cache, 3)
    assert held(cache) == [0, 2]


def test_a_cache_that_is_smaller_than_what_each_batch_needs_still_keeps_all_it_can():
    cache = BlockCache(3 * SIZE)
    cache.need((block, 0) for block in range(5))
    loads = sum(use(cache, block) for _ in range(10) for block in range(5))
    assert loads <= 5 + 9 * 3  # least recently used first would load all 50


def test_blocks_that_are_done_stay_until_there_is_need_of_their_room():
    cache = BlockCache(2 * SIZE)
    cache.need([(0, 1), (1, 2)])
    use(cache, 0)
    use(cache, 1)
    cache.done([0])
    assert held(cache) == [0, 1]
    use(cache, 2)
    assert held(cache) == [1, 2]
    cache.done(None)
    use(cache, 3)
    assert held(cache) == [2, 3]


def test_what_is_forgotten_is_gone_and_its_bytes_with_it():
    cache = BlockCache(2 * SIZE)
    use(cache, 0)
    use(cache, 1)
    cache.forget([1, 5])
    assert (held(cache), cache.nbytes) == ([0], SIZE)


def test_there_is_room_for_what_is_needed_before_something_that_is_held():
    cache = BlockCache(2 * SIZE)
    cache.need([(0, 5), (1, 9)])
    use(cache, 0)
    assert cache.has_room(SIZE, 100)
    use(cache, 1)
    assert not cache.has_room(SIZE, 9)
    assert cache.has_room(SIZE, 8)
    cache.done([0])
    assert cache.has_room(SIZE, 100)


@settings(max_examples=200, deadline=None)
@given(
    room=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from(["use", "need", "done", "forget"]), st.integers(0, 9)), max_size=80),
)
def test_under_any_announcements_it_stays_within_its_bytes_and_gives_what_was_loaded(room, steps):
    cache = BlockCache(room * SIZE)
    for number, (what, block) in enumerate(steps):
        if what == "use":
            assert cache.get(block, lambda block=block: (bytes(SIZE), f"rows of {block}")) == f"rows of {block}"
        elif what == "need":
            cache.need([(block, number)])
        elif what == "done":
            cache.done([block])
        else:
            cache.forget([block])
        assert cache.nbytes == SIZE * len(held(cache)) <= cache.limit
