"""Arrow's files and streams: rows are those that pyarrow wrote; what is broken is an error that says where."""

import datetime as dt
import decimal
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather

from detdata import CorpusError, index_corpus, open_corpus
from detdata.corpora.arrow import Arrow
from detdata.corpora.protocol import Options
from detdata.testing import CorpusSuite
from detdata.testing.corpora_cases import FileOf, with_file

FIRST, LAST = dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)  # noqa: DTZ001
KINDS = st.recursive(
    st.sampled_from(
        [
            pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(),
            pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.null(),
            pa.dictionary(pa.int8(), pa.string()),
        ]
    ),
    lambda kinds: kinds.map(pa.list_)
    | kinds.map(lambda kind: pa.list_(kind, 2))
    | kinds.map(lambda kind: pa.struct([("a", kind), ("b", pa.int16())]))
    | kinds.map(lambda kind: pa.map_(pa.string(), kind)),
    max_leaves=3,
)  # fmt: skip


def values_of(kind):
    """Return a strategy for values of a type, None among them."""
    types = pa.types
    if types.is_list(kind):
        found = st.lists(values_of(kind.value_type), max_size=3)
    elif types.is_fixed_size_list(kind):
        found = st.lists(values_of(kind.value_type), min_size=2, max_size=2)
    elif types.is_map(kind):
        found = st.lists(st.tuples(st.text(max_size=3), values_of(kind.item_type)), max_size=2)
    elif types.is_struct(kind):
        found = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        found = st.text(max_size=5)
    elif types.is_null(kind):
        found = st.none()
    else:
        utc = st.datetimes(FIRST, LAST)
        found = {
            pa.int8(): st.integers(-128, 127),
            pa.uint64(): st.integers(0, 2**64 - 1),
            pa.int16(): st.integers(-(2**15), 2**15 - 1),
            pa.float32(): st.floats(width=32, allow_nan=False),
            pa.float64(): st.floats(allow_nan=False),
            pa.bool_(): st.booleans(),
            pa.binary(): st.binary(max_size=5),
            pa.date32(): st.dates(),
            pa.timestamp("us"): utc,
            pa.timestamp("us", "UTC"): utc.map(lambda value: value.replace(tzinfo=dt.UTC)),
        }[kind]
    return st.none() | found


@st.composite
def tables(draw):
    """Return (schema, batches as lists of rows)."""
    kinds = draw(st.lists(KINDS, min_size=1, max_size=3))
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    row = st.fixed_dictionaries({field.name: values_of(field.type) for field in schema})
    return schema, draw(st.lists(st.lists(row, max_size=12), min_size=1, max_size=4))


def write_arrow(path, schema, batches, *, stream=False, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=False)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(
                batch if isinstance(batch, pa.RecordBatch) else pa.RecordBatch.from_pylist(batch, schema)
            )
    return path


@settings(max_examples=120, deadline=None)
@given(table=tables(), stream=st.booleans(), compression=st.sampled_from([None, "lz4", "zstd"]), data=st.data())
def test_rows_are_those_that_were_written(tmp_path_factory, table, stream, compression, data):
    schema, batches = table
    stream = stream or any("dictionary" in str(field.type) for field in schema)  # a file cannot replace dictionaries
    path = tmp_path_factory.mktemp("arrow") / "a.arrow"
    write_arrow(path, schema, batches, stream=stream, compression=compression)
    rows = [row for batch in batches for row in batch]
    if not rows:
        with pytest.raises(CorpusError, match="empty"):
            open_corpus(path)
        return

    corpus = open_corpus(path)

    ids = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=30))
    assert corpus.block_sizes.tolist() == [len(batch) for batch in batches]
    assert list(corpus) == rows
    assert [corpus[i] for i in range(len(rows))] == rows
    assert corpus.take(ids) == [rows[i] for i in ids]
    if ids and all("dictionary" not in str(field.type) for field in schema):
        taken = corpus.take_columns(ids)
        assert taken.schema.types == schema.types
        assert taken.to_pylist() == [rows[i] for i in ids]
    away = FileOf(corpus.entries[0].file)
    outline = Arrow().outline(away, Options())
    assert with_file(corpus, away, outline).take(range(len(rows))) == rows


def simple(path, count=20, size=8, **how):
    schema = pa.schema([("i", pa.int64()), ("t", pa.string())])
    rows = [{"i": i, "t": f"text {i}" * (i % 5)} for i in range(count)]
    write_arrow(path, schema, [rows[i : i + size] for i in range(0, count, size)], **how)
    return rows


