"""A store in memory that shows every request, and does with it what a test wants; and moto's S3 server on loopback."""

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from detdata.checkpoint import remote, remote_path

ROOT = "recorded://bucket/run"
CHANGES = {"begin", "part", "complete", "abort", "put", "delete"}


class PowerCut(BaseException):
    """No code of the process runs after it: every further request raises it too."""


class Recorded(MemoryFileSystem):
    """Objects in memory, seen when their upload is complete. `plan(name, path)` is called before each request."""

    protocol = "recorded"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    plan = None
    after = None
    log: ClassVar[list] = []

    @classmethod
    def request(cls, name, path):
        cls.log.append((name, cls._strip_protocol(path)))
        if cls.plan is not None:
            cls.plan(name, path)

    @classmethod
    def done(cls, name, path):
        if cls.after is not None:
            cls.after(name, path)

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("recorded:/"))

    def _open(self, path, mode="rb", **kwargs):
        if "w" in mode:
            return _Upload(self, path)
        return super()._open(path, mode, **kwargs)

    def keep(self, path, data):
        self.store.pop(self._strip_protocol(path), None)
        super()._open(path, "wb", data=data)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self.request("put", path)
        self.keep(path, value)
        self.done("put", path)

    def cat_file(self, path, start=None, end=None, **kwargs):
        self.request("get", path)
        return super().cat_file(path, start, end, **kwargs)

    def info(self, path, **kwargs):
        self.request("head", path)
        return super().info(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        self.request("list", path)
        return super().ls(path, detail, **kwargs)

    def rm(self, path, recursive=False, maxdepth=None):
        for one in path:
            self.request("delete", one)
            self.store.pop(self._strip_protocol(one), None)


class _Upload:
    def __init__(self, system, path):
        self.system, self.path, self.data, self.closed = system, path, bytearray(), False
        system.request("begin", path)

    def write(self, data):
        if not self.data:
            self.system.request("part", self.path)
        self.data += data
        return len(data)

    def fileno(self):
        raise OSError("no descriptor")

    def close(self):
        self.system.request("complete", self.path)
        self.system.keep(self.path, bytes(self.data))
        self.system.done("complete", self.path)

    def discard(self):
        self.system.request("abort", self.path)


fsspec.register_implementation("recorded", Recorded, clobber=True)


class Stop:
    """Lets `left` changes through, and answers every further one with `error`."""

    def __init__(self, left, error=PowerCut, names=CHANGES):
        self.left, self.error, self.names = left, error, names

    def __call__(self, name, path):
        if name in self.names:
            self.left -= 1
            if self.left < 0:
                raise self.error


class Interrupt:
    """Does `work` before the request of this number, once; the requests of the work are not counted."""

    def __init__(self, number, work, names=CHANGES):
        self.number, self.work, self.names = number, work, names
        self.done = False

    def __call__(self, name, path):
        if name in self.names and not self.done:
            self.number -= 1
            if self.number < 0:
                self.done = True
                self.work()


def restart():
    """Forget what only a process knows."""
    remote._given_up.clear()
    remote._named.clear()
    remote._sent.clear()


def fresh_store(monkeypatch):
    """Return the store, empty; it lets everything through, and nobody pauses between tries."""
    put_back({})
    Recorded.log.clear()
    monkeypatch.setattr(Recorded, "plan", None)
    monkeypatch.setattr(Recorded, "after", None)
    monkeypatch.setattr(remote_path, "PAUSES_S", (0.0, 0.0))
    restart()
    return fsspec.filesystem("recorded")


def content():
    """What the store holds."""
    return {key: bytes(file.getvalue()) for key, file in Recorded.store.items()}


def put_back(objects):
    """Make it hold this and nothing else."""
    Recorded.store.clear()
    for key, data in objects.items():
        fsspec.filesystem("recorded").keep(key, data)


def places():
    """Names of the places that hold anything."""
    return sorted({key.split("/data/")[1].split("/")[0] for key in Recorded.store if "/data/" in key})


@contextmanager
def s3_server():
    """Yield the address of a server that speaks S3 over HTTP, on loopback, in a process of its own."""
    program = (
        "import sys; from moto.server import ThreadedMotoServer as Server;"
        "server = Server('127.0.0.1', 0, verbose=False); server.start(); "
        "print(server.get_host_and_port()[1], flush=True); sys.stdin.read(); server.stop()"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def s3_environment(address):
    """Variables by which every process, also a forked one, finds the server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
    }
