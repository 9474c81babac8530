"""What has become of tables is told: rows that differ, files that are no table, columns of another type."""

import json
import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detdata import DatasetError, Manifest, hash_dataset
from detdata.cli import main
from tests.versions.trees import closed_folder

N = 1000


def table(start=0, rows=N, **changes):
    columns = {
        "id": pa.array(range(start, start + rows)),
        "price": pa.array([i / 3 for i in range(start, start + rows)]),
    }
    return pa.table({**columns, **changes})


@pytest.fixture
def data(tmp_path):
    """Three shards, and their manifest."""
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(3):
        pq.write_table(table(i * N), folder / f"part-{i}.parquet")
    return folder, hash_dataset(folder, content="rows")


def verified(manifest, folder, **ways):
    report = manifest.verify(folder, **ways)
    assert not report.ok
    assert not report.grown
    return report, json.loads(json.dumps(report.to_dict()))["rows"]


def test_an_emptied_file_is_a_difference_with_its_reason(data):
    folder, manifest = data
    (folder / "part-1.parquet").write_bytes(b"")

    report, rows = verified(manifest, folder)

    assert rows["kind"] == "unreadable"
    assert rows["unreadable"] == [{"file": "part-1.parquet", "reason": "cannot be read: Parquet file size is 0 bytes"}]
    assert "part-1.parquet: cannot be read: Parquet file size is 0 bytes" in str(report)
    assert (report.new_digest, report.to_dict()["new_digest"]) == ("", None)
    assert "none: the files are not one table" in str(report)
    assert "none: the files are not one table" in report.to_markdown()


def test_a_torn_file_and_one_of_another_length_are_both_told(data):
    folder, manifest = data
    whole = (folder / "part-0.parquet").read_bytes()
    (folder / "part-0.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(table(2 * N, 7), folder / "part-2.parquet")

    report, rows = verified(manifest, folder)

    assert [fault["file"] for fault in rows["unreadable"]] == ["part-0.parquet"]
    assert [(c.path, c.old_size, c.new_size, c.kind) for c in report.changed] == [("part-2.parquet", N, 7, "size")]
    assert (rows["old_rows"], rows["new_rows"]) == (3 * N, N + 7)


@pytest.mark.parametrize("name", ["notes.txt", "README", "z.bin"])
def test_a_file_that_is_no_table_is_named_and_the_rest_is_still_compared(data, name):
    folder, manifest = data
    (folder / name).write_bytes(b"hello")

    report, rows = verified(manifest, folder)

    assert report.added == (name,)
    assert [fault["file"] for fault in rows["unreadable"]] == [name]
    assert "is no table that is known by its name" in rows["unreadable"][0]["reason"]
    assert any("without the files that are no part of it: same rows (3,000)" in note for note in report.notes)


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_the_shard_whose_column_changed_its_type_is_the_one_that_is_named(data, shard):
    folder, manifest = data
    prices = pa.array([str(i) for i in range(N)])
    pq.write_table(table(shard * N, price=prices), folder / f"part-{shard}.parquet")

    report, rows = verified(manifest, folder)

    assert rows["schema"] == [
        {"file": f"part-{shard}.parquet", "change": "retyped", "column": "price", "old": "double", "new": "string"}
    ]
    assert f"part-{shard}.parquet: column price changed type: double -> string" in str(report)


def test_columns_that_one_shard_alone_has_or_lacks_are_named(data):
    folder, manifest = data
    pq.write_table(table(rows=5, more=pa.array([True] * 5)), folder / "part-0.parquet")
    pq.write_table(table(N).select(["id"]), folder / "part-1.parquet")
    pq.write_table(table(2 * N).select(["price", "id"]), folder / "part-2.parquet")

    report, rows = verified(manifest, folder)

    assert [(c["file"], c["change"], c["column"], c["old"], c["new"]) for c in rows["schema"]] == [
        ("part-0.parquet", "added", "more", None, "bool"),
        ("part-1.parquet", "removed", "price", "double", None),
    ]
    assert "part-2.parquet: its columns come in another order" in str(report)


def test_nothing_left_is_removed_and_not_an_error(data):
    folder, manifest = data
    for file in folder.iterdir():
        file.unlink()

    report, rows = verified(manifest, folder)

    assert report.removed == manifest.paths
    assert rows["unreadable"] == []


@pytest.mark.parametrize("shard", [0, 1])
def test_json_lines_that_contradict_what_was_are_the_ones_at_fault(tmp_path, shard):
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(2):
        (folder / f"{i}.jsonl").write_text('{"a": 1, "b": [2.5]}\n{"a": null}\n')
    manifest = hash_dataset(folder, content="rows")
    (folder / f"{shard}.jsonl").write_text('{"a": "x", "b": [2]}\n')

    _, rows = verified(manifest, folder)
    assert [(c["file"], c["column"], c["old"], c["new"]) for c in rows["schema"]] == [
        (f"{shard}.jsonl", "a", "int64", "string")
    ]
    (folder / f"{shard}.jsonl").write_text('{"a": 1, "b": ["x"]}\n')
    _, rows = verified(manifest, folder)
    assert [fault["file"] for fault in rows["unreadable"]] == [f"{shard}.jsonl"]
    assert "column b[] holds string where lines before have double" in rows["unreadable"][0]["reason"]
    (folder / f"{shard}.jsonl").write_text("")  # no lines: a table without rows, as JSON has it
    _, rows = verified(manifest, folder)
    assert (rows["kind"], rows["unreadable"]) == ("changed", [])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such permissions")
def test_a_file_that_permission_keeps_shut_is_an_error_and_says_nothing_about_the_data():
    with closed_folder() as root:
        folder = root / "open"
        is_root = os.getuid() == 0
        if is_root:
            os.seteuid(0)
        (folder / "x").unlink()
        for i in range(2):
            pq.write_table(table(i * N), folder / f"part-{i}.parquet")
        manifest = hash_dataset(folder, content="rows")
        (folder / "part-1.parquet").chmod(0)
        if is_root:
            os.seteuid(65534)
        for run in (manifest.verify, lambda folder: hash_dataset(folder, content="rows")):
            with pytest.raises(DatasetError, match=r"part-1\.parquet: cannot be read \(.*Permission denied"):
                run(folder)
        if is_root:
            os.seteuid(0)
        (folder / "part-0.parquet").write_bytes(b"")
        if is_root:
            os.seteuid(65534)
        with pytest.raises(DatasetError, match=r"part-1\.parquet: cannot be read \(.*Permission denied"):
            manifest.verify(folder)


def test_the_command_line_ends_with_1_where_files_are_no_table_any_more(data, tmp_path):
    from click.testing import CliRunner

    folder, manifest = data
    manifest.save(tmp_path / "data.lock.json")
    (folder / "part-1.parquet").write_bytes(b"PAR1")
    arguments = ["verify", str(tmp_path / "data.lock.json"), "--root", str(folder), "--no-cache"]

    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, "part-1.parquet: cannot be read" in done.output) == (1, True)
    record = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert record["rows"]["unreadable"][0]["file"] == "part-1.parquet"


