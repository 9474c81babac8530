"""`detdata index` and `detdata convert`: exit codes, what goes where, what is told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from detdata import open_corpus
from detdata.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two files of JSON lines, and the user's cache elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, rows in (("a", range(10)), ("b", range(10, 15))):
        (tmp_path / f"data/{name}.jsonl").write_text("".join(json.dumps({"i": i}) + "\n" for i in rows))
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.parametrize("workers", [1, 2])
def test_indexes_are_made_once(folder, workers):
    assert run("index", "data", "--workers", workers).stdout == "2 file(s), 15 rows: 2 indexed\n"
    assert run("index", "data", "--workers", workers).stdout == "2 file(s), 15 rows: 2 had an index that holds\n"
    assert sorted(file.name for file in (folder / "data").iterdir()) == [
        "a.jsonl",
        "a.jsonl.detdata-index",
        "b.jsonl",
        "b.jsonl.detdata-index",
    ]


def test_an_index_goes_into_the_cache_if_asked(folder):
    told = json.loads(run("index", "data", "--in", "cache", "--json").stdout)

    assert [file["rows"] for file in told["files"]] == [10, 5]
    assert all(file["index"].startswith(str(folder / "cache")) for file in told["files"])
    assert sorted(file.name for file in (folder / "data").iterdir()) == ["a.jsonl", "b.jsonl"]


def test_a_stale_index_is_made_anew(folder):
    run("index", "data")
    with (folder / "data/b.jsonl").open("a") as file:
        file.write('{"i": 15}\n')

    assert run("index", "data").stdout == "2 file(s), 16 rows: 1 indexed, 1 had an index that holds\n"


def test_broken_rows_are_found_recorded_and_skipped(folder):
    (folder / "data/a.jsonl").write_text('{"i": 0}\n{"i": \n{"i": 2}\n')

    assert "broken: row 1: " in run("index", "data", "--check", code=1).stdout
    run("index", "data", "--check", "--skip-list", "skips.json", code=1)

    corpus = open_corpus("data", on_error="skip", skip_list="skips.json")
    assert [row["i"] for row in corpus] == [0, 2, 2, 10, 11, 12, 13, 14]
    assert "every row can be read" in run("index", "data/b.jsonl", "--check").stdout


def test_what_cannot_be_read_is_exit_2(folder):
    assert "no such file" in run("index", "nosuch.jsonl", code=2).stderr
    assert "give both" in run("index", "data", "--skip-list", "x", code=2).stderr
    assert json.loads(run("index", "nosuch.jsonl", "--json", code=2).stdout)["kind"] == "CorpusUnreadable"
    assert "NAME=VALUE" in run("index", "data", "--set", "x", code=2).stderr


def test_convert_keeps_rows_and_goes_on(folder):
    assert run("convert", "data", "-o", "out").stdout == "15 rows in 1 part(s) -> out\n"
    assert run("convert", "data", "-o", "out").stdout == "15 rows (15 were there) in 1 part(s) -> out\n"
    assert [row["i"] for row in open_corpus("out", format="arrow")] == list(range(15))
    told = json.loads(run("convert", "data", "-o", "other", "--columns", "i", "--part-size", "1M", "--json").stdout)
    assert told == {"folder": "other", "rows": 15, "parts": 1, "resumed": 0}


def test_convert_tells_what_fits_no_table(folder):
    (folder / "data/c.jsonl").write_text('{"i": "text"}\n')

    assert "--json-column i" in run("convert", "data", "-o", "out", code=2).stderr
    run("convert", "data", "-o", "out", "--json-column", "i")


@pytest.mark.parametrize("setting", ["index=cache", "workers=2", "columns=1", "progress=1"])
def test_a_setting_that_is_an_argument_of_the_command_is_refused(folder, setting):
    assert "--set must be NAME=VALUE" in run("index", "data", "--set", setting, code=2).stderr


def begin_to_index(folder):
    """Return a run that has two processes at work on an index, and the ids of all that it has started."""
    for name in "ab":
        (folder / f"data/{name}.jsonl").write_text('{"i": 1}\n' * 8_000_000)
    command = [sys.executable, "-c", "from detdata.cli import main; main()", "index", "data", "--workers", "2"]
    child = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    while child.poll() is None and len(children.read_text().split()) < 3:  # two, and one that multiprocessing has
        time.sleep(0.01)
    return child, [int(each) for each in children.read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_of_all_processes_is_told_in_one_line(folder):
    child, _ = begin_to_index(folder)
    os.killpg(child.pid, signal.SIGINT)

    assert child.communicate(timeout=60)[1] == "\ndetdata index: stopped\n"
    assert child.returncode == 130


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_that_is_killed_is_told(folder):
    child, processes = begin_to_index(folder)
    os.kill(processes[-1], signal.SIGKILL)

    assert "try fewer workers" in child.communicate(timeout=60)[1]
    assert child.returncode == 2


@pytest.mark.parametrize("output", ["data", "data/out", "data/../data/deep/out"])
def test_a_conversion_never_goes_into_the_folder_that_it_reads(folder, output):
    assert "lies in data" in run("convert", "data", "-o", output, code=2).stderr
    assert not list((folder / "data").rglob("origin.json"))
