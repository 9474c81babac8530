"""hash_dataset: what it lists and hashes is what lies there, and nothing else enters the digest."""

import hashlib
import os
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import DatasetError, DatasetWarning, Manifest, hash_dataset, merge_manifests
from detdata.versions import jobs
from tests.versions.trees import PLAIN, make_tree, odd_files, oracle

ONE_SHOT = {"xxh3-128": xxhash.xxh3_128_hexdigest, "sha256": lambda data: hashlib.sha256(data).hexdigest()}
TREES = st.dictionaries(
    st.text("abcé./", min_size=1, max_size=6).filter(lambda p: all(part.strip(".") for part in p.split("/"))),
    st.binary(max_size=40),
    min_size=1,
    max_size=8,
).filter(lambda tree: not any(other.startswith(f"{path}/") for path in tree for other in tree))


@pytest.mark.parametrize("algorithm", ONE_SHOT)
def test_every_file_is_there_with_its_size_and_digest_however_odd_its_name(tmp_path, algorithm):
    files = odd_files()
    root = make_tree(tmp_path / "data", files)

    with pytest.warns(DatasetWarning, match="differ only in case"):
        manifest = hash_dataset(root, algorithm)

    assert list(manifest.paths) == oracle(root)
    for entry in manifest.files:
        assert (entry.size, entry.digest) == (len(files[entry.path]), ONE_SHOT[algorithm](files[entry.path]))


