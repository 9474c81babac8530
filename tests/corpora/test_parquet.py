"""Parquet: rows are those that were written, only what is needed is read, and what is broken is an error."""

import inspect
import pickle
import random
import struct
import warnings
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import CorpusError, CorpusUnreadable, open_corpus
from detdata.corpora import parquet
from detdata.corpora.errors import CorpusWarning
from detdata.corpora.files import LocalFile
from detdata.corpora.parquet import Parquet
from detdata.corpora.protocol import Options
from detdata.rows import repeating
from detdata.testing import CorpusSuite
from detdata.testing.corpora_cases import FileOf, with_file
from tests.corpora.test_arrow import tables
from tests.sources import run_python
from tests.streaming.stream_side import id_of, make


def write(path, table, size=8, **how):
    pq.write_table(table, path, row_group_size=size, **how)
    return path


def simple(path, count=20, size=8, **how):
    rows = [{"i": i, "t": f"text {i}" * (i % 5), "s": {"a": i, "b": [i] * (i % 3)}} for i in range(count)]
    write(path, pa.Table.from_pylist(rows), size, **how)
    return rows


@pytest.fixture
def reads(monkeypatch):
    """The lengths of what is read of files of this machine."""
    lengths = []

    def read(file, start, length, read=LocalFile.read):
        lengths.append(length)
        return read(file, start, length)

    monkeypatch.setattr(LocalFile, "read", read)
    return lengths


def footer_of(path):
    return int.from_bytes(path.read_bytes()[-8:-4], "little") + 8


def group_bytes(path, number, columns=None):
    group = pq.read_metadata(path).row_group(number)
    chunks = [group.column(i) for i in range(group.num_columns)]
    return sum(
        chunk.total_compressed_size
        for chunk in chunks
        if columns is None or chunk.path_in_schema.split(".")[0] in columns
    )


# --- rows -------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(table=tables(), size=st.integers(1, 20), compression=st.sampled_from(["none", "snappy", "zstd"]), data=st.data())
def test_rows_are_those_that_were_written(tmp_path_factory, table, size, compression, data):
    schema, batches = table
    rows = [row for batch in batches for row in batch]
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    made = pa.Table.from_pylist(rows, schema)
    try:
        write(path, made, size, compression=compression, use_dictionary=data.draw(st.booleans()))
        pq.read_table(path).validate(full=True)
    except pa.ArrowException:  # of some lists of fixed size, pyarrow cannot read what it wrote
        return
    if not rows:
        with pytest.raises(CorpusError, match="empty"):
            open_corpus(path)
        return

    corpus = open_corpus(path)

    ids = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=30))
    assert corpus.block_sizes.tolist() == [len(rows[i : i + size]) for i in range(0, len(rows), size)]
    assert list(corpus) == rows
    assert [corpus[i] for i in range(len(rows))] == rows
    assert corpus.take(ids) == [rows[i] for i in ids]
    away = FileOf(corpus.entries[0].file)
    outline = Parquet().outline(away, Options())
    assert with_file(corpus, away, outline).take(range(len(rows))) == rows
    if ids and "dictionary" not in str(schema):
        assert corpus.take_columns(ids).to_pylist() == [rows[i] for i in ids]


def test_columns_are_top_level_ones_and_a_dot_is_a_dot(tmp_path):
    rows = [{"a": {"b": i, "c": -i}, "a.b": f"x{i}", "z": [i]} for i in range(20)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows))

    for columns in (["a"], ["a.b"], ["z", "a.b"], ["z", "a"]):
        found = list(open_corpus(path, columns=columns))
        assert found == [{name: row[name] for name in columns} for row in rows]
        assert list(found[0]) == columns
    with pytest.raises(CorpusError, match=r"a\.parquet: has no column 'a\.c', only a, a\.b, z"):
        open_corpus(path, columns=["a.c"])[0]


