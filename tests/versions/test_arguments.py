"""A wrong argument is named at once: what it must be, what it is, and how to go on."""

import os
import threading

import pytest

from detdata import Manifest, hash_dataset, merge_manifests
from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError
from tests.versions.trees import PLAIN, make_tree

TYPE, VALUE = ArgumentTypeError, ArgumentValueError


@pytest.fixture
def root(tmp_path):
    return make_tree(tmp_path / "data", PLAIN)


WRONG = [
    ({"executor": 4}, TYPE, r"executor must be a concurrent\.futures\.Executor, such as .*; got 4 of type int"),
    ({"executor": "threads"}, TYPE, "executor must be"),
    ({"executor": threading.Thread}, TYPE, "executor must be"),
    ({"workers": 0}, VALUE, "workers must be at least 1, got 0; None lets detdata choose"),
    ({"workers": -1}, VALUE, "workers must be at least 1, got -1"),
    ({"workers": 1.5}, TYPE, r"workers must be an integer, got 1\.5 of type float"),
    ({"workers": True}, TYPE, "workers must be an integer, got True"),
    ({"cache": 3}, TYPE, "cache must be a path, a folder for digests, or None .*; got 3 of type int"),
    ({"cache": b"digests"}, TYPE, r"cache must be a path, .*; got b'digests' of type bytes"),
    ({"cache": ""}, VALUE, "cache must be a path, .*; '' is none"),
    ({"progress": "bar"}, TYPE, "progress must be a function of one HashProgress, or None; got 'bar' of type str"),
    ({"include": None}, TYPE, r"include must be a list of gitignore patterns such as .*, \(\) for none; got None"),
    ({"include": "*.txt"}, TYPE, r"include must be a list of patterns, got '\*\.txt'; write \['\*\.txt'\]"),
    ({"include": [1]}, TYPE, r"include must be a list of gitignore patterns .* got \[1\]"),
    ({"exclude": b"x"}, TYPE, "exclude must be a list of gitignore patterns .* got b'x' of type bytes"),
    ({"exclude": {"a": 1}}, TYPE, "exclude must be a list"),
    ({"algorithm": 5}, TYPE, "algorithm must be the name of one, got 5 of type int"),
    ({"algorithm": None}, TYPE, "algorithm"),
    ({"content": 5}, VALUE, "content must be one of bytes, rows; got 5"),
    ({"paths": []}, VALUE, "paths is an empty list; name at least one folder, file or glob"),
    ({"paths": 5}, TYPE, "paths must be a path or a list of paths, got 5"),
    ({"paths": None}, TYPE, "paths must be a path or a list of paths, got None"),
    ({"paths": ""}, VALUE, "paths: '' is no path; name a folder, a file or a glob"),
    ({"paths": b"data"}, TYPE, "paths must be"),
    ({"content": "rows", "symlinks": "record"}, VALUE, "symlinks='record' takes a link's own text, which has no rows"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "words"), WRONG)
def test_hash_dataset_names_what_is_wrong(root, arguments, error, words):
    with pytest.raises(error, match=words) as caught:
        hash_dataset(**{"paths": root, **arguments})
    assert isinstance(caught.value, DetdataError)


def test_a_cache_that_is_a_file_is_refused(root, tmp_path):
    (tmp_path / "digests").write_bytes(b"")

    for run in (hash_dataset, lambda root, cache: hash_dataset(root).verify(root, cache=cache)):
        with pytest.raises(ArgumentValueError, match=r"cache must be a folder, and .*digests' is a file"):
            run(root, cache=tmp_path / "digests")


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (None, TYPE, "root must be a path, the folder that was hashed; got None of type NoneType"),
        (b"", TYPE, "root must be a path, .*; got b'' of type bytes"),
        (5, TYPE, "root must be a path"),
        ("", VALUE, "root must be a path, the folder that was hashed; '' is none"),
        ("a\0b", VALUE, "root must be a path"),
    ],
)
def test_verify_names_what_is_wrong_with_the_root(root, value, error, words):
    with pytest.raises(error, match=words):
        hash_dataset(root).verify(value)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"executor": 1}, TYPE, "executor must be"),
        ({"progress": 1}, TYPE, "progress must be"),
        ({"cache": 1}, TYPE, "cache must be"),
        ({"compare_to": 1}, TYPE, "compare_to must be a path, the folder that holds a good copy; got 1"),
        ({"compare_to": ""}, VALUE, "compare_to must be a path"),
        ({"quick": "false"}, TYPE, "quick must be True or False; got 'false' of type str"),
        ({"quick": None}, TYPE, "quick must be True or False; got None"),
    ],
)
def test_verify_names_what_is_wrong_with_the_rest(root, arguments, error, words):
    with pytest.raises(error, match=words):
        hash_dataset(root).verify(root, **arguments)


@pytest.mark.parametrize("value", [None, 5, "data.lock.json"])
def test_diff_takes_a_manifest(root, value):
    with pytest.raises(ArgumentTypeError, match=r"other must be a Manifest, got .*; Manifest\.load\(path\) reads one"):
        hash_dataset(root).diff(value)


@pytest.mark.parametrize(
    ("value", "error"), [(b"", TYPE), (None, TYPE), (5, TYPE), (b"a.lock.json", TYPE), ("", VALUE)]
)
def test_load_takes_a_path(value, error):
    with pytest.raises(error, match=r"path must be a path, of a manifest file such as 'data\.lock\.json'"):
        Manifest.load(value)


@pytest.mark.parametrize(("value", "error"), [(b"a", TYPE), (None, TYPE), (5, TYPE), ("", VALUE), ("a\0b", VALUE)])
def test_save_takes_a_path(root, value, error):
    with pytest.raises(error, match=r"path must be a path, of the file to write such as 'data\.lock\.json'"):
        hash_dataset(root).save(value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"select": "train"}, r"select must be a list of paths, got 'train'; write \['train'\]"),
        ({"select": None}, "select must be a list of paths, got None"),
        ({"rules": {"exclude": []}}, "rules must be detdata's own Rules"),
    ],
)
def test_build_takes_a_list_and_rules(given, words):
    with pytest.raises(ArgumentTypeError, match=words):
        Manifest.build(["a"], [1], ["1" * 32], **given)


@pytest.mark.parametrize("value", [None, 5, b"{}", ["{}"]])
def test_from_text_takes_text(value):
    with pytest.raises(ArgumentTypeError, match=r"text must be the text of a manifest, got .*; Manifest\.load\(path\)"):
        Manifest.from_text(value)


def test_merge_takes_a_list(root):
    part = hash_dataset(root, part=(1, 1))

    for value in (part, None, 5):
        with pytest.raises(
            ArgumentTypeError, match=r"parts must be a list of manifests, got .*; give those of all parts"
        ):
            merge_manifests(value)
    with pytest.raises(ArgumentTypeError, match=r"parts\[0\] is 'd"):
        merge_manifests("data.lock.json")
    assert merge_manifests(iter([part])).digest == hash_dataset(root).digest


def test_paths_may_be_of_any_kind_that_is_text(root, tmp_path):
    class Place(os.PathLike):
        def __fspath__(self):
            return str(root)

    manifest = hash_dataset(Place(), cache=tmp_path / "cache", workers=2, include=["*.txt"], exclude=())
    assert manifest.verify(Place()).ok
