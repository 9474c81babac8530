"""What is in an object store is verified to the byte; what a URL may be; files read in pieces, none of them twice."""

import io
import json
import re

import fsspec
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata import Loader, Plan, Shuffle
from detdata.checkpoint import Checkpointer, CheckpointNotFound, list_checkpoints, remote_file, verify_checkpoint
from detdata.checkpoint.files import hash_file
from detdata.checkpoint.inspection import describe, open_checkpoint
from detdata.checkpoint.manifest import REMOTE_FORMAT, Manifest, ManifestError, parse_manifest
from detdata.checkpoint.memory import hold
from detdata.checkpoint.remote_path import RemotePath, as_path
from detdata.cli import main
from detdata.errors import ArgumentTypeError, ArgumentValueError, CheckpointBroken, MissingExtra
from detdata.records import canonical_json, digest
from tests.checkpoint.fakes import bits, make_model, resumed_step, save_steps
from tests.checkpoint.stores import ROOT, Recorded, content, fresh_store, put_back

MEMBERS = ["model.pt", "rng_rank00000.pt", "progress.json", "data.json", "meta.json"]


@pytest.fixture(autouse=True)
def store(monkeypatch):
    return fresh_store(monkeypatch)


def key_of(step, member):
    [key] = [key for key in Recorded.store if f"/periodic-{step}-" in key and key.endswith(f"/{member}")]
    return key


def flip(data):
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