def test_text_that_no_one_batch_can_hold_comes_in_several(tmp_path):
    rows = [{"t": f"text {i}", "i": i} for i in range(10)]
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows), 10)
    corpus = open_corpus(path)
    shard = Parquet().open(corpus.entries[0].file, corpus.entries[0].outline, Options())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.Table.from_pylist(rows).schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows), max_chunksize=3)
    view = shard.view(0, sink.getvalue())

    assert view.take(range(10)) == rows
    assert view.take([9, 0, 3, 3, 2]) == [rows[i] for i in (9, 0, 3, 3, 2)]
    assert view.take(range(2, 7)) == rows[2:7]
    assert view.arrow(pa.array([9, 0, 3]).to_numpy()).to_pylist() == [rows[i] for i in (9, 0, 3)]
    with pytest.raises(CorpusError, match="has 10 rows where"):
        Parquet().open(*_other(path, tmp_path)).view(0, sink.getvalue())


def _other(path, folder):
    other = write(folder / "b.parquet", pq.read_table(path).slice(0, 9), 10)
    file = LocalFile(str(other))
    return file, Parquet().outline(file, Options()), Options()


def test_empty_row_groups_and_files(tmp_path):
    schema = pa.schema([("x", pa.int64()), ("d", pa.dictionary(pa.int32(), pa.string()))])
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, schema) as writer:
        for count in (0, 3, 0, 2, 0):
            rows = [{"x": i, "d": str(i % 2)} for i in range(count)]
            writer.write_table(pa.Table.from_pylist(rows, schema))
    write(tmp_path / "b.parquet", schema.empty_table())
    corpus = open_corpus(tmp_path)
    assert corpus.block_sizes.tolist()[:5] == [0, 3, 0, 2, 0]
    assert [row["x"] for row in corpus] == [0, 1, 2, 0, 1]
    shard = Parquet().open(corpus.entries[0].file, corpus.entries[0].outline, Options())
    view = shard.view(0, shard.load(0))
    assert view.take([]) == []
    assert view.arrow(pa.array([], pa.int64()).to_numpy()).schema == schema


def test_several_row_groups_with_dictionaries_of_their_own(tmp_path):
    rows = [{"d": f"{i // 8} {i % 3}", "l": [f"{i % 4}"]} for i in range(40)]
    words = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("d", words), ("l", pa.list_(words))])
    path = write(tmp_path / "a.parquet", pa.Table.from_pylist(rows, schema))
    corpus = open_corpus(path)
    assert list(corpus) == rows
    assert corpus.take_columns([33, 1, 17]).to_pylist() == [rows[i] for i in (33, 1, 17)]


def test_extension_types_are_what_they_are_stored_as(tmp_path):
    if not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no type for UUIDs")
    values = [bytes([i]) * 16 for i in range(20)]
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    path = write(tmp_path / "a.parquet", pa.table({"u": column}))
    assert [row["u"] for row in open_corpus(path)] == values


def test_files_of_other_columns_are_an_error(tmp_path):
    write(tmp_path / "a.parquet", pa.table({"x": [1], "y": [2]}).replace_schema_metadata({"k": "v"}))
    write(tmp_path / "b.parquet", pa.table({"x": [1], "y": [2]}))
    assert len(open_corpus(tmp_path)) == 2
    write(tmp_path / "c.parquet", pa.table({"x": [1], "y": [2.0]}))
    with pytest.raises(CorpusError, match=r"c\.parquet: its columns differ .*y: double.*y: int64"):
        open_corpus(tmp_path)
    assert list(open_corpus(tmp_path, columns=["x"])) == [{"x": 1}] * 3


