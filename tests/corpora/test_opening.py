"""Which files a corpus is of, whatever their names, places and kinds are."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from detdata import CorpusError, CorpusUnreadable, open_corpus
from detdata.corpora.jsonl import JsonLines
from tests.corpora.rows_of_lines import numbered, write_lines
from tests.sources import ROOT

DESCRIPTORS = Path("/proc/self/fd")


def ids(corpus):
    return [row["id"] for row in corpus]


def test_a_relative_path_stays_that_of_its_file_after_chdir(tmp_path, monkeypatch):
    write_lines(tmp_path / "here" / "a.jsonl", numbered(3))
    (tmp_path / "there").mkdir()
    write_lines(tmp_path / "there" / "a.jsonl", numbered(3, 100))
    monkeypatch.chdir(tmp_path / "here")
    corpus = open_corpus("a.jsonl", index="no")
    packed = pickle.dumps(corpus)
    version = corpus.version()

    monkeypatch.chdir(tmp_path / "there")

    assert corpus.files == ("a.jsonl",)  # as it was given
    assert ids(corpus) == [0, 1, 2]
    assert ids(pickle.loads(packed)) == [0, 1, 2]
    assert corpus.version() == version
    code = "import pickle, sys; print([row['id'] for row in pickle.load(sys.stdin.buffer)])"
    run = subprocess.run([sys.executable, "-c", code], input=packed, capture_output=True, cwd="/", check=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert run.stdout.decode().strip() == "[0, 1, 2]"


def test_files_of_a_folder_come_in_the_order_of_their_bytes(tmp_path):
    names = ["b.jsonl", "B.jsonl", "a/z.jsonl", "a.jsonl", "é.jsonl", "a b.jsonl", "10.jsonl", "9.jsonl"]
    for number, name in enumerate(names):
        write_lines(tmp_path / name, [{"id": number}])
    (tmp_path / "notes.md").write_text("no data")
    write_lines(tmp_path / ".hidden.jsonl", [{"id": -1}])
    write_lines(tmp_path / ".git" / "x.jsonl", [{"id": -1}])
    ordered = sorted(names, key=lambda name: os.fsencode(str(tmp_path / name)))

    for _ in range(2):  # the second time there are indexes beside them
        assert ids(open_corpus(tmp_path)) == [names.index(name) for name in ordered]


def test_a_list_keeps_its_order_and_may_repeat_a_file(tmp_path):
    one, other = write_lines(tmp_path / "1.jsonl", numbered(2)), write_lines(tmp_path / "2.jsonl", numbered(2, 10))

    corpus = open_corpus([other, str(one), other])

    assert ids(corpus) == [10, 11, 0, 1, 10, 11]
    assert corpus.version() != open_corpus([one, other]).version()
    assert corpus.version() != open_corpus([other, one]).version()


@pytest.mark.parametrize("name", ["a[1].jsonl", "what?.jsonl", "*.jsonl", b"\xff\xfe.jsonl", "new\nline.jsonl"])
def test_odd_names(tmp_path, name):
    path = tmp_path / os.fsdecode(name)
    folder = tmp_path / (path.name + ".d")
    folder.mkdir()
    for place in (path, folder / path.name):
        place.write_text('{"id": 5}\nno json\n')

    for given in (path, str(path), folder):
        for _ in range(2):
            corpus = open_corpus(given)
            assert corpus[0] == {"id": 5}
            assert pickle.loads(pickle.dumps(corpus))[0] == {"id": 5}
            with pytest.raises(CorpusError) as caught:
                corpus[1]
            assert str(caught.value).isprintable()
    assert corpus.version()


def test_a_glob_that_crosses_folders_takes_no_index_and_no_folder(tmp_path):
    write_lines(tmp_path / "a" / "x.jsonl", numbered(2))
    write_lines(tmp_path / "b" / "y.jsonl", numbered(2, 2))
    (tmp_path / "c.jsonl").mkdir()
    for _ in range(2):
        assert ids(open_corpus(str(tmp_path / "**" / "*.jsonl*"))) == [0, 1, 2, 3]


def test_links_are_followed(tmp_path):
    write_lines(tmp_path / "blobs" / "1234", numbered(2))
    write_lines(tmp_path / "more" / "b.jsonl", numbered(2, 2))
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl").symlink_to("../blobs/1234")
    (data / "linked").symlink_to("../more")

    assert ids(open_corpus(data)) == [0, 1, 2, 3]
    assert open_corpus(data).version()

    (data / "linked" / "loop").symlink_to("../data")
    with pytest.raises(CorpusError, match="loop"):
        open_corpus(data)


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(2))
    (tmp_path / "b.jsonl").symlink_to("gone")
    with pytest.raises(CorpusUnreadable, match=r"b\.jsonl"):
        open_corpus(tmp_path)


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(2))
    os.mkfifo(tmp_path / "b.jsonl")
    for given in (tmp_path, tmp_path / "b.jsonl", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]):
        with pytest.raises(CorpusUnreadable, match=r"b\.jsonl.*no regular file"):
            open_corpus(given)


def test_no_files_and_no_rows(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="no file to open"):
        open_corpus([])
    with pytest.raises(ValueError, match="empty"):
        open_corpus("")
    with pytest.raises(CorpusError, match=r"empty\.jsonl.*empty"):
        open_corpus(tmp_path / "empty.jsonl")
    with pytest.raises(CorpusError, match="no file of a known format"):
        open_corpus(tmp_path / "folder")
    with pytest.raises(CorpusError, match="matches no file"):
        open_corpus(str(tmp_path / "*.nothing"))
    with pytest.raises(CorpusUnreadable, match="no such file"):
        open_corpus(tmp_path / "none.jsonl")
    with pytest.raises(CorpusUnreadable, match="no such file"):
        open_corpus(tmp_path / "no such folder" / "none.jsonl")


def test_a_folder_of_several_formats_wants_to_be_told(tmp_path):
    write_lines(tmp_path / "a.jsonl", numbered(2))
    (tmp_path / "b.txt").write_text("hello\n")
    with pytest.raises(ValueError, match=r"jsonl .*text .*format="):
        open_corpus(tmp_path)
    assert ids(open_corpus(tmp_path, format="jsonl")) == [0, 1]
    assert open_corpus(tmp_path, format="text").take([0]) == [{"text": "hello"}]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"paths": None}, TypeError), ({"paths": 5}, TypeError), ({"paths": [5]}, TypeError),
        ({"paths": b"a.jsonl"}, TypeError), ({"paths": [b"a.jsonl"]}, TypeError), ({"paths": "a\0.jsonl"}, ValueError),
        ({"format": "nothing"}, ValueError), ({"format": 5}, TypeError), ({"format": JsonLines}, TypeError),
        ({"columns": "id"}, TypeError), ({"columns": []}, ValueError), ({"columns": ["id", "id"]}, ValueError),
        ({"columns": 5}, TypeError),
        ({"seq_len": 0}, ValueError), ({"seq_len": True}, TypeError), ({"dtype": 7.5}, TypeError),
        ({"rows_per_block": 0}, ValueError), ({"rows_per_block": 2.0}, TypeError), ({"cache_bytes": -1}, ValueError),
        ({"index": "here"}, ValueError), ({"index": ["no"]}, ValueError), ({"index_folder": 5}, TypeError),
        ({"on_error": "ignore"}, ValueError), ({"on_error": []}, ValueError), ({"on_error": "skip"}, ValueError),
        ({"skip_list": "x"}, ValueError), ({"nothing": 1}, TypeError),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_is_read(tmp_path, monkeypatch, arguments, error):
    path = write_lines(tmp_path / "a.jsonl", numbered(2))
    monkeypatch.setattr(JsonLines, "outline", None)
    with pytest.raises(error) as caught:
        open_corpus(**{"paths": path, **arguments})
    assert "Nonetype" not in str(caught.value)
    assert type(caught.value).__module__.startswith("detdata")


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="counts open files by /proc")
def test_many_files_are_not_all_open(tmp_path):
    rows = numbered(300)
    for row in rows:
        write_lines(tmp_path / f"{row['id']:05}.jsonl", [row])
    before = len(list(DESCRIPTORS.iterdir()))

    for index in ("no", "beside", "beside"):
        corpus = open_corpus(tmp_path, index=index)
        assert len(list(DESCRIPTORS.iterdir())) <= before + 2
        assert ids(corpus) == list(range(300))
        assert ids(corpus.take(range(299, -1, -1))) == list(range(299, -1, -1))
        assert len(list(DESCRIPTORS.iterdir())) <= before + 70
        del corpus
        assert len(list(DESCRIPTORS.iterdir())) <= before + 2


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="counts open files by /proc")
def test_many_mapped_files_are_not_all_open(tmp_path):
    for number in range(300):
        np.save(tmp_path / f"{number:03}.npy", np.array([[number, number + 1]]))
    before = len(list(DESCRIPTORS.iterdir()))
    corpus = open_corpus(tmp_path)
    for _ in range(2):
        rows = corpus.take(range(300))
        assert np.array_equal(np.stack(rows)[:, 0], range(300))
        assert len(list(DESCRIPTORS.iterdir())) <= before + 2 * 64 + 10