@pytest.mark.parametrize("how", [{}, {"stream": True}, {"compression": "lz4"}])
def test_columns_are_those_that_were_chosen_in_that_order(tmp_path, how):
    rows = simple(tmp_path / "a.arrow", **how)

    corpus = open_corpus(tmp_path / "a.arrow", columns=["t", "i"])

    assert list(corpus[3]) == ["t", "i"]
    assert list(corpus) == rows
    assert open_corpus(tmp_path / "a.arrow", columns=["t"])[19] == {"t": rows[19]["t"]}
    with pytest.raises(CorpusError, match=r"a\.arrow: has no column 'x', only i, t"):
        open_corpus(tmp_path / "a.arrow", columns=["x"])[0]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_is_read_and_its_first_version_refused(tmp_path, compression):
    table = pa.table({"x": list(range(10))})
    feather.write_feather(table, str(tmp_path / "a.feather"), compression=compression, chunksize=4)
    (tmp_path / "b.feather").write_bytes(b"FEA1" + bytes(40) + b"FEA1")

    assert open_corpus(tmp_path / "a.feather").take([9, 0]) == [{"x": 9}, {"x": 0}]
    with pytest.raises(CorpusError, match="first version of Feather"):
        open_corpus(tmp_path / "b.feather")


def test_dictionaries_that_grow_or_change_within_a_stream(tmp_path):
    schema = pa.schema([("c", pa.dictionary(pa.int8(), pa.string()))])

    def batch(words, numbers):
        return pa.record_batch([pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int8()), words)], schema=schema)

    batches = [
        batch(["a", "b"], [0, 1]), batch(["a", "b", "c"], [2, 0]), batch(["x"], [0, None]), batch(["x", "y"], [1, 0]),
    ]  # fmt: skip
    expected = ["a", "b", "c", "a", "x", None, "y", "x"]
    for deltas in (False, True):
        for compression in (None, "zstd"):
            options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas, compression=compression)
            with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema, options=options) as writer:
                for part in batches:
                    writer.write_batch(part)
            corpus = open_corpus(tmp_path / "a.arrow")
            assert [corpus[i]["c"] for i in (7, 6, 5, 4, 3, 2, 1, 0)] == expected[::-1]
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), schema) as writer:
        writer.write_batch(batches[0])
        writer.write_batch(batches[0])
    assert [row["c"] for row in open_corpus(tmp_path / "a.arrow")] == ["a", "b", "a", "b"]


def test_dictionaries_below_nulls_may_hold_any_number(tmp_path):
    word = pa.dictionary(pa.int8(), pa.string())
    for number, kind in enumerate((pa.struct([("a", word)]), pa.list_(pa.struct([("a", word)])), pa.list_(word, 2))):
        rows = [{"c": None}, {"c": [None, None] if number else None}]
        path = write_arrow(tmp_path / f"{number}.arrow", pa.schema([("c", kind)]), [rows])
        assert list(open_corpus(path)) == rows
        assert open_corpus(path).take_columns([0])["c"].to_pylist() == [None]


def test_more_rows_than_can_be_are_an_error_that_names_the_file(tmp_path):
    simple(tmp_path / "a.arrow", count=21, size=21)
    data = (tmp_path / "a.arrow").read_bytes()
    for count in (1 << 62, -1, (1 << 63) - 1):
        (tmp_path / "b.arrow").write_bytes(
            data.replace((21).to_bytes(8, "little"), count.to_bytes(8, "little", signed=True))
        )
        with pytest.raises(CorpusError, match=r"b\.arrow"):
            list(open_corpus(tmp_path / "b.arrow"))


class Celsius(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.float64(), "test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("registered", [False, True])
def test_values_are_plain_whatever_extension_types_are_registered(tmp_path, registered, compression):
    kind = Celsius()
    plain = pa.ExtensionArray.from_storage(kind, pa.array([1.5, None]))
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), plain)
    if registered:
        pa.register_extension_type(kind)
    try:
        batch = pa.record_batch([plain, nested], ["a", "b"])
        write_arrow(tmp_path / "a.arrow", batch.schema, [batch], compression=compression)
        corpus = open_corpus(tmp_path / "a.arrow")
        assert list(corpus) == [{"a": 1.5, "b": [1.5]}, {"a": None, "b": [None]}]
        assert corpus.take_columns([0, 1]).schema.types == [pa.float64(), pa.list_(pa.float64())]
    finally:
        if registered:
            pa.unregister_extension_type("test.celsius")


