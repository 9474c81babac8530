"""Stores that know no conditions: in memory, and over plain HTTP."""

import functools
import http.server
import os
import pathlib
import threading

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from detdata import CorpusUnreadable, open_corpus
from detdata.corpora import remote_file, retrying
from detdata.corpora.remote import locate
from detdata.corpora.remote_file import ReadAhead, RemoteFile
from detdata.corpora.retrying import passes, retried, status

WHOLE = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(retrying, "PAUSE_S", 0.0)


@pytest.fixture
def url(tmp_path):
    url = f"memory://{tmp_path.name}/a"
    fsspec.filesystem("memory").pipe(url, WHOLE)
    return url


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("made", [WHOLE[::-1], WHOLE[:100], WHOLE + b"x", None])
def test_an_object_that_is_replaced_around_a_read(url, monkeypatch, when, made):
    file = RemoteFile(url)
    assert file.read(300, 10) == WHOLE[300:310]
    real = MemoryFileSystem.cat_file

    def change(self):
        self.store.pop(self._strip_protocol(url))
        if made is not None:
            self.pipe_file(url, made)

    def cat(self, path, start=None, end=None, **options):
        monkeypatch.setattr(MemoryFileSystem, "cat_file", real)
        if when == "before":
            change(self)
        data = real(self, path, start=start, end=end)
        if when == "after":
            change(self)
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat)
    with pytest.raises(CorpusUnreadable, match="deleted" if made is None else "has changed") as caught:
        file.read(300, 10)
    assert caught.value.file == url


@given(data=st.data())
def test_reading_ahead_gives_the_same_bytes(data):
    url = "memory://ahead/a"
    fsspec.filesystem("memory").pipe(url, WHOLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_file, "AHEAD", data.draw(st.integers(1, 6000)))
        patch.setattr(remote_file, "PART", data.draw(st.integers(50, 6000)))
        file = ReadAhead(RemoteFile(url))
        for start in data.draw(st.lists(st.integers(0, len(WHOLE)), max_size=20)):
            length = data.draw(st.integers(0, len(WHOLE) - start))
            assert file.read(start, length) == WHOLE[start : start + length]


def test_a_size_that_the_store_does_not_know(url, monkeypatch):
    real = MemoryFileSystem.info
    monkeypatch.setattr(MemoryFileSystem, "info", lambda self, path, **o: {**real(self, path, **o), "size": None})
    with pytest.raises(CorpusUnreadable, match="size is unknown"):
        RemoteFile(url).identity()


def test_a_folder_is_no_file(url):
    with pytest.raises(CorpusUnreadable, match="is a folder"):
        RemoteFile(url.removesuffix("/a")).read(0, 1)
    with pytest.raises(CorpusUnreadable, match="cannot be mapped"):
        RemoteFile(url).map()


class Http(http.server.SimpleHTTPRequestHandler):
    """Python's own server, which knows no ranges; the one below does."""

    def log_message(self, *arguments):
        pass


class Ranged(Http):
    def do_GET(self):
        data = pathlib.Path(self.translate_path(self.path)).read_bytes()
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        body = data[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def served(tmp_path, request):
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    handler = functools.partial(request.param, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        fsspec.get_filesystem_class("http").clear_instance_cache()


def lines(first):
    return "".join(f'{{"x": {number}}}\n' for number in range(first, first + 100))


@pytest.mark.parametrize("served", [Ranged], indirect=True)
def test_over_http(served, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(lines(100))
    corpus = open_corpus(f"{served}/a.jsonl", rows_per_block=10, index="no", cache_bytes=0)
    assert [row["x"] for row in corpus] == list(range(100, 200))
    path.write_text(lines(200))
    os.utime(path, (10**9, 10**9))  # HTTP tells seconds
    with pytest.raises(CorpusUnreadable, match="has changed"):
        corpus[0]
    with pytest.raises(CorpusUnreadable, match="no such object"):
        open_corpus(f"{served}/none.jsonl")


@pytest.mark.parametrize("served", [Http], indirect=True)
def test_an_http_server_that_knows_no_ranges(served, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines(0))
    corpus = open_corpus(f"{served}/a.jsonl", rows_per_block=10, index="no")  # reading all of it works
    with pytest.raises(CorpusUnreadable, match="gives no parts"):
        corpus[50]


class _Coded(Exception):
    def __init__(self, **names):
        self.__dict__.update(names)


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (TimeoutError(), True), (ConnectionResetError(), True), (OSError("odd"), True), (EOFError(), True),
        (_Coded(code=503), True), (_Coded(code=429), True), (_Coded(code="503"), True), (_Coded(status_code=408), True),
        (_Coded(code=404), False), (_Coded(status_code=403), False), (FileNotFoundError(), False),
        (PermissionError(), False), (TypeError(), False), (ValueError(), False), (MemoryError(), False),
        (_Coded(response={"ResponseMetadata": {"HTTPStatusCode": 416}}), False),
        (caused(OSError(22, "x"), _Coded(response={"ResponseMetadata": {"HTTPStatusCode": 412}})), False),
        (caused(OSError(5, "x"), _Coded(response={"ResponseMetadata": {"HTTPStatusCode": 500}})), True),
        (caused(TimeoutError(), _Coded(response={"ResponseMetadata": {"HTTPStatusCode": 400}})), True),
    ],
)  # fmt: skip
def test_which_errors_pass(error, again):
    assert passes(error) is again


def test_circles_of_causes_end():
    one, other = OSError(), OSError()
    one.__cause__, other.__cause__ = other, one
    assert status(one) is None


def test_pauses_grow_and_differ_and_are_bounded(monkeypatch):
    monkeypatch.setattr(retrying, "PAUSE_S", 0.5)
    monkeypatch.setattr(retrying, "TRIES", 8)
    slept = []
    monkeypatch.setattr(retrying.time, "sleep", slept.append)

    def request():
        raise TimeoutError

    for _ in range(2):
        with pytest.raises(TimeoutError):
            retried(request)
    longest = [0.5, 1, 2, 4, 8, 8, 8]
    assert len(slept) == 14
    assert all(most / 2 <= pause <= most for pause, most in zip(slept, longest * 2, strict=True))
    assert slept[:7] != slept[7:]


def test_interrupts_are_not_tried_again(monkeypatch):
    def request():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retried(request)


def test_settings_that_are_made_after_a_failure_count(monkeypatch):
    """In a notebook credentials are set after the first error."""
    first, _ = locate("s3://bucket/a")
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "a", "secret": "b"})
    second, _ = locate("s3://bucket/a")
    assert (first.key, second.key) == (None, "a")
