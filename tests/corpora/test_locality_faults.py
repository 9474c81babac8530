"""Corpora in a Loader when folders fail, processes are killed, blocks are broken or datasets are wrapped."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter

import pytest

from detdata import BlockShuffle, Plan
from detdata.corpora.expecting import Blocks
from detdata.look_ahead import Notice
from tests.corpora.slow_format import BLOCKS, ROWS, Slow, expected, loader_of, loads, make, names, plan_of
from tests.sources import ROOT
from tests.torch_side import draw, global_streams


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """Folders of shared blocks go here."""
    folder = tmp_path_factory.mktemp("shared")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# --- folders ----------------------------------------------------------------------------------------------------------


def test_the_folder_is_private_and_goes_with_the_loader(tmp_path, temporary):
    loader = loader_of(make(tmp_path), num_workers=2)
    assert names(temporary) == []
    list(loader)
    (folder,) = temporary.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    del loader
    gc.collect()
    assert names(temporary) == []


@pytest.mark.parametrize("where", ["missing", "a file"])
def test_without_a_folder_for_it_nothing_is_shared_and_all_is_right(tmp_path, monkeypatch, where):
    place = tmp_path / "nowhere"
    if where == "a file":
        place.write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    for num_workers in (1, 2):
        loader = loader_of(make(tmp_path), num_workers=num_workers)
        assert list(loader) == expected(loader.plan)
        assert loader.blocks_loaded is None


def test_a_folder_that_goes_in_mid_epoch_costs_only_time(tmp_path, temporary):
    loader = loader_of(make(tmp_path), num_workers=2)
    got = []
    for batch in loader:
        got.append(batch)
        if len(got) == 10:
            (folder,) = temporary.iterdir()
            folder.rename(temporary / "moved")
    assert got == expected(loader.plan)


_KILLED = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[2]
from tests.corpora.slow_format import loader_of, make
loader = loader_of(make(sys.argv[1]), num_workers=2)
for batch in loader:
    break
print(os.path.basename(loader._requests.ahead._folder), flush=True)
if sys.argv[3] == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
"""


def start(folder, temporary, what):
    (folder / what).mkdir()
    command = [sys.executable, "-c", _KILLED, str(folder / what), str(temporary), what]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)


def test_folders_of_killed_processes_are_removed_by_the_next_and_those_of_living_ones_are_not(tmp_path, temporary):
    with start(tmp_path, temporary, "lives") as living, start(tmp_path, temporary, "dies") as dead:
        kept, left = living.stdout.readline().strip(), dead.stdout.readline().strip()
        assert dead.wait(60) == -signal.SIGKILL
        deadline = time.monotonic() + 60
        while left in names(temporary) and time.monotonic() < deadline:  # its workers end some seconds later
            loader = loader_of(make(tmp_path), num_workers=2)
            list(loader)
            del loader
            gc.collect()
            time.sleep(0.2)
        assert names(temporary) == [kept]
        living.stdin.close()
        assert living.wait(60) == 0
    assert names(temporary) == []


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_what_goes_wrong_ahead_is_raised_when_the_row_is_asked_for_and_not_before(tmp_path, num_workers):
    corpus = make(tmp_path)
    plan = plan_of(corpus)
    broken = int(corpus.blocks_of(plan.batch(30).ids)[0])
    first = next(s for s in range(plan.steps(0)) if broken in corpus.blocks_of(plan.batch(s).ids).tolist())
    loader = loader_of(make(tmp_path, broken=[broken]), plan, num_workers)
    got = []
    with pytest.raises(ValueError, match=f"block {broken} is broken"):
        got.extend(loader)  # keeps what came before the error
    assert got == expected(plan, 0, first)


def test_a_worker_that_is_killed_while_it_loads_leaves_the_next_pass_as_it_should_be(tmp_path):
    corpus = make(tmp_path, seconds=0.05)
    loader = loader_of(corpus, num_workers=2, prefetch_factor=4)
    with pytest.raises(RuntimeError, match=r"killed|exited unexpectedly"):
        for number, _ in enumerate(loader):
            if number == 3:
                os.kill(loads(tmp_path)[-1][0], signal.SIGKILL)
    done = loader.progress.global_step
    assert list(loader) == expected(loader.plan, done)
    before = len(loads(tmp_path))
    steps = loader.plan.steps(0)
    assert list(loader) == expected(loader.plan, steps, 2 * steps)
    assert len(loads(tmp_path)) - before <= 1.2 * BLOCKS


# --- threads and randomness -------------------------------------------------------------------------------------------


def ours():
    return [thread for thread in threading.enumerate() if thread.name == "detdata-blocks"]


def test_no_thread_is_there_at_a_fork_nor_when_nothing_is_left_to_load(tmp_path):
    corpus = make(tmp_path, seconds=0.02)
    loader = loader_of(corpus, plan_of(corpus, window=12))
    got = [next(iter(loader))]
    assert ours()
    child = os.fork()
    if child == 0:
        os._exit(len(ours()))
    assert os.waitpid(child, 0)[1] == 0
    assert not ours()
    got += list(loader)
    assert got == expected(loader.plan)
    for thread in ours():
        thread.join(30)
    assert not ours()


