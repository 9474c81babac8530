"""Blocks that processes share: each loaded once, within a number of bytes, whatever is killed, full or gone."""

import errno
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.corpora import shared_blocks
from detdata.corpora.shared_blocks import NEVER, BlockStore
from tests.corpora.slow_format import names

FORK = multiprocessing.get_context("fork")


def store_at(folder, limit=10_000, name="c"):
    store = BlockStore(str(folder), name, limit)
    store.begin(0)
    return store


def files(folder, name="c"):
    """{block: bytes} of what is stored."""
    return {int(file.name): file.stat().st_size for file in Path(folder, name).iterdir() if file.name.isdigit()}


def text(block, size=1000):
    return (b"%d." % block * size)[:size]


def get(store, block, when=1, size=1000):
    """Whether the block had to be loaded; its bytes are checked."""
    loaded = []
    buffer, shared = store.get(block, lambda: loaded.append(1) or text(block, size), when)
    assert bytes(buffer) == text(block, size)
    assert shared == (block in files(Path(store._folder).parent))
    return bool(loaded)


def test_a_block_is_loaded_by_one_and_mapped_by_the_others(tmp_path):
    one, other = store_at(tmp_path), store_at(tmp_path)
    assert [get(one, 3), get(other, 3), get(one, 3)] == [True, False, False]


def test_corpora_of_one_folder_do_not_meet(tmp_path):
    one, other = store_at(tmp_path, name="a"), store_at(tmp_path, name="b")
    assert bytes(one.get(1, lambda: b"one", 1)[0]) == b"one"
    assert bytes(other.get(1, lambda: b"other", 1)[0]) == b"other"


def test_what_is_mapped_stays_readable_when_its_file_has_gone(tmp_path):
    store = store_at(tmp_path, limit=1500)
    buffer, _ = store.get(1, lambda: text(1), 1)
    store.done([1])
    assert get(store, 2, when=5)
    assert files(tmp_path) == {2: 1000}
    assert bytes(buffer) == text(1)


def test_what_is_needed_last_goes_first_and_nothing_goes_for_what_is_needed_later(tmp_path):
    store = store_at(tmp_path, limit=3000)
    for block, when in ((1, 10), (2, 30), (3, 20)):
        get(store, block, when)
    get(store, 4, when=30)
    assert sorted(files(tmp_path)) == [1, 2, 3]
    get(store, 4, when=15)
    assert sorted(files(tmp_path)) == [1, 3, 4]
    store.done([1])
    get(store, 5, when=99)
    assert sorted(files(tmp_path)) == [3, 4, 5]


def test_what_an_earlier_pass_needed_goes_before_what_this_one_needs(tmp_path):
    store = store_at(tmp_path, limit=3000)
    for block in (1, 2):
        get(store, block, when=block)
    store.begin(10)
    get(store, 3, when=12)
    get(store, 4, when=500)
    assert set(files(tmp_path)) >= {3, 4}
    store.need([(1, 11)])  # no error for what has gone


def test_a_block_that_is_there_is_not_loaded_ahead_and_is_kept_for_its_new_turn(tmp_path):
    store = store_at(tmp_path, limit=2000)
    get(store, 1, when=1)
    store.done([1])
    assert store.load_ahead(1, pytest.fail, 7) == 0
    assert store.load_ahead(2, lambda: text(2), 8) == 1000
    get(store, 3, when=9)
    assert sorted(files(tmp_path)) == [1, 2]


def test_room_is_what_would_be_stored(tmp_path):
    store = store_at(tmp_path, limit=2000)
    store.begin(0)
    assert store.has_room(2000, 1)
    get(store, 1, when=5)
    get(store, 2, when=6)
    get(store, 3, when=7)  # finds out what is needed last
    assert not store.has_room(1000, 7)
    assert store.has_room(1000, 5)
    assert not store.has_room(3000, 0)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["get", "ahead", "done", "begin"]), st.integers(0, 9), st.integers(0, 30)),
        max_size=60,
    ),
    limit=st.integers(0, 5000),
)
def test_whatever_is_asked_it_gives_the_right_bytes_and_stays_under_its_limit(tmp_path_factory, steps, limit):
    folder = tmp_path_factory.mktemp("store")
    stores = [store_at(folder, limit), store_at(folder, limit)]
    number = 0
    for what, block, when in steps:
        store = stores[(block + when) % 2]
        size = 300 + 100 * block
        if what == "get":
            get(store, block, number + when, size)
        elif what == "ahead":
            store.load_ahead(block, lambda block=block, size=size: text(block, size), number + when)
        elif what == "done":
            store.done([block])
        else:
            number += 10
            for each in stores:
                each.begin(number)
        held = files(folder)
        assert sum(held.values()) <= limit
        assert stores[0]._read().total == sum(held.values())
        assert not list(Path(folder).glob("*/*.part"))
    assert not any(store.broken for store in stores)


