"""The same against a server that speaks S3 over HTTP: parts, kills, damage, two ranks, servers that are gone."""

import json
import os
import random
import signal
import socket
import time

import pytest
import torch

pytest.importorskip("moto", reason="pip install 'moto[server]' for a server that speaks S3")
s3fs = pytest.importorskip("s3fs", reason="pip install s3fs")

from detdata.checkpoint import (  # noqa: E402
    Checkpointer,
    CheckpointNotSaved,
    SavePolicy,
    list_checkpoints,
    remote,
    remote_path,
    verify_checkpoint,
)
from detdata.checkpoint.remote_path import StoreError  # noqa: E402
from tests.checkpoint.fakes import resumed_step, save_steps  # noqa: E402
from tests.checkpoint.kill_loop import drain, forked, save_for_ever  # noqa: E402
from tests.checkpoint.ranks import in_ranks  # noqa: E402
from tests.checkpoint.s3 import root as root  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.s3 import server as server  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.s3 import system as system  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.test_ranks import build, state, train  # noqa: E402
from tests.checkpoint.test_remote_damage import train as train_alone  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]


def objects(system, root):
    system.invalidate_cache()
    return sorted(system.find(root.removeprefix("s3://")))


def key_of(system, root, part):
    [key] = [key for key in objects(system, root) if part in key and key.endswith("/model.pt")]
    return key


def test_saved_listed_verified_and_resumed(root, system):
    assert resumed_step(root) is None
    policy = SavePolicy(keep_periodic=2)
    paths = save_steps(root, [1, 2, 3], policy=policy)
    save_steps(root, [4], "latest")
    save_steps(root, [5], "latest")

    assert str(paths[-1]) == f"{root}/ckpt_step_3"
    assert [(entry.kind, entry.step, entry.ok) for entry in list_checkpoints(root)] == [
        ("latest", 5, True), ("periodic", 3, True), ("periodic", 2, True),
    ]  # fmt: skip
    assert verify_checkpoint(f"{root}/ckpt_latest").ok
    assert resumed_step(root) == 5
    assert len({key.rpartition("/")[0] for key in objects(system, root) if "/data/" in key}) == 3


def test_a_large_file_goes_in_parts_and_comes_in_pieces(root, system, monkeypatch):
    monkeypatch.setattr(remote_path, "PART", 5 << 20)
    with torch.random.fork_rng():
        model, other = torch.nn.Linear(2000, 2000), torch.nn.Linear(2000, 2000)
    Checkpointer(root, model=model).save()

    Checkpointer(root, model=other).resume()

    assert torch.equal(model.weight, other.weight)
    etag = system.info(key_of(system, root, "/data/"))["ETag"].strip('"')
    assert etag.endswith("-4")  # what S3 says of an object of four parts


def test_a_training_that_stops_and_goes_on_is_bit_for_bit_the_one_that_did_not(root):
    straight = train_alone(f"{root}/straight", 12)
    train_alone(f"{root}/stopped", 5)

    assert train_alone(f"{root}/stopped", 12) == straight


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damage_is_named_and_the_next_newest_is_used(root, system, damage):
    save_steps(root, [1, 2])
    key = key_of(system, root, "/periodic-2-")
    data = bytearray(system.cat_file(key))
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    system.rm_file(key)
    if damage != "missing":
        system.pipe_file(key, bytes(data if damage == "flipped" else data[:-1]))

    with pytest.warns(UserWarning, match=r"ckpt_step_2: model\.pt"):
        assert resumed_step(root) == 1
    assert not verify_checkpoint(f"{root}/ckpt_step_2").ok


def look(root, pipe):
    model = torch.nn.Linear(200, 200)
    step = Checkpointer(root, model=model).resume().global_step
    whole = all((parameter == step).all().item() for parameter in model.parameters())
    os.write(pipe, json.dumps([step, whole]).encode())


@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_killed_at_any_moment_the_newest_published_is_found_whole(root, system, monkeypatch):
    moments, ahead = random.Random(3), 0
    for number in range(20):
        child, reader = forked(save_for_ever, f"{root}/{number}", ["latest"])
        first = os.read(reader, 4)
        begun = time.monotonic()
        second = os.read(reader, 4)
        time.sleep((time.monotonic() - begun) * moments.uniform(0.0, 1.5))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        published = int.from_bytes((first + second + drain(reader))[-4:], "big")
        child, reader = forked(look, f"{root}/{number}")
        found, whole = json.loads(drain(reader))
        os.waitpid(child, 0)
        assert published <= found <= published + 1
        assert whole
        ahead += len({key.rpartition("/")[0] for key in objects(system, f"{root}/{number}/data")}) > 1
    assert ahead > 0  # or the kills come at no moment of a save

    now = time.time() + remote.OLD_S + 1
    monkeypatch.setattr(remote.time, "time", lambda: now)
    for number in range(20):
        save_steps(f"{root}/{number}", [1 << 20], "latest")
        assert len({key.rpartition("/")[0] for key in objects(system, f"{root}/{number}/data")}) == 1


def two_ranks(rank, size, root, stop):
    parts, checkpointer = build(rank, root)
    checkpointer.resume()
    losses = train(parts, checkpointer, stop)
    checkpointer.save()
    return losses, state(parts)


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_two_ranks_save_to_one_place_and_go_on_bit_for_bit(root, system, tmp_path):
    straight = in_ranks(2, two_ranks, tmp_path / "1", f"{root}/straight", 6)
    first = in_ranks(2, two_ranks, tmp_path / "2", f"{root}/stopped", 3)
    rest = in_ranks(2, two_ranks, tmp_path / "3", f"{root}/stopped", 6)

    for whole, begin, end in zip(straight, first, rest, strict=True):
        assert begin[0] + end[0] == whole[0]
        assert end[1] == whole[1]
    names = [key.rpartition("/")[2] for key in objects(system, f"{root}/stopped/data")]
    assert [name for name in names if name.startswith("rng_")] == ["rng_rank00000.pt", "rng_rank00001.pt"]


def test_no_bucket_and_no_server_are_named(root, monkeypatch):
    monkeypatch.setattr(remote_path, "PAUSES_S", (0.0, 0.0))
    with pytest.raises(CheckpointNotSaved, match="bucket") as caught:
        save_steps("s3://no-such-bucket-here/run", [1])
    assert caught.value.__cause__ is not None
    save_steps(root, [1], "latest")

    with socket.socket() as taken:  # bound and not listening: nobody answers there
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        s3fs.S3FileSystem.clear_instance_cache()
        with pytest.raises(StoreError):
            resumed_step(root)
        with pytest.raises(CheckpointNotSaved):
            save_steps(root, [2], "latest")
    monkeypatch.undo()
    s3fs.S3FileSystem.clear_instance_cache()
