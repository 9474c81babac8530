"""Corpora behind URLs: the rows of local files, at the cost that is promised."""

import gzip
import io
import json
import pickle
import tarfile

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import torch
from click.testing import CliRunner
from pyarrow import feather, parquet

from detdata import CorpusError, hash_dataset, index_corpus, open_corpus
from detdata.cli import main
from detdata.corpora.remote_file import RemoteFile
from tests.corpora.faulty_s3 import behind as behind  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import faults as faults  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import root as root  # noqa: PLC0414 - a fixture
from tests.corpora.faulty_s3 import system as system  # noqa: PLC0414 - a fixture
from tests.corpora.rows_of_lines import numbered

ROWS = numbered(400)
TEXT = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def archive():
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for row in ROWS[:50]:
            member = tarfile.TarInfo(f"{row['id']:04}.json")
            data = json.dumps(row).encode()
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return target.getvalue()


def to_bytes(write):
    target = io.BytesIO()
    write(target)
    return target.getvalue()


TOKENS = np.arange(5000, dtype=np.uint16)
TABLE = pa.Table.from_pylist(ROWS)
FILES = {
    "a.jsonl": (TEXT, {"rows_per_block": 50}),
    "a.jsonl.gz": (gzip.compress(TEXT), {"rows_per_block": 50}),
    "a.jsonl.zst": (pa.compress(TEXT, "zstd", asbytes=True), {}),
    "a.txt": (TEXT, {"rows_per_block": 50}),
    "a.csv": (b"id,text\n" + b"".join(b"%d,b%d\n" % (row, row) for row in range(300)), {"rows_per_block": 50}),
    "a.tar": (archive(), {"rows_per_block": 10}),
    "a.bin": (TOKENS.tobytes(), {"dtype": "uint16", "seq_len": 16, "rows_per_block": 50}),
    "a.npy": (to_bytes(lambda target: np.save(target, TOKENS)), {"seq_len": 16}),
    "a.parquet": (to_bytes(lambda target: parquet.write_table(TABLE, target, row_group_size=50)), {}),
    "a.feather": (to_bytes(lambda target: feather.write_feather(TABLE, target, chunksize=50)), {}),
}


def plain(rows):
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in rows]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("scheme", ["s3", "memory"])
def test_every_format_gives_the_rows_of_the_local_file(request, tmp_path, root, name, scheme):
    data, options = FILES[name]
    (tmp_path / name).write_bytes(data)
    url = f"{root}/{name}" if scheme == "s3" else f"memory://{tmp_path.name}/{name}"
    system = fsspec.filesystem(scheme)
    system.pipe(url, data)
    here = open_corpus(tmp_path / name, **options)
    there = open_corpus(url, index_folder=tmp_path / "indexes", remote_cache=tmp_path / "cache", **options)
    assert there.files == (url,)
    assert there.block_sizes.tolist() == here.block_sizes.tolist()
    wanted = plain(here.take(range(len(here))))
    assert plain(there.take(range(len(there)))) == wanted
    assert plain(pickle.loads(pickle.dumps(there)).take([len(here) - 1, 0])) == [wanted[-1], wanted[0]]
    assert there.version() == here.version()


def test_megatrons_two_files(root, system, tmp_path):
    sizes = np.array([3, 5, 0, 7], "<i4")
    places = np.array([0, 6, 16, 16], "<i8")
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\x08" + (4).to_bytes(8, "little") + (2).to_bytes(8, "little")
    system.pipe(f"{root}/a.idx", head + sizes.tobytes() + places.tobytes() + np.array([0, 4], "<i8").tobytes())
    system.pipe(f"{root}/a.bin", np.arange(15, dtype="<u2").tobytes())
    for url in (f"{root}/a.idx", root):
        corpus = open_corpus(url, format="megatron")
        assert [len(row["tokens"] if isinstance(row, dict) else row) for row in corpus] == [3, 5, 0, 7]


