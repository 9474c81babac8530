"""What two versions tell of their difference, and what two tables do."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import ArgumentValueError
from detdata.rows import compare_rows, first_row_differences, hash_rows

N = 150_000
TABLE = pa.table({"id": np.arange(N), "word": [f"w{i % 100}" for i in range(N)], "score": np.arange(N) / 7})

LONGER = pa.concat_tables([TABLE, TABLE.slice(0, 10)])


@pytest.fixture(scope="module")
def hashed(tmp_path_factory):
    """Hash tables, each a list of parts; those hashed before are not hashed again."""
    known = {}

    def hashed(*parts, stop=None):
        key = (tuple(map(id, parts)), stop)
        if key not in known:
            folder = tmp_path_factory.mktemp("t")
            for i, part in enumerate(parts):
                pq.write_table(part, folder / f"part-{i}.parquet")
            files = [(f"part-{i}.parquet", folder / f"part-{i}.parquet") for i in range(len(parts))]
            known[key] = hash_rows(files, stop=stop), files, parts
        return known[key]

    return hashed


def with_values(table, name, changes):
    values = table[name].to_numpy().copy()
    for row, value in changes.items():
        values[row] = value
    return table.set_column(table.schema.names.index(name), name, pa.array(values))


def compared(hashed, *parts, stop=None):
    report = compare_rows(hashed(TABLE)[0], hashed(*parts, stop=stop)[0])
    assert json.loads(json.dumps(report.to_dict()))["kind"] == report.kind
    return report


def test_the_same_rows_in_other_files_are_the_same(hashed):
    report = compared(hashed, TABLE.slice(0, 7), TABLE.slice(7))

    assert report.ok
    assert str(report) == "same rows (150,000)"


def test_the_same_rows_in_another_order_are_called_so(hashed):
    report = compared(hashed, TABLE.slice(100), TABLE.slice(0, 100))

    assert (report.kind, report.ok) == ("reordered", False)
    assert str(report) == "same rows in another order (150,000)"


def test_growth_is_told_from_change_by_the_prefix(hashed):
    grown = TABLE, TABLE.slice(0, 10)

    assert str(compared(hashed, *grown, stop=N)) == "10 rows were added after the 150,000 that there were"
    assert compared(hashed, *grown, stop=N).kind == "grown"
    assert compared(hashed, *grown).kind == "grown"  # by the mark of the file after which the new rows come
    once = compared(hashed, LONGER)
    assert (once.kind, once.unchanged, once.unproved) == ("longer", 131_072, N - 131_072)
    assert compared(hashed, LONGER, stop=N).kind == "grown"
    front = TABLE.slice(0, 10), TABLE
    assert compared(hashed, *front, stop=N).kind == "changed"
    assert compared(hashed, TABLE.slice(0, N - 1), stop=N).kind == "changed"


def test_every_table_is_the_growth_of_an_empty_one(hashed):
    empty, whole = hashed(TABLE.slice(0, 0))[0], hashed(TABLE)[0]

    assert compare_rows(empty, whole).kind == "grown"
    assert compare_rows(whole, empty).kind == "changed"


def test_changed_values_are_found_by_block_file_and_column(hashed):
    changed = with_values(with_values(TABLE, "id", {140_000: -1}), "score", {3: 0.5, 140_001: 2})

    report = compared(hashed, changed.slice(0, 100_000), changed.slice(100_000))

    assert [(block.row, block.rows, block.file, block.file_row, block.columns) for block in report.blocks] == [
        (0, 65_536, "part-0.parquet", 0, ("score",)),
        (131_072, 18_928, "part-1.parquet", 31_072, ("id", "score")),
    ]
    assert str(report).splitlines() == [
        "rows changed",
        "  rows 0 … 65,535 (from row 0 of part-0.parquet on) differ in score",
        "  rows 131,072 … 149,999 (from row 31,072 of part-1.parquet on) differ in id, score",
    ]


def test_changed_columns_are_told_apart(hashed):
    wide = TABLE.set_column(2, "score", TABLE["score"].cast(pa.float32())).rename_columns(["id", "term", "score"])
    report = compared(hashed, wide.append_column("more", pa.array(np.zeros(N, np.int8))))

    assert str(report).splitlines() == [
        "rows changed",
        "  column score changed type: double -> float",
        "  column word is now called term",
        "  column more was added (int8)",
    ]
    report = compared(hashed, TABLE.select(["score", "id"]))
    assert str(report).splitlines() == [
        "rows changed",
        "  column word was removed (string)",
        "  columns come in another order",
    ]
    assert report.blocks == ()


def test_a_report_stays_short_and_its_record_is_whole(hashed):
    many = pa.table({f"c{i}": pa.array([i]) for i in range(50)})
    report = compare_rows(hashed(pa.table({"x": ["a"]}))[0], hashed(many)[0])

    assert len(str(report).splitlines()) == 23
    assert str(report).splitlines()[-2] == "  … and 30 more"
    assert len(report.to_dict()["added"]) == 50


def test_versions_by_two_algorithms_cannot_be_compared(hashed):
    version, files, _ = hashed(TABLE.slice(0, 5))

    with pytest.raises(ArgumentValueError, match="by xxh3-128 and by sha256"):
        compare_rows(version, hash_rows(files, "sha256"))


# --- with both tables at hand ---


def test_the_rows_that_differ_are_named_with_their_files_and_columns(hashed):
    changed = with_values(with_values(TABLE, "id", {120_417: -1, 120_418: -1}), "score", {9: np.nan, 120_417: 2})
    new = hashed(changed.slice(0, 100_000), changed.slice(100_000))

    found = first_row_differences(hashed(TABLE)[1], new[1])

    assert (found.count, found.old_rows, found.new_rows, found.columns) == (3, N, N, {"id": 2, "score": 2})
    assert [(row.row, row.old, row.new, row.columns) for row in found.rows] == [
        (9, ("part-0.parquet", 9), ("part-0.parquet", 9), ("score",)),
        (120_417, ("part-0.parquet", 120_417), ("part-1.parquet", 20_417), ("id", "score")),
        (120_418, ("part-0.parquet", 120_418), ("part-1.parquet", 20_418), ("id",)),
    ]
    assert str(found).splitlines()[0] == "3 rows changed, near row 9 of part-0.parquet"
    assert json.loads(json.dumps(found.to_dict()))["rows"][1]["new"] == ["part-1.parquet", 20_417]


def test_only_as_many_rows_are_named_as_asked_for(hashed):
    new = hashed(with_values(TABLE, "id", dict.fromkeys(range(100, 200), 0)))[1]

    for limit in (0, 1, 20, 1000):
        found = first_row_differences(hashed(TABLE)[1], new, limit)
        assert (100, min(limit, 100)) == (found.count, len(found.rows))
    assert str(first_row_differences(hashed(TABLE)[1], new, 2)).endswith("  … and 98 more")


def test_rows_at_the_end_of_one_table_alone_are_counted(hashed):
    found = first_row_differences(hashed(TABLE)[1], hashed(TABLE, TABLE.slice(0, 10))[1])

    assert (found.count, found.old_rows, found.new_rows) == (0, N, N + 10)
    assert str(found) == "number of rows: 150,000 -> 150,010"
    assert (
        str(first_row_differences(hashed(TABLE)[1], hashed(TABLE.slice(0, 7), TABLE.slice(7))[1])) == "no row differs"
    )


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30), st.data())
def test_the_rows_that_differ_are_those_of_a_plain_comparison(tmp_path_factory, old, new, data):
    folder = tmp_path_factory.mktemp("d")

    def files(name, values):
        cut = data.draw(st.integers(0, len(values)))
        made = []
        for i, part in enumerate((values[:cut], values[cut:])):
            pq.write_table(pa.table({"a": pa.array(part, pa.int64())}), folder / f"{name}{i}.parquet", row_group_size=7)
            made.append((f"{name}{i}", folder / f"{name}{i}.parquet"))
        return [(f"{name}.parquet", path) for name, path in made]

    found = first_row_differences(files("old", old), files("new", new), 5)

    unlike = [row for row, (one, other) in enumerate(zip(old, new, strict=False)) if one != other]
    assert (len(unlike), unlike[:5]) == (found.count, [row.row for row in found.rows])
    assert (len(old), len(new)) == (found.old_rows, found.new_rows)


def test_a_last_block_of_another_length_is_not_said_to_differ(hashed):
    unknown = "whether those that both have differ cannot be told from the record"
    fewer = TABLE.slice(0, N - 10)
    report = compared(hashed, fewer)

    assert [(block.row, block.rows, block.old_rows) for block in report.blocks] == [(131_072, 18_918, 18_928)]
    assert str(report).splitlines() == [
        "rows changed",
        "  number of rows: 150,000 -> 149,990",
        f"  rows 131,072 … 149,989 (from row 131,072 of part-0.parquet on) were 18,928 rows; {unknown}",
    ]
    record = report.to_dict()
    assert (record["changed"], record["unchanged"], record["unproved"]) == ([], 131_072, 18_918)
    assert record["blocks"][0]["old_rows"] == 18_928
