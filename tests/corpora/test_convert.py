"""`convert_corpus`: the same rows in the same order, in parts of bounded size; after a kill on to the same bytes."""

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, UnknownFormat, convert_corpus, open_corpus
from detdata.corpora.schemas import table_of, widened

NOON = datetime(2020, 1, 1, 12)  # noqa: DTZ001 - without a zone, that is what is tested
ROW = st.fixed_dictionaries(
    {"i": st.integers(-(2**60), 2**60)},
    optional={
        "t": st.text(max_size=20),
        "x": st.none() | st.floats(allow_nan=False),
        "l": st.lists(st.booleans(), max_size=3),
    },
)


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parts(folder):
    return sorted(folder.glob("part-*.arrow"))


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def read_back(folder):
    rows = []
    for file in parts(folder):
        with pa.memory_map(str(file)) as source:
            rows += pa.ipc.open_file(source).read_all().to_pylist()
    return rows


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=60), batch=st.none() | st.integers(1, 20))
def test_rows_and_their_order_are_kept(tmp_path_factory, rows, batch):
    folder = tmp_path_factory.mktemp("convert")
    corpus = open_corpus(write_jsonl(folder / "a.jsonl", rows))

    made = convert_corpus(corpus, folder / "out", rows_per_batch=batch)

    columns = {name for row in rows for name in row}
    assert read_back(folder / "out") == [{name: row.get(name) for name in columns} for row in rows]
    assert (made.rows, made.parts, made.resumed) == (len(rows), 1, 0)


def test_parts_end_at_their_size_and_say_where_they_come_from(tmp_path):
    rows = [{"i": i, "t": "x" * 1000} for i in range(1000)]
    corpus = open_corpus(write_jsonl(tmp_path / "a.jsonl", rows))

    made = convert_corpus(corpus, tmp_path / "out", part_bytes=1 << 16, rows_per_batch=16)

    assert made.parts == len(parts(tmp_path / "out")) == 16
    assert all(file.stat().st_size < (1 << 16) + 40_000 for file in parts(tmp_path / "out"))
    record = json.loads((tmp_path / "out/origin.json").read_text())
    assert record["source"]["version"] == corpus.version()
    assert record["complete"] is True
    assert read_back(tmp_path / "out") == rows


def test_a_second_call_has_nothing_to_do_and_other_data_are_refused(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}, {"i": 2}])
    convert_corpus(open_corpus(file), tmp_path / "out")

    assert convert_corpus(open_corpus(file), tmp_path / "out").resumed == 2
    with pytest.raises(CorpusError, match="part_bytes"):
        convert_corpus(open_corpus(file), tmp_path / "out", part_bytes=1 << 20)
    write_jsonl(file, [{"i": 1}, {"i": 3}])
    with pytest.raises(CorpusError, match="source"):
        convert_corpus(open_corpus(file), tmp_path / "out")


def test_a_part_that_was_altered_is_noticed(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}, {"i": 2}])
    convert_corpus(open_corpus(file), tmp_path / "out")
    part = parts(tmp_path / "out")[0]
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)

    with pytest.raises(CorpusError, match=r"part-00000\.arrow"):
        convert_corpus(open_corpus(file), tmp_path / "out")


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")

    with pytest.raises(CorpusError, match="mine"):
        convert_corpus(open_corpus(file), tmp_path / "out")
    assert names(tmp_path / "out") == ["mine.txt"]


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"format": "detdata.origin/2"}'])
def test_a_record_that_is_none_is_an_error(tmp_path, record):
    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/origin.json").write_text(record)

    with pytest.raises(UnknownFormat, match="name a new folder"):
        convert_corpus(open_corpus(file), tmp_path / "out")


def test_a_record_cannot_name_files_elsewhere(tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}])
    convert_corpus(open_corpus(file), tmp_path / "out")
    origin = tmp_path / "out/origin.json"
    origin.write_text(origin.read_text().replace("part-00000.arrow", "../a.jsonl"))

    with pytest.raises(UnknownFormat, match=r"\.\./a\.jsonl"):
        convert_corpus(open_corpus(file), tmp_path / "out")


def test_values_of_no_one_type_are_an_error_and_can_be_kept_as_json(tmp_path):
    rows = [{"v": 1}, {"v": "one"}, {"v": {"deep": [1, None]}}, {}, {"v": None}]
    corpus = open_corpus(write_jsonl(tmp_path / "a.jsonl", rows))

    with pytest.raises(CorpusError, match="--json-column v"):
        convert_corpus(corpus, tmp_path / "out")
    convert_corpus(corpus, tmp_path / "out", json_columns=["v"])
    back = [row["v"] for row in read_back(tmp_path / "out")]
    assert [None if text is None else json.loads(text) for text in back] == [1, "one", {"deep": [1, None]}, None, None]


def test_integers_become_floats_only_where_that_loses_nothing(tmp_path):
    exact = open_corpus(write_jsonl(tmp_path / "a.jsonl", [{"v": 2**53}, {"v": 0.5}]))
    convert_corpus(exact, tmp_path / "exact", rows_per_batch=1)
    assert read_back(tmp_path / "exact") == [{"v": 2.0**53}, {"v": 0.5}]

    lossy = open_corpus(write_jsonl(tmp_path / "b.jsonl", [{"v": 2**53 + 1}, {"v": 0.5}]))
    with pytest.raises(CorpusError, match="column 'v'"):
        convert_corpus(lossy, tmp_path / "lossy", rows_per_batch=1)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(ROW, min_size=2, max_size=30), cut=st.integers(1, 29))