DAMAGE = {
    "deleted": lambda store, key: store.store.pop(key),
    "0 bytes": lambda store, key: store.keep(key, b""),
    "half": lambda store, key: store.keep(key, content()[key][: len(content()[key]) // 2]),
    "one bit flipped": lambda store, key: store.keep(key, flip(content()[key])),
    "one byte more": lambda store, key: store.keep(key, content()[key] + b"x"),
    "of another step": lambda store, key: store.keep(key, content()[key_of(1, key.rpartition("/")[2])]),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("member", [*MEMBERS, "manifest.json"])
def test_a_damaged_newest_is_passed_over_with_a_warning_that_says_why(store, damage, member):
    save_steps(ROOT, [1, 2])
    [newest] = save_steps(ROOT, [3])
    key = "/bucket/run/ckpt_step_3/manifest.json" if member == "manifest.json" else key_of(3, member)
    before = content()[key]
    if damage == "of another step" and member == "manifest.json":
        store.keep(key, content()["/bucket/run/ckpt_step_1/manifest.json"])
    else:
        DAMAGE[damage](store, key)
    if content().get(key) == before:
        return  # the data order is the same at every step
    if damage == "deleted" and member == "manifest.json":  # then nothing says that it was ever published
        assert resumed_step(ROOT) == 2
        return

    named = "manifest" if member == "manifest.json" else re.escape(member)
    with pytest.warns(UserWarning, match=f"ckpt_step_3: .*{named}"):
        assert resumed_step(ROOT) == 2
    with pytest.raises(CheckpointBroken, match=named):
        resumed_step(ROOT, strict=True)
    report = verify_checkpoint(newest)
    assert not report.ok
    assert [entry.ok for entry in list_checkpoints(ROOT)] == [False, True, True]


def test_an_object_too_many_is_named(store):
    [path] = save_steps(ROOT, [1])
    store.keep(key_of(1, "model.pt").replace("model.pt", "more.pt"), b"x")

    assert verify_checkpoint(path).problems == ("more.pt is not part of the checkpoint",)


def test_a_save_over_a_broken_one_is_whole(store):
    save_steps(ROOT, [1], "latest")
    store.keep("bucket/run/ckpt_latest/manifest.json", b"{")
    save_steps(ROOT, [2], "latest")

    assert resumed_step(ROOT) == 2


@pytest.mark.parametrize(
    "place",
    [
        "data/../latest-1-00000000-0011223344556677", "data/latest-1", "/etc", "..", "", None, 5,
        "data/latest-2-00000000-0011223344556677", "data/periodic-1-00000000-0011223344556677",
        "data/latest-01-00000000-0011223344556677", "other/latest-1-00000000-0011223344556677",
    ],
)  # fmt: skip
def test_a_manifest_that_names_another_place_is_refused(place):
    good = Manifest(1, "latest", 7, {}, "data/latest-1-00000000-0011223344556677")
    assert parse_manifest(good.to_bytes()) == good
    record = json.loads(good.to_bytes()) | {"place": place}
    del record["digest"]
    record["digest"] = digest(canonical_json(record))

    assert record["format"] == REMOTE_FORMAT
    with pytest.raises(ManifestError, match="place is"):
        parse_manifest(canonical_json(record))


def test_a_copy_of_a_store_is_read_from_disk_and_a_copy_of_a_folder_from_a_store(tmp_path, store):
    save_steps(ROOT, [1, 2])
    for key, data in content().items():
        file = tmp_path / "down" / key.removeprefix("/bucket/run/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    assert resumed_step(tmp_path / "down") == 2
    save_steps(tmp_path / "up", [3], "latest")
    put_back({})
    for file in (tmp_path / "up" / "ckpt_latest").iterdir():
        store.keep(f"bucket/run/ckpt_latest/{file.name}", file.read_bytes())

    assert resumed_step(ROOT) == 3
    save_steps(ROOT, [4], "latest")
    assert resumed_step(ROOT) == 4
    assert {key.split("/")[3] for key in content()} == {"ckpt_latest", "data"}
    assert [key for key in content() if "ckpt_latest" in key] == ["/bucket/run/ckpt_latest/manifest.json"]


def test_a_link_in_a_copy_leads_nowhere(tmp_path):
    save_steps(ROOT, [1], "latest")
    [place] = {key.rpartition("/")[0].removeprefix("/bucket/run/") for key in content() if "/data/" in key}
    (tmp_path / "ckpt_latest").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for key, data in content().items():
        folder = tmp_path / "ckpt_latest" if key.endswith("manifest.json") else tmp_path / "elsewhere"
        (folder / key.rpartition("/")[2]).write_bytes(data)
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")

    assert "symbolic link" in verify_checkpoint(tmp_path / "ckpt_latest").problems[0]


def train(root, stop):
    torch.manual_seed(0)
    data = torch.linspace(-1, 1, 400).reshape(100, 4)
    model = make_model(width=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = Loader(data, Plan(Shuffle(100, seed=7), 10))
    with Checkpointer(root, model=model, optimizer=optimizer, loader=loader) as checkpointer:
        checkpointer.resume()
        for batch in loader.until(stop):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            checkpointer.step()
    return bits(model.state_dict()), bits(optimizer.state_dict()["state"])


def test_a_training_that_stops_and_goes_on_is_bit_for_bit_the_one_that_did_not():
    straight = train(f"{ROOT}/straight", 30)
    train(f"{ROOT}/stopped", 15)

    assert train(f"{ROOT}/stopped", 30) == straight


def test_what_is_looked_at_without_a_model():
    [path] = save_steps(ROOT, [4])

    assert describe(open_checkpoint(ROOT))["progress"]["global_step"] == 4
    assert describe(open_checkpoint(str(path)))["progress"]["global_step"] == 4
    assert list_checkpoints(f"{ROOT}/no") == []
    with pytest.raises(CheckpointNotFound):
        verify_checkpoint(f"{ROOT}/no")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_an_object_reads_like_a_file_wherever_one_goes(data):
    body = bytes(range(256)) * 2
    body = body[: data.draw(st.integers(0, 500))]
    fsspec.filesystem("recorded").keep("bucket/f", body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_file, "PIECE", data.draw(st.integers(1, 90)))
        patch.setattr(remote_file, "TAIL", data.draw(st.integers(1, 90)))
        here, there = io.BytesIO(body), remote_file.RemoteFile(RemotePath("recorded://bucket/f"))
        with there:
            for _ in range(8):
                place, size = data.draw(st.integers(0, 520)), data.draw(st.integers(0, 300))
                assert here.seek(place) == there.seek(place)
                assert here.read(size) == there.read(size)
            assert there.seek(0, io.SEEK_END) == len(body)
            assert hash_file(RemotePath("recorded://bucket/f")).size == len(body)


@pytest.mark.parametrize("tail", [10, 3000, 50_000, 10_000_000])
def test_no_byte_of_a_file_of_tensors_is_asked_for_twice(store, monkeypatch, tail):
    tree = {f"t{i}": torch.full((20_000,), float(i)) for i in range(8)} | {"small": torch.arange(5)}
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    store.keep("bucket/f", buffer.getvalue())
    monkeypatch.setattr(remote_file, "PIECE", 7001)
    monkeypatch.setattr(remote_file, "TAIL", max(tail, 4096))
    asked, read = [], RemotePath.read

    def noted(path, start, end):
        asked.append((start, end))
        return read(path, start, end)

    monkeypatch.setattr(RemotePath, "read", noted)

    held = hold(RemotePath("recorded://bucket/f"))

    assert bits(held.load()) == bits(tree)
    assert len(held._records) == 8
    asked.sort()
    assert [end for _, end in asked] == [start for start, _ in asked[1:]] + [len(buffer.getvalue())]


URLS = {
    "simplecache::s3://b/r": "need an object store", "sftp://h/r": "object store", "http://h/r": "object store",
    "memory://": "expected protocol", "memory://a/*": "expected protocol", "memory://a/../b": "expected protocol",
    "memory://a//b": "expected protocol", "nosuch://b/r": "nosuch",
}  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_can_hold_no_checkpoints_is_refused_at_once(url):
    with pytest.raises(ArgumentValueError, match=URLS[url]):
        Checkpointer(url, model=torch.nn.Linear(1, 1))


def test_what_a_root_may_be(tmp_path, monkeypatch):
    assert as_path("memory://a/b/") == RemotePath("memory://a/b") == as_path(RemotePath("memory://a/b"))
    assert as_path(f"file://{tmp_path}") == tmp_path
    assert as_path("C:/x").name == "x"
    with pytest.raises(ArgumentValueError, match="lost a slash"):
        as_path(tmp_path.__class__("s3://bucket/run"))
    for wrong in (None, 5, b"x", ""):
        with pytest.raises(ArgumentTypeError, match="root must be"):
            as_path(wrong)

    def missing(url):
        raise ImportError("Install adlfs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingExtra, match="Install adlfs"):
        as_path("abfs://c/r")


def test_a_file_url_is_a_folder_of_this_machine(tmp_path):
    save_steps(f"file://{tmp_path}", [1], "latest")

    assert (tmp_path / "ckpt_latest" / "model.pt").is_file()
    assert resumed_step(tmp_path) == resumed_step(f"file://{tmp_path}") == 1


def test_the_command_line_takes_urls():
    save_steps(ROOT, [1, 2])
    run = CliRunner().invoke

    assert run(main, ["ckpt", "list", ROOT]).exit_code == 0
    assert f"whole: {ROOT}/ckpt_step_2" in run(main, ["ckpt", "verify", f"{ROOT}/ckpt_step_2"]).output
    assert run(main, ["ckpt", "diff", ROOT, f"{ROOT}/ckpt_step_1"]).exit_code == 1
    assert json.loads(run(main, ["ckpt", "show", ROOT, "--json"]).output)["path"] == f"{ROOT}/ckpt_step_2"
    refused = run(main, ["ckpt", "list", "sftp://host/run"])
    assert (refused.exit_code, "object store" in refused.output) == (2, True)