# --- which rows ---


def changed_price(rows):
    return pa.array([-1.0 if i in rows else i / 3 for i in range(N, 2 * N)])


def test_beside_a_good_copy_the_very_rows_are_told(data, tmp_path):
    folder, manifest = data
    copy = tmp_path / "copy"
    copy.mkdir()
    for i in range(3):
        pq.write_table(table(i * N), copy / f"part-{i}.parquet", row_group_size=77)
    pq.write_table(table(N, price=changed_price({N + 17, N + 420})), folder / "part-1.parquet")

    _, rows = verified(manifest, folder)
    assert rows["changed"] == [{"file": "part-0.parquet", "row": 0, "rows": 3 * N, "column": "price"}]
    assert (rows["count"], rows["same_rows_other_order"]) == (None, False)

    report, rows = verified(manifest, folder, compare_to=copy)
    assert rows["changed"] == [
        {"file": "part-1.parquet", "row": 17, "rows": 1, "column": "price"},
        {"file": "part-1.parquet", "row": 420, "rows": 1, "column": "price"},
    ]
    assert rows["count"] == 2
    assert "2 rows changed, near row 17 of part-1.parquet" in str(report)
    assert report.notes == ()


def test_beside_a_good_copy_rows_that_were_cut_off_are_no_rows_that_differ(data, tmp_path):
    folder, manifest = data
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    pq.write_table(table(2 * N, rows=N - 7), folder / "part-2.parquet")

    _, rows = verified(manifest, folder)
    assert (rows["changed"], rows["count"], rows["unproved"]) == ([], None, 3 * N - 7)
    report, rows = verified(manifest, folder, compare_to=copy)
    assert (rows["changed"], rows["count"], rows["unproved"]) == ([], 0, 0)
    assert str(report).splitlines()[-2:] == [
        "  number of rows: 3,000 -> 2,993",
        "  no row that both have differs in a column that both have",
    ]


