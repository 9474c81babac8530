"""Whatever the store does: right rows, or an error that names the object."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detdata import CorpusError, CorpusUnreadable, open_corpus
from detdata.corpora import remote_file
from detdata.corpora.remote_file import RemoteFile, RemoteOptions
from tests.corpora.faulty_s3 import behind as behind  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import faults as faults  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import root as root  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import system as system  # noqa: PLC0414 - a fixture
from tests.corpora.rows_of_lines import numbered

ROWS = numbered(300)
BLOCK = 20


def text(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def url(root, system):
    url = f"{root}/a.jsonl"
    system.pipe(url, text(ROWS))
    return url


def opened(url, **options):
    return open_corpus(url, rows_per_block=BLOCK, index="no", cache_bytes=0, **options)


def short(answer):
    answer.body = answer.body[:-5]


def cut(answer):
    answer.sends = len(answer.body) // 2


def error(status, code):
    return lambda answer: answer.become(status, code)


@pytest.mark.parametrize(
    "fault",
    [
        error(500, "InternalError"), error(503, "SlowDown"), error(502, "BadGateway"), error(429, "TooManyRequests"),
        error(400, "RequestTimeout"), cut, short,
    ],
    ids=["500", "503", "502", "429", "request-timeout", "reset in mid-body", "short with its true length"],
)  # fmt: skip
def test_what_passes_is_tried_again(faults, url, fault):
    corpus = opened(url)
    left = faults.times(3, fault)
    assert corpus[123] == ROWS[123]
    assert left == [0]
    left = faults.times(4, fault)
    with pytest.raises(CorpusUnreadable, match="tried 4 times") as caught:
        corpus[200]
    assert (caught.value.file, left) == (url, [0])
    assert corpus[200] == ROWS[200]


@pytest.mark.parametrize("fault", [error(500, "InternalError"), error(503, "SlowDown")])
def test_asking_what_an_object_is_is_tried_again(faults, url, fault):
    faults.times(3, fault, method="HEAD")
    assert opened(url)[0] == ROWS[0]


def test_a_slow_answer_is_given_up_and_asked_for_again(faults, url):
    corpus = opened(url, remote_timeout=0.2)

    def late(answer):
        answer.waits = 0.6

    left = faults.times(1, late)
    assert corpus[7] == ROWS[7]
    assert left == [0]


def test_an_answer_that_never_comes_is_an_error(faults, url):
    corpus = opened(url, remote_timeout=0.1)

    def late(answer):
        answer.waits = 0.3

    faults.times(99, late)
    with pytest.raises(CorpusUnreadable, match="cannot be read"):
        corpus[7]


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (401, "Unauthorized"), (416, "InvalidRange"), (400, "Bad")]
)
def test_what_stays_is_not_tried_again(faults, url, status, code):
    corpus = opened(url)
    left = faults.times(9, error(status, code))
    with pytest.raises(CorpusUnreadable) as caught:
        corpus[7]
    assert (caught.value.file, left) == (url, [8])


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("other", ["other rows of the same size", "shorter", "longer", "gone"])
def test_an_object_that_changes_gives_no_mixture(faults, url, system, tmp_path, other, cached):
    corpus = opened(url, remote_cache=tmp_path if cached else None)
    assert corpus[5] == ROWS[5]
    made = {
        "other rows of the same size": text([row | {"id": row["id"]} for row in ROWS]).replace(b"x", b"y"),
        "shorter": text(ROWS[:-50]),
        "longer": text(numbered(300, 5)),
    }
    if other == "gone":
        system.rm(url)
    else:
        system.pipe(url, made[other])
    for row in range(0, len(ROWS), BLOCK // 2):
        if row < BLOCK:  # which this process holds
            assert corpus[row] == ROWS[row]
            continue
        with pytest.raises(CorpusUnreadable, match="deleted" if other == "gone" else "has changed") as caught:
            corpus[row]
        assert caught.value.file == url
    if other != "gone":
        anew = opened(url, remote_cache=tmp_path if cached else None)
        assert anew.take(range(len(anew))) == open_local(made[other], tmp_path)


def open_local(data, folder):
    path = folder / "local.jsonl"
    path.write_bytes(data)
    return list(opened(path))


@pytest.mark.parametrize("knows_conditions", [False, True])
def test_an_object_replaced_between_the_parts_of_one_read(faults, url, system, monkeypatch, knows_conditions):
    """A store that takes no notice of If-Match is found out by the ETag of its answers."""
    monkeypatch.setattr(remote_file, "PART", 100)
    file = RemoteFile(url)
    data = text(ROWS)
    assert file.read(0, 1000) == data[:1000]
    count = [0]

    def asked(method, path, headers):
        if not knows_conditions:
            for name in [name for name in headers if name.lower() == "if-match"]:
                del headers[name]
        if method == "GET" and headers.get("Range"):
            count[0] += 1
            if count[0] == 5:
                faults.asked, before = None, faults.asked
                system.pipe(url, data.replace(b"x", b"z"))
                faults.asked = before

    faults.asked = asked
    with pytest.raises(CorpusUnreadable, match="has changed"):
        file.read(0, 1000)
    assert count[0] == 5


@pytest.mark.parametrize("whole", [False, True])
def test_a_store_that_ignores_ranges_is_an_error(faults, url, whole):
    corpus = opened(url)

    def asked(method, path, headers):
        headers.pop("Range", None)

    faults.asked = asked
    if whole:
        file = RemoteFile(url)
        size = file.identity().size
        assert file.read(0, size) == text(ROWS)
    with pytest.raises(CorpusUnreadable, match="gives no parts"):
        corpus[150]


def test_what_is_not_there_is_named(faults, root, system):
    for name in ("none.jsonl", "none/a.jsonl", "none"):
        with pytest.raises(CorpusError, match="no such object"):
            open_corpus(f"{root}/{name}")
    for url in ("s3://no-such-bucket/a.jsonl", "s3://no-such-bucket/*.jsonl"):
        with pytest.raises(CorpusError) as caught:
            open_corpus(url)
        assert url in str(caught.value)
    for glob in (f"{root}/*.jsonl", f"{root}/**/*.jsonl"):
        with pytest.raises(CorpusError, match="matches no"):
            open_corpus(glob)


def test_a_bucket_that_may_not_be_read(faults, url, root):
    faults.plan = lambda method, path, span, answer: answer.become(403, "AccessDenied")
    for asked in (url, root, f"{root}/*.jsonl"):
        with pytest.raises(CorpusError, match=r"refuses|Denied|403") as caught:
            open_corpus(asked)
        assert "s3://" in str(caught.value)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_reads_are_the_bytes_or_an_error(faults, url, data):
    whole = text(ROWS)
    faults.plan = None
    file = RemoteFile(url, RemoteOptions())
    start = data.draw(st.integers(0, len(whole) + 10))
    length = data.draw(st.integers(0, len(whole) + 10))
    faults.times(data.draw(st.integers(0, 3)), data.draw(st.sampled_from([short, cut, error(503, "SlowDown")])))
    if start + length > len(whole):
        with pytest.raises(CorpusUnreadable, match="ends at byte"):
            file.read(start, length)
    else:
        assert file.read(start, length) == whole[start : start + length]
