"""What a terminal shows and what it doesn't; and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.sources import ROOT
from tests.test_cli_dataset import folder as folder  # noqa: PLC0414 - a fixture
from tests.test_cli_dataset import run

pty = pytest.importorskip("pty", reason="a terminal of Unix")


def at_a_terminal(cwd, *arguments, **variables):
    """(what `detdata …` writes to stdout, to stderr), both being a terminal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "NO_COLOR": "", **variables}
    (out, out_end), (err, err_end) = pty.openpty(), pty.openpty()
    command = [sys.executable, "-m", "detdata", *arguments]
    with subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=out_end, stderr=err_end):
        os.close(out_end)
        os.close(err_end)
        return drain(out), drain(err)


def drain(terminal):
    data = b""
    while True:
        try:
            more = os.read(terminal, 1 << 16)
        except OSError:  # what Linux says where others say the end
            more = b""
        if not more:
            os.close(terminal)
            return data.decode()
        data += more


def test_a_terminal_sees_progress_and_colours(folder):
    assert "\x1b[" in at_a_terminal(folder, "hash", "data")[1]
    (folder / "data/a.txt").write_bytes(b"two")
    out, err = at_a_terminal(folder, "verify")
    assert "\x1b[31m" in out
    assert "\x1b[" in err


@pytest.mark.parametrize(
    ("options", "variables"),
    [(["-q"], {}), (["--json"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})],
    ids=["quiet", "json", "NO_COLOR", "dumb terminal"],
)
def test_who_wants_it_plain_gets_no_progress(folder, options, variables):
    run("hash", "data")
    (folder / "data/a.txt").write_bytes(b"two")

    out, err = at_a_terminal(folder, "verify", *options, **variables)
    assert err == ""
    assert "NO_COLOR" not in variables or "\x1b" not in out
    assert (out == "") == ("-q" in options)


def test_without_a_terminal_there_is_no_progress(folder):
    done = subprocess.run(
        [sys.executable, "-m", "detdata", "hash", "data"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stderr, "\x1b" in done.stdout) == ("", False)


def test_ctrl_c_says_how_to_go_on_and_leaves_the_manifest_as_it_was(folder):
    (folder / "data/large").write_bytes(bytes(5 * 2**20))
    with (folder / "data/huge").open("wb") as file:
        file.truncate(40 * 2**30)  # a hole: takes seconds to read, and no room
    time.sleep(2.1)  # a younger file is not remembered
    # A shell's background jobs, and what they start, have SIGINT ignored.
    code = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from detdata.cli import main; main()"
    command = [sys.executable, "-c", code, "hash", "data", "--workers", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        time.sleep(2.5)
        os.kill(process.pid, signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()

    assert (process.returncode, out) == (130, "")
    assert "with --quick the next run goes on from the cache" in err
    assert "Traceback" not in err
    assert not (folder / "data.lock.json").exists()
    (folder / "data/huge").unlink()
    assert json.loads(run("hash", "data", "--quick", "--json").stdout)["trusted"] == 1


def test_ctrl_c_promises_nothing_where_nothing_is_remembered(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("detdata.versions.scan.list_files", stop)
    for options in ([], ["--no-cache"]):
        assert run("hash", "data", *options, code=130).stderr == "\ndetdata hash: stopped\n"
    monkeypatch.setattr("detdata.versions.manifest.Manifest.load", stop)
    assert run("verify", code=130).stderr == "\ndetdata verify: stopped\n"


def test_ctrl_c_before_a_command_has_begun_is_not_exit_1(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("detdata.cli.dataset.errors", stop)
    assert run("verify", code=130).stderr == "\ndetdata: stopped\n"