# --- several at once --------------------------------------------------------------------------------------------------


def test_of_many_threads_and_processes_one_loads_and_the_others_wait(tmp_path):
    def work():
        store = BlockStore(str(tmp_path), "c", 10_000)

        def load():
            with (tmp_path / "log").open("a", encoding="ascii") as log:
                log.write("x")
            time.sleep(0.2)
            return text(1)

        threads = [threading.Thread(target=lambda: [store.get(1, load, 1)]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    store_at(tmp_path)
    processes = [FORK.Process(target=work) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "x"


def test_one_that_is_killed_while_it_loads_keeps_nobody_waiting(tmp_path):
    def work():
        store_at(tmp_path).get(1, lambda: (tmp_path / "begun").touch() or time.sleep(60), 1)

    process = FORK.Process(target=work)
    process.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    found = []
    waiting = threading.Thread(target=lambda: found.append(get(store_at(tmp_path), 1)))
    waiting.start()
    time.sleep(0.1)
    assert not found
    os.kill(process.pid, signal.SIGKILL)
    waiting.join(30)
    process.join(30)
    assert found == [True]
    assert files(tmp_path) == {1: 1000}


def test_half_a_file_of_one_that_was_killed_is_never_taken_for_a_block(tmp_path):
    store = store_at(tmp_path, limit=2500)
    (tmp_path / "c" / "1.part").write_bytes(b"half a block" * 1000)
    assert get(store, 1)
    (tmp_path / "c" / "2.part").write_bytes(bytes(2000))
    store.begin(1)
    assert not (tmp_path / "c" / "2.part").exists()
    assert store._read().total == 1000


def test_a_load_that_fails_raises_and_leaves_nothing(tmp_path):
    store = store_at(tmp_path)

    def fails():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        store.get(1, fails, 1)
    with pytest.raises(ValueError, match="broken"):
        store.load_ahead(1, fails, 1)
    assert names(tmp_path / "c") == ["state"]
    assert get(store, 1)


# --- folders and disks that fail --------------------------------------------------------------------------------------


def test_a_full_disk_costs_only_time(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("_reserve", "os.write"):
        folder = tmp_path / name.replace(".", "")
        folder.mkdir()
        store = store_at(folder)
        with monkeypatch.context() as patch:
            owner = shared_blocks if name == "_reserve" else shared_blocks.os
            patch.setattr(owner, name.rpartition(".")[2], full)
            buffer, shared = store.get(1, lambda: text(1), 1)
        assert (bytes(buffer), shared, store.broken) == (text(1), False, True)
        assert get(store, 1)
        assert get(store, 1)
        assert names(folder / "c") == ["state"]


@pytest.mark.parametrize("fault", ["missing", "file", "readonly"])
def test_a_folder_that_cannot_be_written_to_costs_only_time(tmp_path, fault):
    folder = tmp_path / "folder"
    if fault == "file":
        folder.write_text("not a folder")
    elif fault == "readonly":
        folder.mkdir(mode=0o500)
        if os.access(folder, os.W_OK):
            pytest.skip("this user may write anywhere")
    store = BlockStore(str(folder / "more" if fault == "file" else folder), "c", 10_000)
    if fault == "missing":
        store.begin(0)
        for file in (folder / "c").iterdir():
            file.unlink()
        (folder / "c").rmdir()
        assert store.load_ahead(9, lambda: text(9), 1) in (0, 1000)
    for _ in range(2):
        buffer, shared = store.get(1, lambda: text(1), 1)
        assert (bytes(buffer), shared) == (text(1), False)
    store.need([(1, 5)])
    store.done([1])
    store.begin(3)
    assert not store.has_room(1, 1)


def test_an_empty_block_and_one_that_is_over_the_limit_are_not_stored(tmp_path):
    store = store_at(tmp_path, limit=100)
    assert store.get(1, lambda: b"", 1) == (b"", False)
    assert get(store, 2, size=101)
    assert files(tmp_path) == {}
    assert not store.broken
    assert NEVER > 10**9
