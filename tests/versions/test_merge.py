"""Parts hashed apart and merged are the whole; parts that are not all of one whole are refused and named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detdata.errors import ArgumentTypeError, ArgumentValueError
from detdata.versions.columns import encode_paths, listing_digest
from detdata.versions.ignore import Rules
from detdata.versions.manifest import Manifest
from detdata.versions.merge import merge
from tests.versions.entries import ENTRIES, build, key

FILES = {f"{i:03d}": (i, f"{i:032x}", "file") for i in range(10)}


def listing(entries):
    paths = sorted(entries, key=key)
    return listing_digest(encode_paths(paths), [entries[path][0] for path in paths])


def cut(entries, n, **ways):
    """The manifests of n parts, as `hash_dataset(…, part=(i, n))` gives them."""
    paths = sorted(entries, key=key)
    return [
        build({path: entries[path] for path in paths[i::n]}, part=(i + 1, n, listing(entries)), **ways)
        for i in range(n)
    ]


@given(ENTRIES, st.integers(1, 6), st.randoms(use_true_random=False))
def test_parts_in_any_order_make_the_whole(entries, n, random):
    rules = Rules(exclude=("*.tmp",))
    parts = [
        Manifest.from_text(part.to_text()) for part in cut(entries, n, rules=rules, select=("a", "b"), piece_size=7)
    ]
    random.shuffle(parts)

    whole = merge(parts)

    assert whole == build(entries, piece_size=7)
    assert (whole.part, whole.rules, whole.select, whole.piece_size) == (None, rules, ("a", "b"), 7)


def test_parts_may_come_from_any_iterable():
    assert merge(iter(cut(FILES, 3))) == build(FILES)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([], "parts is empty"),
        (cut(FILES, 4)[:3], "missing: part 4 of 4"),
        (cut(FILES, 4)[1::2], "missing: part 1, 3 of 4"),
        (cut(FILES, 30)[:2], r"missing: part 3, 4, .*, 12 and more of 30"),
        ([*cut(FILES, 2), cut(FILES, 2)[1]], "given twice: part 2 of 2"),
        ([build(FILES)], "part 1 is of a whole dataset"),
        ([cut(FILES, 2)[0], build(FILES)], "part 2 is of a whole dataset"),
        (
            [cut(FILES, 2)[0], cut({**FILES, "x": (1, "1" * 32, "file")}, 2)[1]],
            "part 2 is one of 2 parts of the listing",
        ),
        ([cut(FILES, 2)[0], cut(FILES, 3)[1]], "part 2 is one of 3 parts"),
        (
            [cut(FILES, 2)[0], cut(FILES, 2, piece_size=1)[1]],
            "part 2 was made with another piece_size than part 1: 1 and 0",
        ),
        ([cut(FILES, 2)[0], cut(FILES, 2, rules=Rules(exclude=("x",)))[1]], "another rules"),
        ([cut(FILES, 2)[0], cut(FILES, 2, select=("x",))[1]], "another select"),
        ([cut({}, 2)[0], cut({}, 2, algorithm="sha256")[1]], "another algorithm"),
    ],
)
def test_parts_that_are_not_all_of_one_whole_are_refused_and_named(parts, match):
    with pytest.raises(ArgumentValueError, match=match):
        merge(parts)


def test_a_part_that_has_lost_or_gained_a_file_is_found():
    digest = listing(FILES)
    first, second = dict(list(FILES.items())[:5]), dict(list(FILES.items())[5:])
    for one, other, match in (
        (first, dict(list(second.items())[1:]), "not the listing"),
        (first, {**second, "999": (1, "1" * 32, "file")}, "not the listing"),
        (first, {**second, "000": FILES["000"]}, "'000' is in part 1 and in part 2"),
        (first, {**second, "009": (8, "9" * 32, "file")}, "not the listing"),
    ):
        with pytest.raises(ArgumentValueError, match=match):
            merge([build(one, part=(1, 2, digest)), build(other, part=(2, 2, digest))])


def test_a_part_that_was_loaded_is_named_by_its_file(tmp_path):
    parts = cut(FILES, 2)
    for number, part in enumerate((parts[0], cut(FILES, 2, piece_size=1)[1])):
        part.save(tmp_path / f"{number}.lock.json")

    with pytest.raises(ArgumentValueError, match=r"1\.lock\.json.* than part 1 .*0\.lock\.json"):
        merge([Manifest.load(tmp_path / f"{number}.lock.json") for number in range(2)])


def test_what_is_no_manifest_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"parts\[1\]"):
        merge([cut(FILES, 2)[0], "1.lock.json"])