def test_a_schema_found_in_pieces_is_the_one_found_at_once(rows, cut):
    cut = min(cut, len(rows) - 1)
    one, other = table_of(rows[:cut], 0, frozenset()), table_of(rows[cut:], cut, frozenset())

    assert widened(one.schema, other.schema, cut).equals(table_of(rows, 0, frozenset()).schema)


KILLED = """
import sys
from detdata import convert_corpus, open_corpus
convert_corpus(open_corpus(sys.argv[1]), sys.argv[2], part_bytes=1 << 16, rows_per_batch=8)
"""


def test_whatever_moment_it_is_killed_in_it_is_gone_on_with_to_the_same_bytes(tmp_path):
    rows = [{"i": i, "t": "x" * (i % 700)} for i in range(6000)]
    file = write_jsonl(tmp_path / "a.jsonl", rows)
    convert_corpus(open_corpus(file), tmp_path / "whole", part_bytes=1 << 16, rows_per_batch=8)
    out = tmp_path / "out"
    kills = 0
    for wanted in (1, 5, 9, 14):
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(file), str(out)])
        while child.poll() is None and len(parts(out)) < wanted:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        kills += child.wait() == -signal.SIGKILL

    made = convert_corpus(open_corpus(file), out, part_bytes=1 << 16, rows_per_batch=8)

    assert kills
    assert made.resumed > 0
    assert names(out) == names(tmp_path / "whole")
    for name in names(out):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_two_at_once_in_one_folder_are_told(tmp_path):
    from detdata.corpora.origin import alone

    file = write_jsonl(tmp_path / "a.jsonl", [{"i": 1}])
    (tmp_path / "out").mkdir()
    with alone(tmp_path / "out"), pytest.raises(CorpusError, match="another process"):
        convert_corpus(open_corpus(file), tmp_path / "out")


@pytest.mark.parametrize(
    "values",
    [
        [1.5, True],
        [[1.5], [True]],
        [{"x": [{"y": 1.5}]}, {"x": [{"y": True}]}],
        ["text", b"\xff"],
        [NOON.date(), NOON],
        [NOON, NOON.replace(tzinfo=UTC)],
    ],
)
def test_values_that_one_type_would_change_have_no_one_type(values):
    with pytest.raises(CorpusError, match="--json-column v"):
        table_of([{"v": value} for value in values], 0, frozenset())


def test_half_a_surrogate_pair_can_be_kept_as_json_and_is_no_name(tmp_path):
    corpus = open_corpus(write_jsonl(tmp_path / "a.jsonl", [{"v": "\ud800é"}, {"v": "é"}]))
    convert_corpus(corpus, tmp_path / "out", json_columns=["v"])
    assert [json.loads(row["v"]) for row in read_back(tmp_path / "out")] == ["\ud800é", "é"]

    corpus = open_corpus(write_jsonl(tmp_path / "b.jsonl", [{"\ud800": 1}]))
    with pytest.raises(CorpusError, match="surrogate"):
        convert_corpus(corpus, tmp_path / "b")


def test_what_is_no_json_cannot_be_kept_as_json():
    with pytest.raises(CorpusError, match="column 'v' of row 7"):
        table_of([{"v": b"x"}], 7, frozenset(["v"]))


def double(row):
    return {"a": row["a"] * 2}


def test_rows_that_are_read_otherwise_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "skips").write_text('{"format": "detdata.skips/1", "rows": [2], "skip": [0]}')
    file = tmp_path / "a.csv"
    convert_corpus(open_corpus(file), tmp_path / "out")

    for other in (
        open_corpus(file, columns=["a"]),
        open_corpus(file, delimiter=";"),
        open_corpus(file, on_error="skip", skip_list=tmp_path / "skips"),
        open_corpus(file).map(double),
    ):
        with pytest.raises(CorpusError, match="asked"):
            convert_corpus(other, tmp_path / "out")
    assert convert_corpus(open_corpus(file), tmp_path / "out").resumed == 2


def test_few_large_rows_are_looked_at_together(tmp_path, monkeypatch):
    most = []

    def watched(rows, *others):
        most.append(len(rows))
        return table_of(rows, *others)

    monkeypatch.setattr("detdata.corpora.convert.table_of", watched)
    rows = [{"t": "x" * (1 << 20)} for _ in range(30)]
    convert_corpus(open_corpus(write_jsonl(tmp_path / "a.jsonl", rows)), tmp_path / "out")

    assert max(most) <= 8
    assert read_back(tmp_path / "out") == rows


def test_wrong_arguments_are_named(tmp_path):
    corpus = open_corpus(write_jsonl(tmp_path / "a.jsonl", [{"i": 1}]))
    with pytest.raises(TypeError, match="corpus"):
        convert_corpus("a.jsonl", tmp_path / "out")
    with pytest.raises(TypeError, match="json_columns"):
        convert_corpus(corpus, tmp_path / "out", json_columns="i")
    with pytest.raises(ValueError, match="'typo', which no row has"):
        convert_corpus(corpus, tmp_path / "out", json_columns=["typo"])
    with pytest.raises(ValueError, match="part_bytes"):
        convert_corpus(corpus, tmp_path / "out", part_bytes=1)