def test_folders_globs_lists_and_their_order(root, system, tmp_path):
    names = [
        "b.jsonl",
        "a.jsonl",
        "deep/c.jsonl",
        "deep/.hidden.jsonl",
        ".x/d.jsonl",
        "a.jsonl.detdata-index",
        "note.md",
    ]
    for number, name in enumerate(names):
        path = tmp_path / "local" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"x": {number}}}\n')
        system.pipe(f"{root}/{name}", path.read_bytes())
    for choice in ("", "/*.jsonl", "/**/*.jsonl", "/deep", "/?.jsonl", "/[ab].jsonl", "/deep/c.jsonl"):
        here = open_corpus(f"{tmp_path}/local{choice}", index="no")
        there = open_corpus(f"{root}{choice}", index="no")
        assert [name.removeprefix(root) for name in there.files] == [
            name.removeprefix(f"{tmp_path}/local") for name in here.files
        ]
        assert list(there) == list(here)
    listed = open_corpus([f"{root}/deep/c.jsonl", f"{root}/a.jsonl", str(tmp_path / "local/b.jsonl")], index="no")
    assert [row["x"] for row in listed] == [2, 1, 0]
    local = open_corpus(f"file://{tmp_path}/local/b.jsonl")
    assert local.files == (f"{tmp_path}/local/b.jsonl",)


def test_names_that_look_like_globs_are_names(root, system):
    system.pipe(f"{root}/a[1].jsonl", b'{"x": 1}\n')
    system.pipe(f"{root}/a1.jsonl", b'{"x": 2}\n')
    assert list(open_corpus(f"{root}/a[1].jsonl", index="no")) == [{"x": 1}]
    assert list(open_corpus(f"{root}/a[0-9].jsonl", index="no")) == [{"x": 2}]


def test_a_row_costs_one_request_for_its_block(faults, root, system, tmp_path):
    system.pipe(f"{root}/a.jsonl", TEXT)
    open_corpus(f"{root}/a.jsonl", rows_per_block=20, index_folder=tmp_path)
    faults.clear()
    corpus = open_corpus(f"{root}/a.jsonl", rows_per_block=20, index_folder=tmp_path)
    assert [method for method, _, _ in faults.log] == ["HEAD"]
    faults.clear()
    assert corpus[360] == ROWS[360]  # at 90 %
    assert [method for method, _, _ in faults.log] == ["GET"]
    assert faults.sent == sum(len(json.dumps(row)) + 1 for row in ROWS[360:380])
    faults.clear()
    assert pickle.loads(pickle.dumps(corpus))[361] == ROWS[361]
    assert len(faults.log) == 1


