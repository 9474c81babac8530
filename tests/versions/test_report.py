"""A report for people is short and safe to print, one for machines is whole, one for a page is Markdown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.versions.report import MOST, Change, Report
from tests.versions.entries import ENTRIES, build, some
from tests.versions.test_manifest import of_rows, rows_version

SAME = {"old_digest": "xxh3-128:" + "0" * 32, "new_digest": "xxh3-128:" + "0" * 32, "files": 3, "bytes": 1234567}
COUNTED = "3 files, 1,234,567 bytes (2 read, 1 taken from the cache)"
OTHER = {**SAME, "new_digest": "xxh3-128:" + "1" * 32}
CHANGES = (
    Change("a", 5, 5, "0" * 32, "1" * 32, "content", 4096),
    Change("b", 1000, 998, "0" * 32, "1" * 32, "size"),
    Change("c", 5, 5, "0" * 32, "1" * 32, "kind"),
)


def test_the_same_version_is_one_line():
    assert str(Report(**SAME)) == "same: 3 files, 1,234,567 bytes"
    assert str(Report(**{**SAME, "files": 1}, read=1, trusted=0)) == (
        "same: 1 file, 1,234,567 bytes (1 read, 0 taken from the cache)"
    )


def test_a_report_for_people_says_what_where_and_how_much():
    report = Report(
        **OTHER,
        added=("n",),
        removed=("m",),
        changed=CHANGES,
        renamed=(("x", "y"),),
        notes=("look here",),
        read=2,
        trusted=1,
    )

    assert str(report).splitlines() == [
        f"different: 1 added, 1 removed, 3 changed, 1 renamed; {COUNTED}",
        f"  old  {OTHER['old_digest']}",
        f"  new  {OTHER['new_digest']}",
        "added",
        "  n",
        "removed",
        "  m",
        "changed",
        "  a: other content, 5 bytes as before, from byte 4,096 on",
        "  b: 1,000 -> 998 bytes",
        "  c: a symbolic link became a file, or a file a link",
        "renamed",
        "  x -> y",
        "note: look here",
    ]


@pytest.mark.parametrize("count", [MOST, MOST + 1, 100_000])
def test_a_report_for_people_has_at_most_twenty_lines_of_a_kind(count):
    report = Report(**OTHER, added=tuple(map(str, range(count))), removed=("r",))

    lines = str(report).splitlines()

    more = count - MOST
    assert lines[3 : 4 + MOST] == ["added", *(f"  {i}" for i in range(MOST))]
    assert lines[4 + MOST] == (f"  … and {more:,} more" if more else "removed")
    assert len(report.to_dict()["added"]) == count
    assert len(report.to_markdown().splitlines()) < 25


@given(ENTRIES, ENTRIES)
def test_no_name_of_a_file_can_draw_on_the_terminal_or_the_page(old, new):
    report = build(old).diff(build(new))
    findings = len(report.added) + len(report.removed) + len(report.changed) + len(report.renamed)

    for text in (str(report), report.to_markdown()):
        text.encode("utf-8")
        assert all(line.isprintable() for line in text.split("\n"))
    assert len(str(report).split("\n")) <= 7 + findings
    assert str(report).startswith("same: " if report.ok else "different: ")


@given(ENTRIES, ENTRIES)
def test_a_report_for_machines_is_whole_and_plain_json(old, new):
    report = build(old).diff(build(new))

    record = json.loads(json.dumps(report.to_dict()))

    assert set(record) == {"ok", "grown", "old_digest", "new_digest", "files", "bytes", "read", "trusted", "added",
                           "read_files", "trusted_files", "quick", "unproved", "removed", "changed", "renamed", "notes",
                           "rows"}  # fmt: skip
    assert (record["ok"], record["grown"], record["files"]) == (report.ok, report.grown, len(new))
    assert (tuple(record["added"]), tuple(record["removed"])) == (report.added, report.removed)
    assert tuple(Change(**change) for change in record["changed"]) == report.changed
    assert tuple((pair["old"], pair["new"]) for pair in record["renamed"]) == report.renamed


def test_the_files_that_were_read_are_named_for_machines_and_on_request():
    report = Report(**SAME, read=2, trusted=1, read_files=("a", "c"), trusted_files=("b\n",))

    assert str(report) == f"same: {COUNTED}"
    assert report.to_text(verbose=True).splitlines() == [
        f"same: {COUNTED}", "read", "  a", "  c", "taken from the cache", "  b\\n",
    ]  # fmt: skip
    assert (report.to_dict()["read_files"], report.to_dict()["trusted_files"]) == (["a", "c"], ["b\n"])


@given(st.sets(st.integers(0, 2999)))
def test_many_files_that_were_read_are_stretches_of_the_listing(trusted):
    paths = [f"{i:04d}" for i in range(3000)]
    kinds = {True: [], False: []}
    for i, path in enumerate(paths):
        kinds[i in trusted].append(path)
    record = Report(**SAME, read_files=tuple(kinds[False]), trusted_files=tuple(kinds[True])).to_dict()

    for name, found in (("read_files", kinds[False]), ("trusted_files", kinds[True])):
        told = record[name]
        if len(found) > 1000:
            assert len(told) <= len(kinds[name == "read_files"]) + 1
            told = [path for first, last, _ in told for path in paths[paths.index(first) : paths.index(last) + 1]]
            assert sum(count for _, _, count in record[name]) == len(found)
        assert told == found


def test_a_page_of_markdown_is_this():
    report = Report(**OTHER, added=("a`b", "|x|", "<b>"), changed=CHANGES[1:2], notes=("look `here`",))

    assert report.to_markdown() == (
        "**Dataset different: 3 added, 1 changed; 3 files, 1,234,567 bytes**\n\n"
        f"`{OTHER['old_digest']}` → `{OTHER['new_digest']}`\n\n"
        "added (3)\n\n- `` a`b ``\n- `|x|`\n- `<b>`\n\n"
        "changed (1)\n\n- `b: 1,000 -> 998 bytes`\n\n"
        "- `` look `here` ``\n"
    )
    assert Report(**SAME).to_markdown() == f"**Dataset same: 3 files, 1,234,567 bytes**\n\n`{SAME['new_digest']}`\n"


@given(st.text("`ab \n", min_size=1, max_size=12).filter(lambda name: name.strip()))
def test_backticks_in_a_name_end_no_code_span(name):
    line = Report(**OTHER, added=(name,)).to_markdown().split("\n")[6]

    fence = line[2:].split(" ")[0] if line.startswith("- ``") else "`"
    inner = line[2 + len(fence) : -len(fence)]
    assert line == f"- {fence}{inner}{fence}"
    assert fence not in inner


def test_growth_is_said():
    report = some(3).diff(some(5))

    assert report.grown
    assert str(report).startswith("different: 2 added, grown at the end only; 5 files")


def test_rows_are_told_with_the_files():
    old, new = of_rows(rows_version()), of_rows(rows_version("1" * 32, blocks=(("1" * 16,),)))

    assert str(old.diff(old)) == "same: 2 files, 5 rows\nsame rows (5)"
    report = old.diff(new)
    assert str(report.rows) in str(report)
    assert report.to_dict()["rows"]["kind"] == "changed"
    assert "```text\nrows changed" in report.to_markdown()


def test_a_digest_by_chance_the_same_hides_no_difference():
    assert not Report(**SAME, changed=CHANGES[:1]).ok
