"""More of a server that speaks S3: sharded state, a server that is busy, uploads that break off, no credentials."""

import http.client
import http.server
import os
import threading
import time
import warnings
from importlib.util import find_spec

import pytest

pytest.importorskip("moto", reason="pip install 'moto[server]' for a server that speaks S3")
s3fs = pytest.importorskip("s3fs", reason="pip install s3fs")

from detdata.checkpoint import (  # noqa: E402
    Checkpointer,
    CheckpointNotSaved,
    SavePolicy,
    list_checkpoints,
    remote_path,
    verify_checkpoint,
)
from detdata.checkpoint.deepspeed import lay_out_deepspeed  # noqa: E402
from detdata.checkpoint.remote_path import StoreError  # noqa: E402
from tests.checkpoint import test_deepspeed  # noqa: E402
from tests.checkpoint.engines import deepspeed_engine  # noqa: E402
from tests.checkpoint.fakes import resumed_step, save_steps, stamped  # noqa: E402
from tests.checkpoint.ranks import in_ranks  # noqa: E402
from tests.checkpoint.s3 import root as root  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.s3 import server as server  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.s3 import system as system  # noqa: E402, PLC0414 - a fixture
from tests.checkpoint.test_sharded import load, load_alone, save_at  # noqa: E402

# The tests' stand-in has the interface that DeepSpeed documents; where DeepSpeed is installed it is itself.
engine = test_deepspeed.stand_in if find_spec("deepspeed") is None else deepspeed_engine

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor"),
]


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_sharded_state_goes_to_a_store_and_comes_back_on_any_number_of_ranks(root, system, tmp_path):
    saved = in_ranks(2, save_at, tmp_path / "a", root, 2)

    [entry] = list_checkpoints(root)
    assert verify_checkpoint(entry.path).ok
    names = {key.rpartition("/")[2] for key in system.find(root.removeprefix("s3://") + "/data")}
    assert {"shards.json", "shards_rank00000.pt", "shards_rank00001.pt"} <= names
    for _, state, _, _ in in_ranks(2, load, tmp_path / "b", root, 3, 1, ()):
        assert state == saved[0]
    for _, state, _, _ in in_ranks(4, load, tmp_path / "c", root, 3):
        assert state == saved[0]
    assert load_alone(root, 3)[1] == saved[0]


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_an_engine_that_saves_itself_goes_to_a_store_and_comes_back(root, tmp_path):
    expected = in_ranks(2, test_deepspeed.straight, tmp_path / "a", root, engine, 1)
    [entry] = list_checkpoints(root)
    assert verify_checkpoint(entry.path).ok

    assert in_ranks(2, test_deepspeed.resumed, tmp_path / "b", root, engine, 1) == expected
    state = lay_out_deepspeed(str(entry.path), tmp_path / "laid")
    assert len(list(state.glob("*_optim_states.pt"))) == 2


class Busy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to `address`, and answers those that `refuses(method, path)` picks as S3 does when busy."""

    protocol_version = "HTTP/1.1"
    address, refuses, seen = "", None, []

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).seen.append((self.command, self.path))
        if type(self).refuses(self.command, self.path):
            text = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
            self.send_response(503)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text if self.command != "HEAD" else b"")
            return
        host = self.address.removeprefix("http://")
        connection = http.client.HTTPConnection(host)
        connection.request(self.command, self.path, body, dict(self.headers))
        reply = connection.getresponse()
        data = reply.read()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(data if self.command != "HEAD" else b"")
        connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the base class

    def log_message(self, *_):
        pass


@pytest.fixture
def busy(server, monkeypatch):
    monkeypatch.setattr(Busy, "address", server)
    monkeypatch.setattr(Busy, "refuses", lambda *_: False)
    monkeypatch.setattr(Busy, "seen", [])
    monkeypatch.setattr(remote_path, "PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_port}")
        s3fs.S3FileSystem.clear_instance_cache()
        yield Busy
        proxy.shutdown()
    monkeypatch.undo()
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_busy_server_is_asked_again(root, busy):
    counted = {}

    def once(*request):
        counted[request] = counted.get(request, 0) + 1
        return counted[request] == 1

    busy.refuses = staticmethod(once)
    save_steps(root, [1, 2], "latest")

    assert resumed_step(root) == 2
    assert [entry.ok for entry in list_checkpoints(root)] == [True]
    assert any(count > 1 for count in counted.values())


def open_uploads(system, root):
    bucket = root.removeprefix("s3://").partition("/")[0]
    return system.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads", [])


@pytest.mark.filterwarnings("ignore:.* has not called resume:UserWarning")
def test_an_upload_that_breaks_off_leaves_the_old_one_and_no_parts(root, busy, monkeypatch):
    monkeypatch.setattr(remote_path, "PART", 5 << 20)
    save_steps(root, [1], "latest")
    busy.refuses = staticmethod(lambda method, path: method == "PUT" and "partNumber=2" in path)

    large = stamped(2, size=1300)  # 6.8 MB: two parts
    checkpointer = Checkpointer(root, model=large, policy=SavePolicy(latest_every_seconds=None, on_signal=False))
    with pytest.raises(CheckpointNotSaved, match=r"Reduce your rate|SlowDown|Service Unavailable|503"):
        checkpointer.save()
    busy.refuses = staticmethod(lambda *_: False)

    assert sum("partNumber=2" in path for _, path in busy.seen) >= 3
    assert open_uploads(s3fs.S3FileSystem(), root) == []
    assert resumed_step(root) == 1
    assert checkpointer.save() is not None
    assert [entry.ok for entry in list_checkpoints(root)] == [True]


def test_without_credentials_it_is_said_in_time_and_nothing_starts_from_nothing(root, monkeypatch):
    save_steps(root, [1], "latest")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(remote_path, "PAUSES_S", (0.0, 0.0))
    s3fs.S3FileSystem.clear_instance_cache()
    begun = time.monotonic()
    with pytest.raises(StoreError, match="credentials"):
        resumed_step(root)
    with warnings.catch_warnings(), pytest.raises(CheckpointNotSaved, match="credentials"):
        warnings.simplefilter("ignore")
        save_steps(root, [2], "latest")
    assert time.monotonic() - begun < 60
    monkeypatch.undo()
    s3fs.S3FileSystem.clear_instance_cache()