def test_many_files_are_listed_and_not_asked_for_one_by_one(faults, root, system):
    for number in range(12):
        system.pipe(f"{root}/{number:02}.bin", TOKENS.tobytes())
    faults.clear()
    corpus = open_corpus(root, dtype="uint16", seq_len=16)
    assert len(corpus) == 12 * (5000 // 16)
    assert len(faults.log) < 12


def test_an_object_is_indexed_by_reading_it_once_in_large_parts(faults, root, system, tmp_path):
    url = f"{root}/a.jsonl"
    system.pipe(url, TEXT)
    faults.clear()
    open_corpus(url, rows_per_block=20, index_folder=tmp_path)
    assert len(faults.gets("/a.jsonl")) == 1
    assert len(TEXT) <= faults.sent < len(TEXT) + 5000


def test_a_team_makes_an_index_once(faults, root, system, tmp_path):
    url = f"{root}/a.jsonl"
    system.pipe(url, TEXT)
    result = CliRunner().invoke(
        main, ["index", url, "--rows-per-block", "20", "--in", "beside", "--index-folder", str(tmp_path / "a")]
    )
    assert result.exit_code == 0, result.output
    index = system.size(f"{url}.detdata-index")
    assert not list((tmp_path / "a").rglob("*.detdata-index"))
    for folder, requests in ((tmp_path / "b", 1), (tmp_path / "b", 0)):
        faults.clear()
        corpus = open_corpus(url, rows_per_block=20, index_folder=folder)
        assert (len(faults.gets("-index")), len(faults.gets("/a.jsonl"))) == (requests, 0)
        assert faults.sent == index * requests
        assert corpus[399] == ROWS[399]
    (done,) = index_corpus(url, rows_per_block=20, index_folder=tmp_path / "c", workers=1)
    assert not done.made
    system.pipe(url, TEXT.replace(b"x", b"yy"))
    (done,) = index_corpus(url, rows_per_block=20, index_folder=tmp_path / "b", workers=1)
    assert done.made


def test_an_index_made_before_the_upload_holds(faults, root, system, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    open_corpus(tmp_path / "a.jsonl", rows_per_block=20)
    system.put(str(tmp_path / "a.jsonl"), f"{root}/a.jsonl")
    system.put(str(tmp_path / "a.jsonl.detdata-index"), f"{root}/a.jsonl.detdata-index")
    (done,) = index_corpus(f"{root}/a.jsonl", rows_per_block=20, index_folder=tmp_path / "b", workers=1)
    assert (done.made, done.index) == (False, f"{root}/a.jsonl.detdata-index")
    faults.clear()
    assert open_corpus(f"{root}/a.jsonl", rows_per_block=20, index_folder=tmp_path / "b")[1] == ROWS[1]
    assert len(faults.gets("/a.jsonl")) == 1


def test_indexes_of_many_objects_by_several_processes(root, system, tmp_path):
    for name in "abc":
        system.pipe(f"{root}/{name}.jsonl", TEXT)
    done = index_corpus(root, workers=2, index_folder=tmp_path)
    assert [file.rows for file in done] == [400] * 3


def test_the_version_is_that_of_local_files(root, system, tmp_path):
    for name in ("a.jsonl", "b/c.jsonl", "b/d.jsonl"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(TEXT + name.encode().join((b'{"n": "', b'"}\n')))
        system.pipe(f"{root}/{name}", path.read_bytes())
    for choice in ([""], ["/b/d.jsonl"], ["/b/d.jsonl", "/a.jsonl"], ["/a.jsonl", "/b/*.jsonl"], ["/b", "/a.jsonl"]):
        here, there = [f"{tmp_path}/data{path}" for path in choice], [f"{root}{path}" for path in choice]
        assert hash_dataset(there).digest == hash_dataset(here).digest
        assert hash_dataset(there).select == hash_dataset(here).select
        options = {"index_folder": tmp_path / "indexes", "format": "jsonl"}
        assert open_corpus(there, **options).version() == open_corpus(here, **options).version()
    corpus = open_corpus(root, index="no")
    system.pipe(f"{root}/a.jsonl", TEXT)
    with pytest.raises(CorpusError, match="has changed"):
        corpus.version()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_by_connections_of_their_own(faults, root, system, tmp_path, method):
    system.pipe(f"{root}/a.jsonl", TEXT)
    corpus = open_corpus(f"{root}/a.jsonl", rows_per_block=20, index="no")
    assert corpus[0] == ROWS[0]  # connected here before the fork
    loader = torch.utils.data.DataLoader(
        corpus, batch_size=10, num_workers=2, multiprocessing_context=method, collate_fn=list
    )
    assert [row for batch in loader for row in batch] == ROWS
    assert corpus[399] == ROWS[399]


def test_threads_share_a_file(root, system):
    system.pipe(f"{root}/a", bytes(range(256)) * 40)
    from concurrent.futures import ThreadPoolExecutor

    file = RemoteFile(f"{root}/a")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: file.read(place, 9), range(200)))
    assert found == [(bytes(range(256)) * 2)[place : place + 9] for place in range(200)]


@pytest.mark.parametrize(
    "options", [{"remote_timeout": 0}, {"remote_timeout": True}, {"remote_cache": 3}, {"remote_cache_bytes": 0}]
)
def test_wrong_options_are_refused(options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        open_corpus("memory://none/a.jsonl", **options)


def test_what_needs_a_package_says_so(monkeypatch):
    with pytest.raises(ValueError, match="nosuch"):
        open_corpus("nosuch://a/b.jsonl")
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(ImportError, match="gcsfs"):
        open_corpus("gs://a/b.jsonl")