def test_few_rows_and_many_are_of_the_same_types(tmp_path):
    values = {
        "half": pa.array(np.arange(20, dtype="f2")),
        "decimal": pa.array([decimal.Decimal(f"{i}.25") for i in range(20)]),
        "time": pa.array([dt.time(i) for i in range(20)]),
        "long": pa.array([dt.timedelta(seconds=i) for i in range(20)]),
        "some": pa.array([None, *range(1, 20)]),
        "float": pa.array([None, *map(float, range(1, 20))]),
        "small": pa.array(range(20), pa.uint8()),
        "view": pa.array([f"{i}" * 20 for i in range(20)], pa.string_view()),
        "bytes": pa.array([b"%d" % i for i in range(20)]),
    }
    batch = pa.record_batch(values)
    corpus = open_corpus(write_arrow(tmp_path / "a.arrow", batch.schema, [batch]))

    one_by_one = [corpus[i] for i in range(20)]
    assert one_by_one == corpus.take(range(20)) == list(corpus) == batch.to_pylist()
    assert corpus.take_columns([3, 1]).to_pylist() == [one_by_one[3], one_by_one[1]]
    for many in (corpus.take(np.arange(20)), list(corpus)):
        for one, other in zip(one_by_one, many, strict=True):
            assert [type(value) for value in one.values()] == [type(value) for value in other.values()]


def test_files_of_one_corpus_have_the_same_columns(tmp_path):
    simple(tmp_path / "a.arrow")
    simple(tmp_path / "b.arrow", stream=True)
    write_arrow(tmp_path / "c.arrow", pa.schema([("i", pa.int32()), ("t", pa.string())]), [[{"i": 1, "t": "x"}]])

    assert len(open_corpus([tmp_path / "a.arrow", tmp_path / "b.arrow"])) == 40
    with pytest.raises(CorpusError, match=r"c\.arrow: its columns differ .*i: int32"):
        open_corpus(tmp_path)
    assert len(open_corpus(tmp_path, columns=["t"])) == 41


def test_a_row_that_is_no_text_is_named(tmp_path):
    text = pa.array([b"a", b"\xff", b"c"] * 5).view(pa.string())
    batch = pa.record_batch([text], ["t"])
    for number, compression in enumerate((None, "lz4")):
        write_arrow(tmp_path / f"{number}.arrow", batch.schema, [batch, batch], compression=compression)
        corpus = open_corpus(tmp_path / f"{number}.arrow")
        assert corpus.take([0, 17, 2]) == [{"t": "a"}, {"t": "c"}, {"t": "c"}]
        for ids in ([16], range(15, 30)):
            with pytest.raises(CorpusError, match=r"block 1, row 1 of the block: column 't'"):
                corpus.take(ids)
        with pytest.raises(CorpusError, match="row 1 of the block"):
            corpus.take_columns([15, 16])


def test_offsets_that_lead_outside_are_errors_and_not_read(tmp_path):
    for number, offsets in enumerate(([0, 900_000_000, 3], [0, 2, 1 << 30], [5, 2, 3], [0, -1, 3])):
        place = tmp_path / f"{number}.arrow"
        good = pa.record_batch([pa.array(["ab", "c"])], ["t"])
        write_arrow(place, good.schema, [good])
        data = place.read_bytes()
        at = data.index(np.array([0, 2, 3], np.int32).tobytes())
        place.write_bytes(data[:at] + np.array(offsets, np.int32).tobytes() + data[at + 12 :])
        with pytest.raises(CorpusError, match="block 0"):
            open_corpus(place)[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_file_that_was_not_finished_is_refused(tmp_path, stream):
    simple(tmp_path / "a.arrow", stream=stream)
    data = (tmp_path / "a.arrow").read_bytes()
    for length in [*range(0, len(data), 7), len(data) - 1]:
        (tmp_path / "b.arrow").write_bytes(data[:length])
        with pytest.raises(CorpusError, match=r"cut off|empty|begins neither|does not lie|cannot be"):
            open_corpus(tmp_path / "b.arrow")
    (tmp_path / "b.arrow").write_bytes(data + data)
    with pytest.raises(CorpusError, match="goes on behind the end" if stream else "several files in one"):
        open_corpus(tmp_path / "b.arrow")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"PAR1" + bytes(100), "Parquet"),
        (b"hello world, this is text", "begins neither"),
        (b"\x10\x00\x00\x00" + bytes(100), "before 0.15"),
        (b"ARROW1\0\0" + bytes(100), "never finished"),
        (b"ARROW1\0\0" + bytes(100) + b"\xff\xff\xff\x7fARROW1", "footer of 2147483647"),
        (b"ARROW1\0\0" + bytes(100) + b"\x10\x00\x00\x00ARROW1", "no schema"),
        (b"\xff" * 8, "no message"),
        (b"\xff" * 4 + b"\x00" * 4, "does not begin with a schema"),
        (b"\xff" * 4 + b"\x10\0\0\0" + b"\xff" * 16, "leads outside"),
    ],
)
def test_what_is_no_arrow_file_is_refused(tmp_path, content, reason):
    (tmp_path / "a.arrow").write_bytes(content)

    with pytest.raises(CorpusError, match=reason):
        open_corpus(tmp_path / "a.arrow")


