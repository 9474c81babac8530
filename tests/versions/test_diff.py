"""What a report says was changed is what was changed: against edits that were made, and against a naive comparison."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import ArgumentValueError
from detdata.versions.ignore import Rules
from detdata.versions.manifest import Manifest
from detdata.versions.report import Change
from tests.versions.entries import ENTRIES, PATHS, build, key, some
from tests.versions.test_manifest import of_rows, rows_version

FEW = st.dictionaries(
    st.sampled_from(["a", "a/b", "a.b", "b", "b/a", "é", "\udcff", "\U0001f600", "z"]),
    st.tuples(st.integers(0, 2), st.sampled_from(["0" * 32, "1" * 32]), st.sampled_from(["file", "link"])),
)


def naive(old, new):
    """Added, removed, changed and renamed, looked for one by one in dictionaries."""
    added = sorted(new.keys() - old.keys(), key=key)
    removed = sorted(old.keys() - new.keys(), key=key)
    changed = sorted((path for path in old.keys() & new.keys() if old[path] != new[path]), key=key)
    renamed = []
    for before in list(removed):
        for after in list(added):
            if old[before] == new[after]:
                renamed.append((before, after))
                removed.remove(before)
                added.remove(after)
                break
    return added, removed, changed, renamed


def check(report, old, new):
    added, removed, changed, renamed = naive(old, new)
    assert [added, removed] == [list(report.added), list(report.removed)]
    assert changed == [change.path for change in report.changed]
    assert renamed == list(report.renamed)
    for change in report.changed:
        (size, hex, kind), (new_size, new_hex, new_kind) = old[change.path], new[change.path]
        what = "kind" if kind != new_kind else "size" if size != new_size else "content"
        assert change == Change(change.path, size, new_size, hex, new_hex, what)
    assert report.ok == (old == new)
    assert report.grown == (
        old != new and all(new.get(path) == row for path, row in old.items())
        and all(key(path) > max(map(key, old), default=b"") for path in new.keys() - old.keys())
    )  # fmt: skip
    assert (report.files, report.bytes) == (len(new), sum(size for size, _, _ in new.values()))


@given(FEW, FEW)
def test_few_files_with_few_contents_compare_as_they_do_one_by_one(old, new):
    check(build(old).diff(build(new)), old, new)


@given(ENTRIES, ENTRIES, st.data())
def test_any_files_compare_as_they_do_one_by_one(old, other, data):
    kept = data.draw(st.lists(st.sampled_from(sorted(old, key=key)), unique=True)) if old else []
    new = {**other, **{path: old[path] for path in kept}}

    check(build(old).diff(build(new)), old, new)


@given(st.data())
def test_the_report_names_exactly_the_edits_that_were_made(data):
    """Every file has a content of its own, so no edit can be taken for another."""
    content = iter(range(1, 10**6))
    paths = data.draw(st.lists(PATHS, min_size=1, max_size=30, unique=True))
    fates = {
        path: data.draw(st.sampled_from(["keep", "keep", "remove", "content", "size", "kind", "rename", "add"]))
        for path in paths
    }
    old, new, renamed, changed = {}, {}, set(), {}
    for path, fate in fates.items():
        number = next(content)
        row = (number, f"{number:032x}", "file")
        if fate != "add":
            old[path] = row
        match fate:
            case "keep" | "add":
                new[path] = row
            case "rename":
                target = data.draw(PATHS.filter(lambda name: name not in fates and name not in new))
                new[target] = row
                renamed.add((path, target))
            case "content" | "size" | "kind":
                hex = f"{next(content):032x}"
                new[path] = {
                    "content": (row[0], hex, "file"),
                    "size": (10**9, hex, "file"),
                    "kind": (row[0], hex, "link"),
                }[fate]
                changed[path] = fate

    report = build(old).diff(build(new))

    assert {path for path, fate in fates.items() if fate == "add"} == set(report.added)
    assert {path for path, fate in fates.items() if fate == "remove"} == set(report.removed)
    assert changed == {change.path: change.kind for change in report.changed}
    assert renamed == set(report.renamed)
    check(report, old, new)


@given(ENTRIES, st.lists(PATHS, min_size=1, max_size=4, unique=True))
def test_files_that_come_after_all_others_are_growth_and_any_other_edit_is_none(old, more):
    last = max(old, key=key, default="")
    later = {f"{last}~{i}" if last else path: (1, f"{i:032x}", "file") for i, path in enumerate(more)}

    grown = build(old).diff(build({**old, **later}))

    assert grown.grown
    assert sorted(grown.added, key=key) == list(grown.added) == sorted(later, key=key)
    assert not grown.ok
    if old:
        path, (size, hex, kind) = next(iter(old.items()))
        changed = {**old, **later, path: (size ^ 1, hex, kind)}
        assert not build(old).diff(build(changed)).grown
        assert not build({**old, **later}).diff(build(old)).grown
        assert not build(old).diff(build(old)).grown


@pytest.mark.parametrize("count", [63, 64, 65, 127, 128, 129, 1000])
def test_long_lists_are_compared_in_strides_without_a_slip(count):
    old = {f"{i:05d}": (i, f"{i:032x}", "file") for i in range(count)}
    for at in {0, 1, 62, 63, 64, 65, count // 2, count - 2, count - 1}:
        path = f"{at:05d}"
        without = {name: row for name, row in old.items() if name != path}
        for new in ({**old, path: (at, "f" * 32, "file")}, without, {**without, path + "x": (0, "e" * 32, "file")}):
            check(build(old).diff(build(new)), old, new)
            check(build(new).diff(build(old)), new, old)


def test_renames_pair_equal_files_one_to_one_in_byte_order():
    same = (5, "5" * 32, "file")
    old, new = build(dict.fromkeys("dcba", same)), build(dict.fromkeys("zyx", same))

    report = old.diff(new)

    assert report.renamed == (("a", "x"), ("b", "y"), ("c", "z"))
    assert (report.removed, report.added) == (("d",), ())


@pytest.mark.parametrize(
    ("ways", "named"),
    [
        ({"algorithm": "sha256"}, "algorithm"),
        ({"piece_size": 4}, "piece_size"),
        ({"part": (1, 2, "0" * 32)}, "merge the parts"),
    ],
)
def test_versions_made_in_different_ways_are_not_compared(ways, named):
    one, other = some(0), some(0, **ways)

    for pair in ((one, other), (other, one)):
        with pytest.raises(ArgumentValueError, match=named):
            pair[0].diff(pair[1])


def test_another_selection_and_other_rules_are_noted_and_count_for_nothing():
    old, new = some(2), some(2, select=("a", "b", "c", "d", "e"), rules=Rules(exclude=("*.tmp",)))

    report = old.diff(new)

    assert report.ok
    assert report.notes[0] == "other paths were asked for: . before, a, b, c and 2 more now"
    assert "rules" in report.notes[1]


def test_versions_of_rows_are_compared_by_their_rows():
    old, new = of_rows(rows_version()), of_rows(rows_version("1" * 32, blocks=(("1" * 16,),)))
    renamed = replace(rows_version(), files=(("c.parquet", 2), ("d.parquet", 3)))

    assert old.diff(old).ok
    assert old.diff(old).rows.kind == "same"
    report = old.diff(new)
    assert (report.ok, report.rows.kind, report.changed, report.grown) == (False, "changed", (), False)
    moved = old.diff(of_rows(renamed))
    assert moved.ok  # the same rows, in other files
    assert (moved.added, moved.removed, moved.renamed) == (("c.parquet", "d.parquet"), ("a.parquet", "b.parquet"), ())
    with pytest.raises(ArgumentValueError, match="content"):
        old.diff(Manifest.build([], [], []))
