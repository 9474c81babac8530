"""Files of every columnar format: one digest for the same rows, and a clear error for what is none."""

import os
import random
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.rows import RowsError, hash_rows, is_table

N = 5000


def sample(n=N):
    rng = np.random.default_rng(0)
    starts = np.append(0, np.cumsum(rng.integers(0, 5, n)))
    return pa.table(
        {
            "id": np.arange(n),
            "text": pa.array([f"row {i} " * (i % 4) for i in range(n)], mask=rng.random(n) < 0.1),
            "tokens": pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(np.arange(starts[-1]) % 7)),
            "score": pa.array(rng.random(n), mask=rng.random(n) < 0.2),
            "label": pa.array([["cat", "dog", None][i % 3] for i in range(n)]),
            "place": pa.array([{"x": i, "y": [i]} if i % 9 else None for i in range(n)]),
            "at": pa.array(np.arange(n), pa.timestamp("us", "UTC")),
        }
    )


TABLE = sample()


def write(path, table, **options):
    if path.suffix in {".parquet", ".pq"}:
        pq.write_table(table, path, **options)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path, **options)
    else:
        make = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, **options)
    return path.name, path


def ids(version):
    return version.schema, version.digest, version.unordered, version.blocks


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return hash_rows([write(tmp_path_factory.mktemp("first") / "a.parquet", TABLE)])


