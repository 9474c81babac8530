"""The recorded list of broken rows: found, written, read back, and refused where it is of something else."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, CorpusUnreadable, UnknownFormat, open_corpus
from detdata.corpora.skip_list import find_broken, write_skips
from tests.corpora.rows_of_lines import numbered, write_lines
from tests.corpora.test_skips import stand_in


def with_broken(path, count, broken):
    lines = [b"{ no json" if n in broken else json.dumps({"id": n}).encode() for n in range(count)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@settings(deadline=None, max_examples=25)
@given(broken=st.sets(st.integers(0, 29), max_size=29), start=st.integers(0, 30), stop=st.integers(0, 30))
def test_skipped_rows_are_filled_everywhere(tmp_path_factory, broken, start, stop):
    folder = tmp_path_factory.mktemp("skips")
    path = with_broken(folder / "a.jsonl", 30, broken)
    corpus = open_corpus(path, rows_per_block=4, index="no")
    found = find_broken(corpus)
    assert [row for row, _ in found] == sorted(broken)
    assert all(f"row {row % 4} of the block" in why for row, why in found)
    write_skips(folder / "skips.json", corpus.entries, [row for row, _ in found])

    good = open_corpus(path, rows_per_block=4, index="no", on_error="skip", skip_list=folder / "skips.json")

    expected = [{"id": stand_in(row, broken, 30)} for row in range(30)]
    assert len(good) == 30
    assert list(good) == expected
    assert list(good.read(start, stop)) == expected[start:stop]
    assert good.take(range(29, -1, -1)) == expected[::-1]
    assert [good[row] for row in range(-30, 0)] == expected
    assert good.take_columns(range(30)).to_pylist() == expected
    assert [4 * good.locate(row).block + good.locate(row).row for row in range(30)] == [row["id"] for row in expected]
    assert good.blocks_of(range(30)).tolist() == [row["id"] // 4 for row in expected]
    assert list(good.map(lambda row: row["id"])) == [row["id"] for row in expected]


def test_a_broken_row_that_is_not_on_the_list_is_an_error(tmp_path):
    path = with_broken(tmp_path / "a.jsonl", 10, {3, 7})
    corpus = open_corpus(path)
    write_skips(tmp_path / "skips.json", corpus.entries, [3])
    good = open_corpus(path, on_error="skip", skip_list=tmp_path / "skips.json")
    assert good[3] == {"id": 4}
    with pytest.raises(CorpusError, match="row 7 of the block"):
        good[7]


def test_what_cannot_be_read_at_all_is_no_broken_row(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", numbered(10))
    corpus = open_corpus(path, rows_per_block=2)
    path.unlink()
    with pytest.raises(CorpusUnreadable):
        find_broken(corpus)


def test_a_list_of_other_files_is_refused(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", numbered(10))
    write_skips(tmp_path / "skips.json", open_corpus(path).entries, [1])
    other = write_lines(tmp_path / "b.jsonl", numbered(11))
    with pytest.raises(CorpusError, match=r"skips\.json.*made? (it )?anew|skips\.json.*make it anew"):
        open_corpus(other, on_error="skip", skip_list=tmp_path / "skips.json")


def good_list(**change):
    return {"format": "detdata.skips/1", "rows": [10], "skip": [1, 5]} | change


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b"[" * 100_000, b"null", b"[]", b"{}", b'{"format": "detdata.skips/1"}',
        *(json.dumps(record).encode() for record in [
            good_list(format="detdata.skips/2"), good_list(format=1), good_list(more=1), good_list(rows=10),
            good_list(rows=[10.0]), good_list(rows=[True]), good_list(skip=5), good_list(skip="15"),
            good_list(skip=None), good_list(skip={"1": 2}),
            good_list(skip=[1.0]), good_list(skip=[True]), good_list(skip=[[1, 5]]), good_list(skip=[10]),
            good_list(skip=[-1]), good_list(skip=[2**70]), good_list(skip=[5, 1]), good_list(skip=[1, 1]),
            good_list(skip=list(range(10))),
        ]),
    ],
)  # fmt: skip
def test_a_list_that_is_none_is_an_error_that_names_it(tmp_path, content):
    path = write_lines(tmp_path / "a.jsonl", numbered(10))
    (tmp_path / "skips.json").write_bytes(content)
    with pytest.raises((CorpusError, UnknownFormat), match=r"skips\.json"):
        open_corpus(path, on_error="skip", skip_list=tmp_path / "skips.json")


def test_a_missing_list_is_an_error_before_anything_is_indexed(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", numbered(10))
    with pytest.raises(CorpusUnreadable, match=r"none\.json"):
        open_corpus(path, on_error="skip", skip_list=tmp_path / "none.json")


def test_a_list_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    entries = open_corpus(write_lines(tmp_path / "a.jsonl", numbered(10))).entries
    write_skips(tmp_path / "skips.json", entries, [1])
    before = (tmp_path / "skips.json").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_skips(tmp_path / "skips.json", entries, [1, 2])
    assert (tmp_path / "skips.json").read_bytes() == before
    assert not [name for name in tmp_path.iterdir() if name.suffix == ".tmp"]
