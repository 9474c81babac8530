"""What a command prints, and what becomes of the exit code where that cannot be printed."""

import json
import signal
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.test_cli_dataset import folder as folder  # noqa: PLC0414 - a fixture
from tests.test_cli_dataset import run
from tests.test_cli_faults import shell

FULL = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")


@FULL
@pytest.mark.parametrize("options", ["", "--json"])
def test_a_report_that_finds_no_room_is_exit_2_and_no_traceback(folder, options):
    run("hash", "data")
    for command in ("verify", "diff data.lock.json data", "hash data", "hash nosuch"):
        done = shell(folder, f"detdata {command} {options} > /dev/full")
        assert done.returncode == 2, (command, done)
        assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_leaves_the_verdict(folder):
    run("hash", "data")
    for change, code in (("true", 0), ("echo other > data/a.txt", 1)):
        for options in ("", "--json"):
            done = shell(folder, f"{change}; (sleep 0.1; detdata verify {options}) | true; exit ${{PIPESTATUS[0]}}")
            assert (done.returncode, done.stderr) == (code, ""), options
    run("hash", "data", "--part", "1/1", "-o", "part.lock.json")
    for command in ("hash data", "hash data --json", "merge part.lock.json", "merge part.lock.json --json"):
        done = shell(folder, f"(sleep 0.1; detdata {command} -o new.lock.json) | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert run("verify", "new.lock.json", "--root", "data")
        (folder / "new.lock.json").unlink()


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_trouble(folder, closed):
    run("hash", "data")
    assert shell(folder, f"detdata verify {closed}").returncode == 0
    (folder / "data/a.txt").write_text("other")
    assert shell(folder, f"detdata verify {closed}").returncode == 1
    assert shell(folder, f"detdata hash nosuch {closed}").returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["hash", "--json"],
        ["hash", "data", "--json", "--workers", "0"],
        ["verify", "--nosuch", "--json"],
        ["diff", "--json", "data"],
        ["merge", "--json"],
    ],
)
def test_wrong_usage_is_json_too(folder, arguments):
    done = run(*arguments, code=2)
    assert json.loads(done.stdout)["kind"] == "UsageError"
    assert "Usage:" in done.stderr
    assert run(*(argument for argument in arguments if argument != "--json"), "--nosuch", code=2).stdout == ""


def test_a_command_that_is_stopped_says_so_in_json(folder, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("detdata.versions.compare.compare", stop)
    assert json.loads(run("diff", "data", "data", "--json", code=130).stdout)["kind"] == "KeyboardInterrupt"
    assert signal.getsignal(signal.SIGINT) is not None


def test_hash_says_what_was_trusted_and_what_that_cannot_see(folder, monkeypatch):
    monkeypatch.setattr("detdata.versions.cache.GRAIN_NS", -(10**12))
    assert run("hash", "data").output.endswith("5 files, 19 bytes -> data.lock.json\n")
    time.sleep(0.01)
    (folder / "data/a.txt").write_text("other")

    done = run("hash", "data", "--quick")
    assert "5 files, 21 bytes (1 read, 4 taken from the cache) -> data.lock.json" in done.stdout
    assert "note: quick: files taken from the cache were not read" in done.stderr
    assert "memory map" in done.stderr
    assert "quick" in json.loads(run("hash", "data", "--quick", "--json").stdout)["notes"][0]


def test_no_name_of_a_file_or_column_speaks_to_the_terminal(folder):
    name, column = "part\x1b[2J\n0.parquet", "c\x1b[31m\nsame rows"
    for place, value in (("old", 1), ("new", 2), ("text", "a")):
        (folder / place).mkdir()
        pq.write_table(pa.table({column: [value]}), folder / place / name)
    run("hash", "old", "--content", "rows")
    (folder / "old\x1b[2Jx").write_text("no table")

    for arguments, code in (
        (["verify", "--root", "new", "--compare-to", "old"], 1),
        (["verify", "--root", "text", "--summary", "summary.md"], 1),
        (["hash", "old\x1b[2Jx", "--content", "rows"], 2),
    ):
        told = run(*arguments, code=code).output
        assert "\\x1b[" in told
        assert all(character.isprintable() or character == "\n" for character in told)
        assert not any(line.startswith("same rows") for line in told.splitlines())
    assert "\x1b" not in (folder / "summary.md").read_text()


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252:strict", "utf-8"])
def test_what_a_terminal_cannot_write_changes_no_exit_code(folder, encoding):
    for name in ("日本", "é"):
        (folder / "data" / name).write_text("one")
    run("hash", "data", "-o", "expected.lock.json")
    made = shell(folder, "detdata hash data -o - > made.lock.json", PYTHONIOENCODING=encoding)
    assert (made.returncode, made.stderr) == (0, "")
    assert (folder / "made.lock.json").read_bytes() == (folder / "expected.lock.json").read_bytes()

    for name in ("日本", "é"):
        (folder / "data" / name).write_text("two")
    for command in ("verify made.lock.json --root data", "diff made.lock.json data"):
        told = shell(folder, f"detdata {command} > told", PYTHONIOENCODING=encoding)
        assert (told.returncode, told.stderr) == (1, "")
        shown = (folder / "told").read_bytes().decode(encoding.partition(":")[0])
        assert ("日本" if encoding == "utf-8" else "\\u65e5\\u672c") in shown
    gone = shell(folder, "detdata verify 日本.lock.json", PYTHONIOENCODING=encoding)
    assert gone.returncode == 2
    assert "UnicodeEncodeError" not in gone.stderr