FORMS = {
    "no compression": ("a.parquet", TABLE, {"compression": "none"}),
    "zstd, row groups": ("a.parquet", TABLE, {"compression": "zstd", "row_group_size": 123}),
    "gzip, small pages": ("a.pq", TABLE, {"compression": "gzip", "data_page_size": 512, "data_page_version": "2.0"}),
    "no dictionaries": ("a.parquet", TABLE, {"use_dictionary": False}),
    "other encodings": (
        "a.PARQUET".lower(),
        TABLE,
        {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT"}},
    ),
    "no Arrow schema": ("a.parquet", TABLE, {"store_schema": False}),
    "large types": (
        "a.parquet",
        TABLE.set_column(1, "text", TABLE["text"].cast(pa.large_string())).set_column(
            2, "tokens", TABLE["tokens"].cast(pa.large_list(pa.int64()))
        ),
        {},
    ),
    "a dictionary": ("a.parquet", TABLE.set_column(4, "label", TABLE["label"].dictionary_encode()), {}),
    "metadata": ("a.parquet", TABLE.replace_schema_metadata({"pandas": "{}"}), {}),
    "Arrow file": ("a.arrow", TABLE, {"max_chunksize": 77}),
    "Arrow stream": ("a.arrows", TABLE, {"max_chunksize": 1000}),
    "Arrow, in chunks": ("a.ipc", pa.concat_tables([TABLE.slice(0, 17), TABLE.slice(17)]), {}),
    "Feather": ("a.feather", TABLE, {"compression": "lz4", "chunksize": 999}),
    "Arrow, a dictionary": ("a.arrow", TABLE.set_column(4, "label", TABLE["label"].dictionary_encode()), {}),
    "Arrow, views": ("a.arrow", TABLE.set_column(1, "text", TABLE["text"].cast(pa.string_view())), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_how_a_file_is_written_does_not_count(form, tmp_path, expected):
    name, table, options = FORMS[form]

    found = hash_rows([write(tmp_path / name, table, **options)])

    assert ids(expected) == ids(found)
    assert ((name, N),) == found.files


def test_how_rows_are_spread_over_files_does_not_count(tmp_path, expected):
    cuts = [0, 0, 1, 2000, 2000, N]
    suffixes = [".parquet", ".arrow", ".feather", ".pq", ".arrows"]
    files = [
        write(tmp_path / f"{i}{suffix}", TABLE.slice(a, b - a))
        for i, (a, b, suffix) in enumerate(zip(cuts, cuts[1:], suffixes, strict=False))
    ]

    found = hash_rows(files)

    assert ids(expected) == ids(found)
    assert [rows for _, rows in found.files] == [0, 1, 1999, 0, 3000]


def test_each_file_ends_with_the_digest_of_the_rows_up_to_there(tmp_path):
    cuts = [0, 0, 1, 2000, 2000, N, N]
    parts = [TABLE.slice(a, b - a) for a, b in pairwise(cuts)]
    files = [write(tmp_path / f"{i}.parquet", part) for i, part in enumerate(parts)]

    found = hash_rows(files)

    assert found.ends[-1] == found.digest[:16]
    for i in range(len(files)):
        assert found.ends[i] == hash_rows(files[: i + 1]).digest[:16]


def test_the_order_of_files_counts_and_the_order_free_digest_does_not_see_it(tmp_path, expected):
    files = [write(tmp_path / f"{i}.parquet", TABLE.slice(a, 2500)) for i, a in enumerate((0, 2500))]

    found = hash_rows(files[::-1])

    assert expected.digest != found.digest
    assert expected.unordered == found.unordered


@pytest.mark.parametrize("stop", [0, 1, 999, 1000, 4999, N])
def test_a_prefix_has_the_version_of_its_rows_alone(tmp_path, stop):
    files = [
        write(tmp_path / f"{i}.parquet", TABLE.slice(a, 1000), row_group_size=300)
        for i, a in enumerate(range(0, N, 1000))
    ]
    alone = write(tmp_path / "alone.parquet", TABLE.slice(0, stop))

    whole = hash_rows(files, stop=stop)

    assert ids(hash_rows([alone])) == ids(whole.prefix)
    assert stop == whole.prefix.rows == sum(rows for _, rows in whole.prefix.files)
    assert ids(hash_rows(files)) == ids(whole)


def test_there_is_no_prefix_of_more_rows_than_there_are(tmp_path):
    assert hash_rows([write(tmp_path / "a.parquet", TABLE)], stop=N + 1).prefix is None


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_chosen_columns_are_those_of_a_table_that_has_no_others(tmp_path, name):
    some = write(tmp_path / "some.parquet", TABLE.select(["text", "score"]))

    found = hash_rows([write(tmp_path / name, TABLE)], columns=["score", "text"])

    assert ids(hash_rows([some])) == ids(found)


def test_no_columns_at_all_still_have_rows(tmp_path):
    found = hash_rows([write(tmp_path / "a.parquet", TABLE)], columns=[])

    assert (found.schema, found.rows, found.blocks) == ((), N, ((),))


def test_a_column_with_a_dot_is_not_taken_for_a_part_of_another(tmp_path):
    table = pa.table({"a": [{"b": 1}], "a.b": ["x"], "c": [2]})
    one = write(tmp_path / "one.parquet", table.select(["a"]))

    assert ids(hash_rows([one])) == ids(hash_rows([write(tmp_path / "all.parquet", table)], columns=["a"]))


def test_columns_of_one_name_are_all_read(tmp_path):
    left, right = pa.array([1]), pa.array(["x"])
    both = write(tmp_path / "a.arrow", pa.Table.from_arrays([left, right], names=["a", "a"]))

    assert hash_rows([both]).schema == (("a", "int64"), ("a", "string"))


def test_the_order_free_digest_can_be_left_out(tmp_path):
    file = write(tmp_path / "a.parquet", TABLE)

    assert (hash_rows([file]).digest, "") == (
        hash_rows([file], unordered=False).digest,
        hash_rows([file], unordered=False).unordered,
    )


def test_progress_tells_the_rows_so_far(tmp_path):
    told = []
    hash_rows([write(tmp_path / "a.arrow", TABLE, max_chunksize=1500)], progress=told.append)

    assert told == [1500, 3000, 4500, 5000]


class Tagged(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int32(), "example.tagged")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_an_extension_type_counts_whether_this_process_knows_it_or_not(tmp_path, suffix):
    storage = pa.array([1, None], pa.int32())
    table = pa.table({"a": pa.ExtensionArray.from_storage(Tagged(), storage)})
    file = write(tmp_path / f"a{suffix}", table)
    plain = hash_rows([write(tmp_path / f"b{suffix}", pa.table({"a": storage}))])
    unknown = hash_rows([file])
    pa.register_extension_type(Tagged())
    try:
        known = hash_rows([file])
    finally:
        pa.unregister_extension_type("example.tagged")

    assert known.schema == (("a", 'extension<"example.tagged", int32>'),)
    assert ids(known) == ids(unknown)
    assert plain.digest != known.digest


OTHER_SCHEMAS = {
    "column 'label' is int8, but string in a.parquet": TABLE.set_column(4, "label", pa.array([1] * N, pa.int8())),
    r"no column 'score', which a.parquet has \(double\)": TABLE.drop_columns(["score"]),
    r"the column 'more' \(int64\), which a.parquet has not": TABLE.append_column("more", pa.array(range(N))),
    "the columns of a.parquet in another order": TABLE.select(TABLE.schema.names[::-1]),
}


@pytest.mark.parametrize("message", OTHER_SCHEMAS)
def test_files_with_other_columns_are_refused_by_name(tmp_path, message):
    files = [write(tmp_path / "a.parquet", TABLE), write(tmp_path / "b.parquet", OTHER_SCHEMAS[message])]

    with pytest.raises(RowsError, match=f"b.parquet: .*{message}") as caught:
        hash_rows(files)
    assert caught.value.path == "b.parquet"


def test_unions_are_refused_by_column(tmp_path):
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])

    with pytest.raises(RowsError, match=r"a.arrow: column 'u': values of type dense_union.*cast them"):
        hash_rows([write(tmp_path / "a.arrow", pa.table({"u": union}))])


def test_an_unknown_suffix_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ArgumentValueError, match=r"notes.txt is no table.*\.parquet .*\.jsonl\.gz"):
        hash_rows([("gone.parquet", tmp_path / "gone.parquet"), ("notes.txt", tmp_path / "notes.txt")])
    assert not is_table("notes.txt")
    assert is_table("A.CSV.GZ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([],), ArgumentValueError),
        (("a.parquet",), ArgumentTypeError),
        ((["a.parquet"],), ArgumentTypeError),
        (([("a.parquet", "a.parquet")], "md5"), ArgumentValueError),
    ],
)
def test_wrong_arguments_are_refused(arguments, error):
    with pytest.raises(error):
        hash_rows(*arguments)


