"""The cache of blocks: within its bytes, each block loaded once, whatever threads do and whichever load fails."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.corpora.cache import BlockCache


@settings(deadline=None, max_examples=100)
@given(blocks=st.lists(st.integers(0, 9), max_size=60), room=st.integers(0, 6))
def test_it_holds_what_was_used_last(blocks, room):
    cache = BlockCache(room * 10_000)
    held = []  # the oracle: a list, the one used last at its end
    for block in blocks:
        loaded = []
        assert cache.get(block, lambda block=block, loaded=loaded: (bytes(10_000), loaded.append(1) or block)) == block
        assert bool(loaded) == (block not in held)
        held = [*(other for other in held if other != block), block][-max(1, room) :]
        assert [other for other in range(10) if other in cache] == sorted(held)
        assert cache.nbytes == 10_000 * len(held)


def test_one_load_for_many_threads():
    cache, loads, gate = BlockCache(10**6), [], threading.Event()

    def load():
        loads.append(1)
        gate.wait(10)
        return b"x", "rows"

    found = []
    threads = [threading.Thread(target=lambda: found.append(cache.get(1, load))) for _ in range(8)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert (found, len(loads), cache.loads) == (["rows"] * 8, 1, 1)


def test_a_load_that_fails_leaves_nobody_waiting():
    cache, first, gate = BlockCache(10**6), threading.Event(), threading.Event()

    def fails():
        first.set()
        gate.wait(10)
        raise ValueError("broken")

    results = []

    def ask(load):
        try:
            results.append(cache.get(1, load))
        except ValueError as error:
            results.append(str(error))

    threads = [threading.Thread(target=ask, args=(fails,))]
    threads[0].start()
    first.wait(10)
    threads += [threading.Thread(target=ask, args=(lambda: (b"x", "rows"),)) for _ in range(4)]
    for thread in threads[1:]:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sorted(results) == ["broken", *["rows"] * 4]
    assert cache.nbytes > 0


def test_a_buffer_that_is_none_is_an_error_and_the_block_can_be_asked_for_again():
    cache = BlockCache(10**6)
    with pytest.raises(TypeError):
        cache.get(1, lambda: (object(), "rows"))
    assert cache.get(1, lambda: (b"", "rows")) == "rows"