@settings(max_examples=40, deadline=None)
@given(tree=TREES, data=st.data())
def test_the_digest_depends_on_names_and_bytes_alone(tmp_path_factory, tree, data):
    folder = tmp_path_factory.mktemp("trees")
    shuffled = dict(data.draw(st.permutations(list(tree.items()))))
    one, other = make_tree(folder / "one", tree), make_tree(folder / "deep" / "other", shuffled)
    for file in other.rglob("*"):
        os.utime(file, (1, data.draw(st.integers(0, 2**31))))
        file.chmod(0o700)

    assert hash_dataset(one) == hash_dataset(other)
    assert hash_dataset(one).digest == hash_dataset(other, cache=folder / "cache").digest


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A tree with files on both sides of what counts as large, and of a piece."""
    root = tmp_path_factory.mktemp("large")
    edges = (jobs.THREADED - 1, jobs.THREADED, jobs.LARGE - 1, jobs.LARGE, 3 * jobs.LARGE)
    for i, size in enumerate((0, 1, 65_536, 65_537, *edges)):
        (root / f"{i}.bin").write_bytes(bytes([i]) * size)
    return root


def executors():
    yield "threads", lambda: ThreadPoolExecutor(3)
    yield "fork", lambda: ProcessPoolExecutor(2, mp_context=get_context("fork"))
    yield "spawn", lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn"))


@pytest.mark.parametrize("piece_size", [0, 1_000_003, 2**20])
@pytest.mark.parametrize(("name", "make"), list(executors()))
def test_no_executor_changes_anything(large, name, make, piece_size):
    alone = hash_dataset(large, piece_size=piece_size)

    with make() as executor:
        assert hash_dataset(large, executor=executor, piece_size=piece_size) == alone
    assert hash_dataset(large, workers=1, piece_size=piece_size) == alone


def test_forked_processes_do_not_read_into_each_others_memory(tmp_path):
    for i in range(8):
        (tmp_path / f"{i}").write_bytes(bytes([i]) * 8_000_000)
    alone = hash_dataset(tmp_path, workers=1)  # this thread has its buffer now, and children inherit it
    jobs.digest_file(tmp_path / "0", "sha256")

    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as executor:
        assert all(hash_dataset(tmp_path, executor=executor) == alone for _ in range(5))


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_digest(large):
    distributed = pytest.importorskip("distributed", reason="dask.distributed comes with the extra dev")
    with (
        distributed.LocalCluster(2, processes=True, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = hash_dataset(large, executor=client.get_executor(), piece_size=2**20)

    assert found == hash_dataset(large, piece_size=2**20)


def test_pieces_are_another_digest_and_recorded(large):
    plain, tree = hash_dataset(large), hash_dataset(large, piece_size=2**20)

    assert plain.digest != tree.digest
    assert tree.piece_size == 2**20
    assert Manifest.from_text(tree.to_text()).verify(large).ok


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_parts_put_together_are_the_whole(tmp_path, n):
    root = make_tree(tmp_path, PLAIN)
    parts = [hash_dataset(root, part=(i, n)) for i in range(1, n + 1)]

    assert merge_manifests(parts[::-1]) == hash_dataset(root)


def test_parts_of_a_listing_that_changed_meanwhile_are_refused(tmp_path):
    root = make_tree(tmp_path, PLAIN)
    first = hash_dataset(root, part=(1, 2))
    (root / "new").write_bytes(b"")

    with pytest.raises(ValueError, match="listing"):
        merge_manifests([first, hash_dataset(root, part=(2, 2))])


def test_a_url_gives_the_digest_that_the_files_have_here(tmp_path):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    root = make_tree(tmp_path, PLAIN | {"big": bytes(9 << 20)})
    for path in oracle(root):
        memory.pipe(f"/detdata-test/{path}", (root / path).read_bytes())

    manifest = hash_dataset("memory://detdata-test")

    assert manifest.digest == hash_dataset(root).digest
    assert manifest.verify(root).ok
    assert manifest.verify("memory://detdata-test").ok
    memory.pipe("/detdata-test/a.txt", b"ONE")
    assert [change.path for change in manifest.verify("memory://detdata-test").changed] == ["a.txt"]
    memory.rm("/detdata-test", recursive=True)


@pytest.mark.parametrize(
    ("ask", "root", "paths"),
    [
        (["b"], "b", ["c.txt", "d/e.txt"]),
        (["b", "a.txt"], ".", ["a.txt", "b/c.txt", "b/d/e.txt"]),
        (["*.txt"], ".", ["a.txt", "b.txt"]),
        (["b/**/*.txt"], "b", ["c.txt", "d/e.txt"]),
        (["b/c.txt"], "b", ["c.txt"]),
    ],
)
def test_what_was_asked_for_is_what_is_verified(tmp_path, ask, root, paths):
    make_tree(tmp_path, PLAIN)
    asked = [tmp_path / item for item in ask]
    manifest = hash_dataset(asked if len(asked) > 1 else str(asked[0]))
    (tmp_path / "not asked for").write_bytes(b"")

    assert list(manifest.paths) == paths
    assert manifest.verify(tmp_path / root).ok


def test_rules_are_recorded_and_a_changed_ignore_file_hides_nothing(tmp_path):
    root = make_tree(tmp_path, PLAIN | {".detdataignore": b"b/\n"})
    manifest = hash_dataset(root, exclude=["a.*"])
    assert list(manifest.paths) == [".hidden/f", "b.txt"]

    (root / ".detdataignore").write_bytes(b"*\n")
    (root / "b.txt").write_bytes(b"tampered")
    assert [change.path for change in manifest.verify(root).changed] == ["b.txt"]


def test_a_manifest_kept_in_the_data_is_no_data(tmp_path):
    root = make_tree(tmp_path, PLAIN)
    manifest = hash_dataset(root)
    manifest.save(root / "data.lock.json")
    manifest.save(root / "any.name")

    assert hash_dataset(root, exclude=["any.name"]).digest == manifest.digest
    assert Manifest.load(root / "data.lock.json").verify(root).added == ("any.name",)
    (root / "data.lock.json").unlink()
    assert Manifest.load(root / "any.name").verify(root).ok


def test_the_folder_may_move(tmp_path):
    manifest = hash_dataset(make_tree(tmp_path / "here", PLAIN))
    shutil.move(tmp_path / "here", tmp_path / "there")

    assert manifest.verify(tmp_path / "there").ok
    with pytest.raises(DatasetError, match="no such folder"):
        manifest.verify(tmp_path / "here")


def test_progress_is_told_and_ends_at_the_end(large):
    seen = []
    hash_dataset(large, progress=seen.append)

    last = seen[-1]
    assert (
        (last.files, last.bytes)
        == (last.total_files, last.total_bytes)
        == (9, sum(f.stat().st_size for f in large.iterdir()))
    )
    assert [now.bytes for now in seen] == sorted(now.bytes for now in seen)


def test_a_progress_function_that_fails_ends_the_hashing(large):
    def fail(now):
        if now.bytes > jobs.LARGE:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        hash_dataset(large, progress=fail)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"algorithm": "md5"}, ValueError, "algorithm must be one of xxh3-128, sha256, blake3"),
        ({"algorithm": 3}, TypeError, "algorithm"),
        ({"content": "lines"}, ValueError, "content must be one of bytes, rows"),
        ({"piece_size": -1}, ValueError, "piece_size"),
        ({"piece_size": 1.5}, TypeError, "piece_size"),
        ({"exclude": "*.tmp"}, TypeError, r"write \['\*.tmp'\]"),
        ({"symlinks": "skip"}, ValueError, "symlinks must be one of"),
        ({"part": (0, 2)}, ValueError, r"part\[0\]"),
        ({"part": (3, 2)}, ValueError, r"part\[0\]"),
        ({"part": "1/2"}, TypeError, "part must be"),
        ({"content": "rows", "part": (1, 2)}, ValueError, "takes no part"),
        ({"paths": []}, ValueError, "empty list"),
        ({"paths": 3}, TypeError, "paths"),
        ({"paths": "no such folder"}, DatasetError, "there is no such file or folder"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, error, words):
    make_tree(tmp_path, PLAIN)
    with pytest.raises(error, match=words):
        hash_dataset(**{"paths": tmp_path, **arguments})


def test_an_empty_folder_is_no_dataset(tmp_path):
    (tmp_path / "only" / "folders").mkdir(parents=True)
    with pytest.raises(ValueError, match="the dataset is empty"):
        hash_dataset(tmp_path)