def test_a_compressed_buffer_cannot_claim_any_size(tmp_path):
    schema = pa.schema([("t", pa.string())])
    for codec in ("lz4", "zstd"):
        write_arrow(tmp_path / "a.arrow", schema, [[{"t": "word " * 1000}]], compression=codec)
        data = (tmp_path / "a.arrow").read_bytes()
        at = data.rindex((5000).to_bytes(8, "little"))
        (tmp_path / "a.arrow").write_bytes(data[:at] + (1 << 45).to_bytes(8, "little") + data[at + 8 :])
        with pytest.raises(CorpusError, match="claims that"):
            open_corpus(tmp_path / "a.arrow")[0]


def test_two_columns_of_one_name_are_refused(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    write_arrow(tmp_path / "a.arrow", batch.schema, [batch])

    with pytest.raises(CorpusError, match="two columns 'x'"):
        open_corpus(tmp_path / "a.arrow")


class ArrowCases(CorpusSuite):
    format = "arrow"
    columns = ("t", "i")
    how: ClassVar = {}

    def rows(self, count, seed):
        return [
            {"i": i, "t": f"text {i} of {seed} " * (i % 7), "l": list(range(i % 4)), "f": i / 2} for i in range(count)
        ]

    def write(self, folder, rows):
        schema = pa.schema([("i", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.int32())), ("f", pa.float64())])
        cut = [rows[i : i + 8] for i in range(0, len(rows), 8)]
        return write_arrow(folder / "a.arrow", schema, cut, **self.how)


class TestArrowFile(ArrowCases):
    pass


class TestArrowStream(ArrowCases):
    how: ClassVar = {"stream": True}


class TestCompressedArrow(ArrowCases):
    how: ClassVar = {"compression": "zstd"}


class TestArrowWithDictionaries(ArrowCases):
    columns = ("c", "i")

    def rows(self, count, seed):
        return [{"c": f"word {seed} {i % 5}", "i": i} for i in range(count)]

    def write(self, folder, rows):
        words = sorted({row["c"] for row in rows}) or ["x"]
        kind = pa.dictionary(pa.int8(), pa.string())
        schema = pa.schema([("c", kind), ("i", pa.int64())])
        batches = []
        for start in range(0, len(rows), 8):
            part = rows[start : start + 8]
            numbers = pa.array([words.index(row["c"]) for row in part], pa.int8())
            column = pa.DictionaryArray.from_arrays(numbers, words)
            batches.append(pa.record_batch([column, pa.array([row["i"] for row in part])], schema=schema))
        return write_arrow(folder / "a.arrow", schema, batches)


del CorpusSuite, ArrowCases


def test_an_index_that_was_asked_for_is_used_while_it_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.schema([("i", pa.int64())]), [[{"i": 1}, {"i": 2}], [{"i": 3}]])
    assert open_corpus(path).block_sizes.tolist() == [2, 1]
    assert not list(tmp_path.glob("**/*-index"))  # opening stores none
    assert [done.made for done in index_corpus(path) + index_corpus(path)] == [True, False]

    with monkeypatch.context() as without:
        without.setattr("detdata.corpora.arrow.find_messages", None)
        assert [row["i"] for row in open_corpus(path)] == [1, 2, 3]
    write_arrow(path, pa.schema([("i", pa.int64())]), [[{"i": 4}], [{"i": 5}, {"i": 6}]])
    assert [row["i"] for row in open_corpus(path)] == [4, 5, 6]
    assert [done.made for done in index_corpus(path)] == [True]