def test_random_rows_are_said_to_be_dear(tmp_path):
    simple(tmp_path / "a.parquet", 8000, 40)
    corpus = open_corpus(tmp_path / "a.parquet", cache_bytes=0)
    order = random.Random(1).sample(range(8000), 200)
    with pytest.warns(CorpusWarning, match=r"whole row group.*BlockShuffle.*detdata convert"):
        _ = [corpus[row] for row in order]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(open_corpus(tmp_path / "a.parquet"))) == 8000


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{} words of one row", "{} " + "long " * 100, "same"])
def test_o_st4_a_resume_reads_one_row_group_and_a_footer(tmp_path, reads, text):
    for number in range(8):
        ids = range(number * 5000, (number + 1) * 5000)
        table = pa.table({"id": ids, "text": [text.format(id) for id in ids]})
        write(tmp_path / f"{number}.parquet", table, 500)
    corpus = open_corpus(tmp_path)
    assert sum(reads) <= sum(footer_of(path) + 8 for path in tmp_path.iterdir())
    for start in (0, 20_016, 36_000):
        fresh = pickle.loads(pickle.dumps(corpus))
        stream = make(fresh, 16, map=id_of)
        stream.resume(start)
        reads.clear()
        assert next(iter(stream)) == list(range(start, start + 16))
        path = tmp_path / f"{start // 5000}.parquet"
        assert sum(reads) <= group_bytes(path, start % 5000 // 500) + footer_of(path) + 8 + 1
        assert fresh.blocks_loaded == 1


def test_only_the_columns_that_are_asked_for_are_read(tmp_path, reads):
    path = tmp_path / "a.parquet"
    rows = simple(path, 4000, 1000)
    corpus = open_corpus(path, columns=["i", "s"])
    reads.clear()
    assert corpus[2500] == {"i": 2500, "s": rows[2500]["s"]}
    assert sum(reads) <= group_bytes(path, 2, ("i", "s")) + footer_of(path) + 8 + 1


def test_whole_row_groups_are_one_read(tmp_path, reads):
    path = tmp_path / "a.parquet"
    simple(path, 4000, 1000)
    corpus = open_corpus(path)
    corpus[0]
    reads.clear()
    corpus[1000]
    assert reads == [group_bytes(path, 1)]


# --- what is broken ---------------------------------------------------------------------------------------------------


def test_what_is_no_parquet_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    simple(path)
    data = path.read_bytes()
    cases = {
        b"": "cut off",
        b"PAR1": "cut off",
        data[:-1]: "cut off",
        data[: len(data) // 2]: "cut off",
        data[:-4] + b"PARE": "encrypted",
        data[:-8] + struct.pack("<I", 2**31) + b"PAR1": "footer of 2147483648 bytes",
        data[:-8] + struct.pack("<I", 0) + b"PAR1": "footer of 0 bytes",
        b"PAR1" + bytes(100) + struct.pack("<I", 100) + b"PAR1": "as Parquet",
    }
    for content, reason in cases.items():
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=rf"a\.parquet: .*{reason}"):
            open_corpus(path)


def test_a_file_that_changes_is_not_read_on(tmp_path):
    path = tmp_path / "a.parquet"
    simple(path, 80)
    corpus = open_corpus(path, cache_bytes=0)
    corpus[0]
    simple(path, 60)
    with pytest.raises(CorpusUnreadable, match="has changed"):
        corpus[70]


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(CorpusError, match="two columns 'x'"):
        open_corpus(write(tmp_path / "a.parquet", table))


def test_options_of_other_formats_are_refused(tmp_path):
    simple(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="row group"):
        open_corpus(tmp_path / "a.parquet", rows_per_block=3)


def test_text_that_is_no_utf_8_names_its_row(tmp_path):
    column = pa.array([b"ok"] * 9 + [b"\xff"] + [b"ok"] * 6).view(pa.string())
    corpus = open_corpus(write(tmp_path / "a.parquet", pa.table({"t": column})))
    assert corpus[8] == {"t": "ok"}
    for ask in (lambda: corpus[9], lambda: list(corpus), lambda: corpus.take_columns([9])):
        with pytest.raises(CorpusError, match=r"block 1, row 1 of the block: column 't'"):
            ask()


def test_a_page_that_is_not_what_its_checksum_says(tmp_path):
    path = tmp_path / "a.parquet"
    write(
        path, pa.table({"t": ["abcdefgh" * 20] * 8}), use_dictionary=False, compression="none", write_page_checksum=True
    )
    data = bytearray(path.read_bytes())
    data[1500] ^= 1  # of a value, behind the header of its page
    path.write_bytes(data)
    with pytest.raises(CorpusError, match="block 0: cannot be read as Parquet"):
        open_corpus(path)[0]


@pytest.mark.parametrize("kind", ["repeated", "numbers"])
def test_a_row_group_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, kind):
    # 4000 values of 20 kB out of one word of a dictionary, and 40,000 equal numbers: some hundred bytes in the file.
    values = ["x" * 20_000] * 4000 if kind == "repeated" else [7] * 40_000
    path = write(tmp_path / "a.parquet", pa.table({"v": pa.array(values), "i": range(len(values))}), len(values))
    assert open_corpus(path)[3] == {"v": values[0], "i": 3}
    monkeypatch.setattr(parquet, "_AT_ONCE", 1 << 17)
    monkeypatch.setattr(repeating, "_UNSUSPECTED", 1 << 17)
    corpus = open_corpus(path)
    assert [corpus[i] for i in (3, len(values) - 1)] == [{"v": values[0], "i": i} for i in (3, len(values) - 1)]
    monkeypatch.setattr(parquet, "_MOST", 1 << 18)
    with pytest.raises(CorpusError, match=r"block 0: has a row group of .* rows that unpacks to more"):
        open_corpus(path)[3]


