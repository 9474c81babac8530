"""Rows by number: what a corpus is to whoever holds it, in threads, in forks, and at sizes that cannot be listed."""

import multiprocessing
import threading

import numpy as np
import pytest

from detdata import BlockShuffle, CorpusError, CorpusUnreadable, open_corpus
from detdata.corpora.corpus import Corpus
from detdata.corpora.files import Identity
from detdata.corpora.layout import Layout
from detdata.corpora.opened import Entry
from detdata.corpora.protocol import Options, Outline
from tests.corpora.rows_of_lines import numbered, write_lines


@pytest.fixture
def corpus(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(50))
    write_lines(tmp_path / "b.jsonl", numbered(50, 50))
    return open_corpus(tmp_path, rows_per_block=8)


@pytest.mark.parametrize("row", [100, -101, 2**70, -(2**70), np.int64(100), np.uint64(2**63)])
def test_rows_outside(corpus, row):
    with pytest.raises(IndexError, match=str(row)):
        corpus[row]
    with pytest.raises(IndexError):
        corpus.take([row])
    with pytest.raises(IndexError):
        corpus.locate(row)


@pytest.mark.parametrize("bounds", [(-1, None), (0, 101), (101, None), (0, -1), (-(2**70), 5), (2**70, None)])
def test_bounds_of_read_outside_are_an_error_at_once(corpus, bounds):
    with pytest.raises(IndexError, match="outside 0 … 100"):
        corpus.read(*bounds)


def test_other_integers_and_slices(corpus):
    rows = numbered(100)
    assert corpus[np.int8(-1)] == corpus[np.uint64(99)] == corpus[-1] == rows[99]
    assert corpus[::-1] == rows[::-1]
    assert corpus[90:200] == rows[90:]
    assert corpus[5:5] == []
    assert corpus.take(np.array([[1, 2], [3, 4]])) == rows[1:5]
    assert corpus.take(()) == corpus.take(np.empty(0, np.uint8)) == []
    assert corpus.take(7) == [rows[7]]
    assert list(corpus.read(100)) == list(corpus.read(60, 40)) == []
    with pytest.raises(TypeError):
        corpus.take(np.empty(0))


class Arithmetic:
    """A format whose rows are their numbers, of files that hold nothing."""

    name = "arithmetic"
    endings = ()
    scans = False
    random = None
    keeps = True
    outline_options = ()

    def open(self, file, outline, options):
        self.opened = file.name
        return self

    def load(self, block):
        return b"x"

    def view(self, block, buffer):
        return Block(self.opened, block)


class Block:
    def __init__(self, *place):
        self.place = place

    def take(self, rows):
        return [(*self.place, row) for row in rows]


class Nothing:
    path = None

    def __init__(self, name):
        self.name = name

    def identity(self):
        return Identity(0, "")

    def read(self, start, length):
        return b""

    def fresh(self):
        return self


def test_two_to_the_forty_rows_are_arithmetic():
    sizes = [np.full(1024, 2**29), np.array([0, 5, 0]), np.full(1024, 2**29)]
    entries = [Entry(Nothing(f"f{n}"), Outline(block_sizes=size), Identity(0, "")) for n, size in enumerate(sizes)]
    corpus = Corpus(Arithmetic(), entries, Options(), cache_bytes=1 << 20)
    assert len(corpus) == 2**40 + 5
    assert corpus[2**39 - 1] == ("f0", 1023, 2**29 - 1)
    assert corpus[2**39] == ("f1", 1, 0)
    assert corpus.take([2**40 + 4, 2**39 + 5, 2**39 + 4]) == [("f2", 1023, 2**29 - 1), ("f2", 0, 0), ("f1", 1, 4)]
    assert next(corpus.read(2**40)) == ("f2", 1023, 2**29 - 5)
    assert tuple(corpus.locate(2**40)) == ("f2", 1023, 2**29 - 5)
    ids = BlockShuffle(corpus.block_sizes, 1).take(np.arange(2**40, 2**40 + 5))
    assert len(corpus.take(ids)) == 5


def test_a_sum_of_rows_beyond_all_bounds_is_refused():
    with pytest.raises(CorpusError, match="rows"):
        Layout.of([np.array([2**62]), np.array([2**62])])


def test_an_error_in_map_names_the_row_that_was_asked_for(corpus):
    halves = corpus.map(lambda row: 100 // (row["id"] % 50)).map(str)
    for call, row in [
        (lambda: halves[50], 50),
        (lambda: halves.take([3, 0, 50]), 0),
        (lambda: list(halves.read(40)), 50),
    ]:
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        assert caught.value.__notes__ == [f"in a function given to map(), at row {row} of the corpus"]
    assert halves.take([1, 51]) == ["100", "100"]
    assert corpus.map(str).map(len)[0] == len(str(corpus[0]))


def test_an_error_says_file_block_and_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n' * 9 + "[]\n" + '{"id": 1}\n')
    corpus = open_corpus(path, rows_per_block=4)
    with pytest.raises(CorpusError, match=r"a\.jsonl, block 2, row 1 of the block: ") as caught:
        list(corpus)
    assert (caught.value.file, caught.value.block, caught.value.row) == tuple(corpus.locate(9))


def test_reading_on_after_a_change_is_an_error(corpus, tmp_path):
    rows = corpus.read(0)
    assert next(rows) == numbered(1)[0]
    write_lines(tmp_path / "a.jsonl", numbered(50, 1000))
    with pytest.raises(CorpusUnreadable, match="has changed"):
        list(rows)


def child(corpus, connection):
    connection.send([row["id"] for row in corpus.take(range(99, -1, -1))])


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_forks_beside_threads_that_read(tmp_path):
    """A thread holds the locks of the cache most of the time; a child must not wait for it."""
    for number in range(100):
        write_lines(tmp_path / f"{number:03}.jsonl", [{"id": number}])
    corpus = open_corpus(tmp_path, cache_bytes=0)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            corpus.take(range(100))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(10):
            here, there = context.Pipe()
            process = context.Process(target=child, args=(corpus, there))
            process.start()
            assert here.poll(60), "the child hangs"
            assert here.recv() == list(range(99, -1, -1))
            process.join(10)
            assert process.exitcode == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_reading_forward_loads_a_block_once_whatever_else_is_read(corpus):
    small = open_corpus(corpus.files, rows_per_block=8, cache_bytes=0)
    before = small.blocks_loaded
    rows = small.read(0, 8)
    next(rows)
    small.take([90])
    list(rows)
    assert small.blocks_loaded - before == 2


def test_a_version_is_that_of_the_files_and_of_their_order(tmp_path):
    paths = [write_lines(tmp_path / f"{n}.jsonl", numbered(3, n)) for n in range(3)]
    version = open_corpus(tmp_path).version()
    assert version == open_corpus(paths).version() == open_corpus(tmp_path, rows_per_block=1).version()
    assert version == open_corpus(tmp_path).map(str).version()
    orders = {open_corpus([paths[i] for i in order]).version() for order in [(0, 1, 2), (0, 2, 1), (2, 1, 0), (1, 0)]}
    assert len(orders) == 4
    corpus = open_corpus(tmp_path)
    write_lines(paths[1], numbered(3, 7))
    with pytest.raises(CorpusUnreadable, match="has changed"):
        corpus.version()
    assert open_corpus(tmp_path).version() != version