def test_a_process_ends_without_loading_all_that_was_announced(tmp_path):
    code = (
        "import sys\nfrom tests.corpora.slow_format import loader_of, make, plan_of\n"
        "corpus = make(sys.argv[1], blocks=400, rows=2, seconds=0.01)\n"
        "loader = loader_of(corpus, plan_of(corpus, window=200))\n"
        "for batch in loader:\n    break\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == 0
    assert len(loads(tmp_path)) < 200


def noisy(row):
    return row, draw("python", None), draw("numpy", None), draw("torch", None)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_random_numbers_of_rows_do_not_depend_on_who_loads_them(tmp_path, num_workers):
    corpus = make(tmp_path, seconds=0.001).map(noisy)
    before = global_streams()
    straight = list(loader_of(corpus))
    assert global_streams() == before
    assert list(loader_of(corpus, num_workers=num_workers)) == straight
    assert [[row for row, *_ in batch] for batch in straight] == expected(plan_of(corpus))


# --- other datasets ---------------------------------------------------------------------------------------------------


class Wrapped:
    """A dataset of a user's own over a corpus: every second row."""

    def __init__(self, corpus):
        self.corpus = corpus

    def __len__(self):
        return len(self.corpus) // 2

    def __getitems__(self, ids):
        return self.corpus.take([2 * id for id in ids])

    def blocks_of(self, ids):
        return self.corpus.blocks_of(2 * ids)

    def expect(self, notice):
        return self.corpus.expect(notice)


class Silent(Wrapped):
    blocks_of = expect = None


@pytest.mark.parametrize("kind", [Wrapped, Silent])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_around_a_corpus_hands_two_methods_on_or_does_without(tmp_path, kind, num_workers):
    dataset = kind(make(tmp_path, seconds=0.002))
    plan = Plan(BlockShuffle([ROWS // 2] * BLOCKS, 1, window=4), 16)
    loader = loader_of(dataset, plan, num_workers)
    assert list(loader) == [[2 * id for id in batch] for batch in expected(plan)]
    if kind is Wrapped:
        assert len(loads(tmp_path)) <= 1.2 * BLOCKS
    assert (loader.blocks_loaded is None) == (kind is Silent or num_workers == 0)


def test_two_loaders_at_once_over_one_corpus(tmp_path):
    corpus = make(tmp_path)
    for num_workers in (0, 2):
        one, other = (loader_of(corpus, plan_of(corpus, seed=seed), num_workers) for seed in (1, 2))
        pairs = list(zip(one, other, strict=True))
        assert [list(batches) for batches in zip(*pairs, strict=True)] == [expected(one.plan), expected(other.plan)]


def test_one_notice_for_two_corpora_never_mixes_their_rows(tmp_path, temporary):
    a = make(tmp_path, name="a.slow")
    b = make(tmp_path, name="b.slow", width=16)

    class Both(Wrapped):
        def __len__(self):
            return len(a)

        def __getitems__(self, ids):
            return list(zip(a.take(ids), b.take(ids), strict=True))

        def blocks_of(self, ids):
            return a.blocks_of(ids)

        def expect(self, notice):
            return a.expect(notice) and b.expect(notice)

    loader = loader_of(Both(a), plan_of(a), 2)
    assert list(loader) == [[(id, id) for id in batch] for batch in expected(loader.plan)]


@pytest.mark.parametrize("name", ["keeps", "shares"])
def test_a_format_that_only_maps_or_only_reads_is_left_alone(tmp_path, temporary, monkeypatch, name):
    monkeypatch.setattr(Slow, name, False, raising=False)
    loader = loader_of(make(tmp_path), num_workers=2)
    assert list(loader) == expected(loader.plan)
    assert (loader.blocks_loaded, names(temporary)) == (None, [])


def test_blocks_that_no_corpus_has_are_passed_over(tmp_path):
    corpus = make(tmp_path)
    blocks = Blocks(10_000, "c")
    source = corpus._process()
    plan = plan_of(corpus)
    for block in (10**9, -(10**9)):
        blocks.expect(source, Notice(None, 1, 0, 1, ((block, 3),), (5,)))
        blocks.rest()
    assert corpus.take(plan.batch(0).ids) == expected(plan, 0, 1)[0]
    assert Counter(block for _, block in loads(tmp_path)).most_common(1)[0][1] == 1


class ForksInLoad(Slow):
    name = "forks"

    def open(self, file, outline, options):
        shard = super().open(file, outline, options)
        load = shard.load

        def forking(block):
            if threading.current_thread() is threading.main_thread():
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
            return load(block)

        shard.load = forking
        return shard


def test_a_format_may_fork_while_it_loads(tmp_path):
    corpus = make(tmp_path, seconds=0.001, form=ForksInLoad())
    loader = loader_of(corpus)
    assert list(loader) == expected(loader.plan)