DAMAGE = inspect.cleandoc("""
    import pathlib, random, sys, warnings
    from detdata import CorpusError, open_corpus
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    original, rng = (folder / "whole").read_bytes(), random.Random(seed)
    footer = int.from_bytes(original[-8:-4], "little") + 8
    bad = 0
    for n in range(400):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            low = len(data) - footer if n % 4 else 0
            at = rng.randrange(low, len(data) - 4)
            data[at] = rng.choice((0, 1, 127, 128, 255, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        path = folder / "a.parquet"
        path.write_bytes(data)
        (folder / "last").write_text(f"{seed} {n}")
        try:
            corpus = open_corpus(path, columns=["i"] if n % 3 == 0 else None)
            list(corpus), corpus.take_columns(range(len(corpus)))
        except CorpusError as error:
            bad += "a.parquet" in str(error)
    assert bad > 100, bad
    print("done")
""")


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_footers_and_pages_are_errors_and_end_no_process(tmp_path, seed):
    simple(tmp_path / "whole", 200, 50)
    ran = run_python(f"import sys\nsys.argv[1:] = [{str(tmp_path)!r}, {seed}]\n{DAMAGE}")
    assert "done" in ran.stdout, (ran, (tmp_path / "last").read_text())


# --- the laws of formats ----------------------------------------------------------------------------------------------


class ParquetCases(CorpusSuite):
    format = "parquet"
    columns = ("t", "i")
    how: ClassVar = {}

    def rows(self, count, seed):
        return [
            {"i": i, "t": f"text {i} of {seed} " * (i % 7), "l": list(range(i % 4)), "f": i / 2} for i in range(count)
        ]

    def write(self, folder, rows):
        schema = pa.schema([("i", pa.int64()), ("t", pa.string()), ("l", pa.list_(pa.int32())), ("f", pa.float64())])
        return write(folder / "a.parquet", pa.Table.from_pylist(rows, schema), **self.how)


class TestParquet(ParquetCases):
    pass


class TestParquetOfPlainPages(ParquetCases):
    how: ClassVar = {"use_dictionary": False, "compression": "none", "data_page_version": "2.0"}


del CorpusSuite, ParquetCases