def test_an_unknown_column_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(RowsError, match=r"there is no column 'nope'; the file has .*'id'"):
        hash_rows([write(tmp_path / "a.parquet", TABLE)], columns=["nope"])


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.arrow")
    (tmp_path / "folder.csv").mkdir()
    for name, why in (("gone.parquet", "cannot be read"), ("pipe.arrow", "no regular"), ("folder.csv", "no regular")):
        with pytest.raises(RowsError, match=f"{name}: .*{why}"):
            hash_rows([(name, tmp_path / name)])


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows", ".feather"])
def test_a_file_that_is_cut_short_or_is_something_else_is_named(tmp_path, suffix):
    name, path = write(tmp_path / f"a{suffix}", TABLE)
    data = path.read_bytes()
    for torn in (b"", b"hello", b"FEA1hello", data[: len(data) // 2], data[:-4]):
        if torn == data[:-4] and suffix == ".arrows":
            continue  # half of the marker at the end, which a stream need not have
        path.write_bytes(torn)
        with pytest.raises(RowsError, match=f"a{suffix}: "):
            hash_rows([(name, path)])


@pytest.mark.parametrize("suffix", [".arrow", ".arrows"])
def test_damaged_arrow_files_give_an_error_or_other_digests_and_never_a_crash(tmp_path, suffix, expected):
    rows = np.arange(200)
    views = pa.ListViewArray.from_arrays(
        pa.array(rows[::-1], pa.int32()), pa.array(rows % 4, pa.int32()), pa.array(rows)
    )
    table = TABLE.slice(0, 200).append_column("views", pa.chunked_array([views]))
    table = table.append_column("text view", table["text"].cast(pa.string_view()))
    table = table.set_column(4, "label", table["label"].dictionary_encode())
    name, path = write(tmp_path / f"a{suffix}", table, max_chunksize=50)
    data, r = path.read_bytes(), random.Random(0)
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(r.randrange(1, 4)):
            bad[r.randrange(len(bad))] = r.choice([0, 0x7F, 0x80, 0xFF, r.randrange(256)])
        path.write_bytes(bad)
        with suppress(RowsError):
            hash_rows([(name, path)])


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    name, path = write(tmp_path / "a.arrow", TABLE, max_chunksize=1000)

    def touch(rows):
        if rows == 2000:
            os.utime(path, ns=(1, 1))

    with pytest.raises(RowsError, match=r"a.arrow: changed while it was read"):
        hash_rows([(name, path)], progress=touch)
