"""moto's S3 server on loopback behind a proxy that counts what it sends, and spoils the answers that a test wants."""

import http.client
import socket
import struct
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import s3fs

from detdata.corpora import retrying
from tests.checkpoint.stores import s3_environment, s3_server

HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Answer:
    """What the store answered. sends: bytes of the body that are really sent, None for all; then the line is cut."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.sends = None
        self.waits = 0.0

    def become(self, status, code):
        """Be an error of S3 instead."""
        self.status = status
        self.body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}!</Message></Error>".encode()
        self.headers = [("Content-Type", "application/xml")]


class Faults:
    """The requests so far, as (method, path, range); and plan(method, path, range, answer), which may spoil answers.

    asked(method, path, headers) is called before a request goes on to the store, and may change its headers.
    """

    def __init__(self):
        self.log, self.sent = [], 0
        self.plan = self.asked = None

    def clear(self):
        self.log, self.sent = [], 0

    def gets(self, ending=""):
        return [(path, span) for method, path, span in self.log if method == "GET" and span and path.endswith(ending)]

    def times(self, count, fault, method="GET"):
        """Spoil this many answers with data, one after the other."""
        left = [count]

        def plan(asked, path, span, answer):
            if asked == method and (span or method != "GET") and answer.status < 400 and left[0]:
                left[0] -= 1
                fault(answer)

        self.plan = plan
        return left


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each small answer takes 40 ms
    faults = None
    behind = None

    def do_any(self):
        faults = self.faults
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        path, span = self.path.partition("?")[0], self.headers.get("Range")
        if faults.asked is not None:
            faults.asked(self.command, path, headers)
        store = http.client.HTTPConnection(*self.behind)
        store.request(self.command, self.path, body=body or None, headers=headers)
        reply = store.getresponse()
        kept = [(name, value) for name, value in reply.getheaders() if name.lower() not in HOP]
        answer = Answer(reply.status, kept, reply.read())
        length = reply.getheader("Content-Length")
        store.close()
        faults.log.append((self.command, path, span))
        if faults.plan is not None:
            faults.plan(self.command, path, span, answer)
        time.sleep(answer.waits)
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        faults.sent += len(answer.body)
        if answer.sends is None:
            self.wfile.write(answer.body)
        else:
            self.wfile.write(answer.body[: answer.sends])
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815 - the names of http.server

    def handle(self):
        try:
            super().handle()
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        pass


@contextmanager
def proxy(address):
    """Yield (address of the proxy, its faults)."""
    host, _, port = address.removeprefix("http://").partition(":")
    faults = Faults()
    kind = type("Kind", (Handler,), {"faults": faults, "behind": (host, int(port))})
    server = Server(("127.0.0.1", 0), kind)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def behind():
    """The faults of a proxy, through which every process finds the store; no tries but ours."""
    with s3_server() as address, proxy(address) as (front, faults), pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(front).items():
            patch.setenv(name, value)
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        patch.setattr(s3fs.S3FileSystem, "retries", 1)
        patch.setattr(retrying, "PAUSE_S", 0.0)
        s3fs.S3FileSystem.clear_instance_cache()
        yield faults
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def faults(behind):
    behind.plan = behind.asked = None
    behind.clear()
    yield behind
    behind.plan = behind.asked = None


@pytest.fixture
def system(behind):
    return s3fs.S3FileSystem()


@pytest.fixture
def root(faults, system, request):
    """The URL of a folder in a bucket of its own."""
    bucket = f"b{abs(hash(request.node.name)):x}"
    system.mkdir(bucket)
    return f"s3://{bucket}/data"
