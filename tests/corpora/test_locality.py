"""Corpora through Loader: each block is decoded about once an epoch, whoever reads, in an order that nobody changes."""

import tempfile
import time
from pathlib import Path

import pytest

from detdata import Plan, Shuffle, Topology
from tests.corpora.slow_format import BLOCKS, ROWS, expected, loader_of, loads, make, plan_of
from tests.torch_side import start_method


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """Folders of shared blocks go here."""
    folder = tmp_path_factory.mktemp("shared")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def stored(folder):
    """Bytes of all blocks that are shared now."""
    sizes = []
    for file in Path(folder).glob("detdata-blocks-*/*/*"):
        try:
            sizes.append(file.stat().st_size if file.name != "state" else 0)
        except FileNotFoundError:
            continue
    return sum(sizes)


# --- each block once, in one order ------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3, 4])
def test_each_block_is_decoded_about_once_an_epoch_and_the_order_is_the_plans(tmp_path, num_workers):
    corpus = make(tmp_path, seconds=0.003)
    loader = loader_of(corpus, num_workers=num_workers)
    assert list(loader) == expected(loader.plan)
    done = loads(tmp_path)
    assert len({block for _, block in done}) == BLOCKS
    assert len(done) <= 1.2 * BLOCKS
    assert loader.blocks_loaded == len(done)
    if num_workers > 1:
        assert len({process for process, _ in done}) > 1  # the work is shared


def test_blocks_are_loaded_in_the_order_of_their_need_before_they_are_asked_for(tmp_path):
    corpus = make(tmp_path, seconds=0.002)
    loader = loader_of(corpus)
    window = 4 * ROWS
    for number, _ in enumerate(loader):
        if (number + 1) * 16 == window:
            time.sleep(0.1)  # a training step, in which the next window's blocks are loaded
            break
    loaded = [block for _, block in loads(tmp_path)]
    first, second = loader.plan.order.take(range(window)), loader.plan.order.take(range(window, 2 * window))
    assert set(loaded[:4]) == set(corpus.blocks_of(first).tolist())
    assert set(loaded[4:8]) == set(corpus.blocks_of(second).tolist())


@pytest.mark.parametrize("batch", [1, 7, 200, 960])
@pytest.mark.parametrize("window", [1, 5, 24])
def test_any_window_and_batch(tmp_path, window, batch):
    corpus = make(tmp_path)
    loader = loader_of(corpus, plan_of(corpus, window, batch), 2)
    assert list(loader) == expected(loader.plan)
    assert len(loads(tmp_path)) <= 1.2 * BLOCKS


def test_a_full_shuffle_gives_its_order_too(tmp_path):
    corpus = make(tmp_path)
    loader = loader_of(corpus, Plan(Shuffle(len(corpus), 1), 16), 2)
    assert list(loader) == expected(loader.plan)


def test_ranks_together_give_the_plans_batches(tmp_path):
    corpus = make(tmp_path)
    plan = plan_of(corpus)
    parts = [list(loader_of(corpus, plan, 2, topology=Topology(rank, 2), micro_steps=2)) for rank in range(2)]
    for step in range(plan.steps(0)):
        for micro in range(2):
            for rank in range(2):
                shard = plan.shard(step, rank, 2, micro, 2).ids.tolist()
                assert parts[rank][2 * step + micro] == shard


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_that_are_started_anew_share_too(tmp_path, method):
    corpus = make(tmp_path, seconds=0.003)
    loader = loader_of(corpus, num_workers=2, multiprocessing_context=start_method(method))
    assert list(loader) == expected(loader.plan)
    assert len(loads(tmp_path)) <= 1.2 * BLOCKS


def test_what_fits_is_decoded_once_for_all_epochs_and_resumes_are_right(tmp_path):
    corpus = make(tmp_path)
    loader = loader_of(corpus, num_workers=2, persistent_workers=True)
    steps = loader.plan.steps(0)
    for epoch in range(3):
        assert list(loader) == expected(loader.plan, epoch * steps, (epoch + 1) * steps)
    assert loader.blocks_loaded <= 1.2 * BLOCKS
    loader.resume(16 * 20)
    for _ in zip(range(5), loader, strict=False):
        pass
    loader.resume(16 * (steps + 7))
    assert list(loader) == expected(loader.plan, steps + 7, 2 * steps)
    assert list(loader.until(4 * steps)) == expected(loader.plan, 2 * steps, 4 * steps)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_resume_in_mid_epoch_reads_only_what_it_needs(tmp_path, num_workers):
    corpus = make(tmp_path)
    loader = loader_of(corpus, num_workers=num_workers)
    steps = loader.plan.steps(0)
    loader.resume(16 * (steps - 10))
    assert list(loader) == expected(loader.plan, steps - 10)
    assert len(loads(tmp_path)) <= 5


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache_bytes", [0, 30_000, 100_000, 140_000, 10**7])
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_cache_of_any_size_gives_the_same_and_is_never_passed(tmp_path, temporary, cache_bytes, num_workers):
    corpus = make(tmp_path, width=400, cache_bytes=cache_bytes)  # 16,000 bytes a block
    loader = loader_of(corpus, num_workers=num_workers)
    most, got = 0, []
    for batch in loader:
        got.append(batch)
        most = max(most, stored(temporary))
    assert got == expected(loader.plan)
    assert most <= cache_bytes * num_workers / 2
    if cache_bytes >= 100_000:  # a window and a half: there is hardly room for the next one beside it
        assert len(loads(tmp_path)) <= (1.2 if cache_bytes >= 10**6 else 2) * BLOCKS
    if num_workers == 0:
        assert corpus._process().blocks._cache.nbytes <= max(cache_bytes, 16_000)


def test_a_cache_that_is_smaller_than_a_window_still_spares_loads(tmp_path):
    corpus = make(tmp_path, width=400, cache_bytes=3 * 16_000)
    loader = loader_of(corpus)
    assert list(loader) == expected(loader.plan)
    asked = sum(len(set(corpus.blocks_of(batch).tolist())) for batch in expected(loader.plan))
    assert len(loads(tmp_path)) < 0.6 * asked