def test_a_copy_that_is_none_is_told(data, tmp_path):
    folder, manifest = data
    other = tmp_path / "other"
    other.mkdir()
    pq.write_table(table(price=pa.array([0.0] * N)), folder / "part-0.parquet")

    report, rows = verified(manifest, folder, compare_to=other)
    assert rows["count"] is None
    assert "which rows differ could not be told: part-0.parquet: cannot be read" in report.notes[0]
    for i in range(3):
        pq.write_table(table(rows=3), other / f"part-{i}.parquet")
    report, _ = verified(manifest, folder, compare_to=other)
    assert "does not hold the old rows" in report.notes[0]
    with pytest.raises(DatasetError, match="no such folder; compare_to is"):
        manifest.verify(folder, compare_to=tmp_path / "nowhere")


def test_the_same_rows_in_another_order_are_that_and_nothing_more(data, tmp_path):
    from detdata.versions.compare import compare
    from detdata.versions.means import Means

    folder, manifest = data
    copy = tmp_path / "copy"
    copy.mkdir()
    for i in range(3):
        pq.write_table(table((2 - i) * N), copy / f"part-{i}.parquet")

    for report in (
        manifest.verify(copy, compare_to=folder),
        compare(str(folder), str(copy), ways={"content": "rows"}, means=Means()),
    ):
        rows = report.to_dict()["rows"]
        assert (rows["kind"], rows["same_rows_other_order"], rows["changed"]) == ("reordered", True, [])
        assert "same rows in another order (3,000)" in str(report)
        assert "changed" not in str(report)


def test_two_manifests_of_grown_tables_are_growth_as_far_as_they_tell():
    from detdata.rows import BLOCK_ROWS
    from tests.versions.test_manifest import of_rows, rows_version

    def manifest(rows, *marks, digest="0" * 32):
        blocks = tuple((mark * 16,) for mark in marks)
        return of_rows(
            rows_version(digest, rows=rows, blocks=blocks, files=(("a.parquet", 5), ("b.parquet", rows - 5)))
        )

    old = manifest(2 * BLOCK_ROWS, "1", "2")
    grown = old.diff(manifest(2 * BLOCK_ROWS + 5, "1", "2", "3", digest="1" * 32))
    assert (grown.grown, grown.rows.unchanged, grown.rows.unproved) == (True, 2 * BLOCK_ROWS, 0)
    other = old.diff(manifest(2 * BLOCK_ROWS + 5, "1", "4", "3", digest="1" * 32))
    assert (other.grown, other.rows.kind, other.rows.unchanged) == (False, "changed", BLOCK_ROWS)

    partial = manifest(BLOCK_ROWS + 7, "1", "2")
    longer = partial.diff(manifest(BLOCK_ROWS + 9, "1", "3", digest="1" * 32))
    assert (longer.grown, longer.rows.kind) == (False, "longer")
    assert (longer.rows.unchanged, longer.rows.unproved) == (BLOCK_ROWS, 7)
    assert str(longer.rows).splitlines() == [
        "2 rows more than the 65,543 that there were",
        "  the first 65,536 are as before, by the marks of their blocks",
        "  of the other 7 old rows two manifests cannot tell: verify the older one against the data",
    ]
    assert longer.to_dict()["rows"]["changed"] == []
    shrunk = partial.diff(manifest(BLOCK_ROWS, "1", digest="1" * 32))
    assert (shrunk.grown, shrunk.rows.kind) == (False, "changed")


def test_growth_is_proved_by_the_data(data, tmp_path):
    folder, manifest = data
    pq.write_table(table(3 * N), folder / "part-3.parquet")

    report = Manifest.from_text(manifest.to_text()).verify(folder)

    assert report.grown
    assert report.added == ("part-3.parquet",)
    assert (report.rows.unchanged, report.rows.unproved) == (3 * N, 0)
    grown = manifest.diff(hash_dataset(folder, content="rows"))
    assert (grown.grown, grown.rows.unchanged, grown.rows.unproved) == (True, 3 * N, 0)


@pytest.mark.parametrize("change", ["in front", "within", "after, in the last file"])
def test_two_manifests_tell_growth_by_the_ends_of_files_and_take_nothing_else_for_it(data, change):
    folder, manifest = data
    if change == "in front":
        pq.write_table(table(3 * N), folder / "a.parquet")
    elif change == "within":
        pq.write_table(table(7, N), folder / "part-1.parquet")
        pq.write_table(table(3 * N), folder / "part-3.parquet")
    else:
        pq.write_table(table(2 * N, N + 5), folder / "part-2.parquet")

    report = manifest.diff(hash_dataset(folder, content="rows"))

    assert (report.grown, report.rows.kind) == (False, "longer" if change.startswith("after") else "changed")
    assert manifest.verify(folder).grown == change.startswith("after")
