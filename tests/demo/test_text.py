import sys
from types import ModuleType

import numpy as np
import pytest

import detdata
from detdata.demo.passages import Passages, windows
from detdata.demo.text import NoText, cut, read_text, split


def test_the_text_is_the_same_each_time_and_the_held_out_part_is_apart():
    text = read_text()
    train, held_out = split(text)

    assert np.array_equal(text, read_text())
    assert np.array_equal(np.concatenate([train, held_out]), text)
    assert len(held_out) == len(text) // 10


@pytest.mark.parametrize("topics", [None, {}, {"for": 3}, ["for"]])
def test_a_python_without_the_text_is_told_so(monkeypatch, topics):
    module = ModuleType("pydoc_data.topics")
    module.topics = topics
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", module)

    with pytest.raises(NoText, match="full standard library"):
        read_text()


def test_a_passage_shows_another_window_each_epoch_and_the_same_one_however_it_is_read():
    dataset = Passages(cut(split(read_text())[0], 32), context=16)
    plan = detdata.Plan(detdata.Shuffle(32), 8)

    def read(**how):
        loader = detdata.Loader(dataset, plan, detdata.Topology(), **how)
        return [[part.tolist() for part in batch] for batch in loader.until(8)]

    here = read()
    by_workers = read(num_workers=2, multiprocessing_context="fork")
    first, second = ({(id): x for b in half for id, x in zip(b[1], b[2], strict=True)} for half in (here[:4], here[4:]))

    assert here == by_workers
    assert [epoch for batch in here for epoch in batch[0]] == [0] * 32 + [1] * 32
    assert all(first[id] != second[id] for id in first)


def test_held_out_windows_stay_inside_the_text():
    text = np.arange(50, dtype=np.uint8)

    assert windows(text, count=3, context=49).tolist() == [list(range(50))] * 3
    with pytest.raises(TypeError, match="shorter than one window"):
        windows(text, count=1, context=50)


def test_too_many_samples_are_told():
    text = np.zeros(50, dtype=np.uint8)

    with pytest.raises(ValueError, match=r"50 bytes of text are fewer than samples = 51"):
        cut(text, 51)
    with pytest.raises(ValueError, match=r"10 passages have 5 bytes each, fewer than context \+ 1 = 6"):
        Passages(cut(text, 10), context=5)
