"""What a command line can get wrong is told before anything is hashed, and destroys nothing."""

import json
import os
import stat
import subprocess
import sys

import pytest

from tests.sources import ROOT
from tests.test_cli_dataset import folder as folder  # noqa: PLC0414 - a fixture
from tests.test_cli_dataset import run
from tests.versions.trees import make_tree


@pytest.fixture
def unread(folder, monkeypatch):
    """A folder whose data cannot be hashed without the test failing."""
    run("hash", "data")

    def never(*_, **__):
        pytest.fail("something was hashed")

    for name in ("digest_all", "digest_urls"):
        monkeypatch.setattr(f"detdata.versions.scan.{name}", never)
    return folder


def shell(folder, line, **variables):
    """Run a line of shell with `detdata` in it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), **variables}
    script = f'detdata() {{ "{sys.executable}" -m detdata "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


TOLD_FIRST = {
    "compare-to": (["verify", "--compare-to", "nosuch"], "nosuch: no such folder"),
    "compare-to a file": (["verify", "--compare-to", "data/a.txt"], "a.txt: no such folder"),
    "compare-to a URL": (["verify", "--compare-to", "memory://a"], "two folders of this machine"),
    "summary": (["verify", "--summary", "nosuch/summary.md"], "there is no folder"),
    "summary is a folder": (["diff", "data", "data", "--summary", "data"], "is a folder"),
    "output": (["hash", "data", "-o", "nosuch/data.lock.json"], "there is no folder"),
    "output is a folder": (["hash", "data", "-o", "data"], "is a folder"),
    "output is data": (["hash", "data", "-o", "data/a.txt"], "is no manifest"),
    "output is other data": (["hash", "data/b", "-o", "data/a.txt"], "is no manifest"),
    "output is a device": (["hash", "data", "-o", os.devnull], "is no regular file"),
    "merged into data": (["merge", "data.lock.json", "-o", "data/a.txt"], "is no manifest"),
    "two URLs": (["hash", "memory://a", "memory://b"], "there is no such file"),
    "a URL and a folder": (["hash", "data", "memory://b"], "is a URL, and others"),
    "piece size": (["hash", "data", "--piece-size", "64Q"], "from 64K to 1T"),
    "endless piece size": (["hash", "data", "--piece-size", "9" * 5000], "from 64K to 1T"),
    "negative piece size": (["hash", "data", "--piece-size=-1"], "from 64K to 1T"),
    "large piece size": (["hash", "data", "--piece-size", "2T"], "64 KiB … 1 TiB"),
    "an empty root": (["verify", "--root", ""], "root must be a path"),
    "an empty cache": (["hash", "data", "--cache", ""], "cache must be a path"),
    "an empty cache to trust": (["verify", "--quick", "--cache", ""], "cache must be a path"),
    "no cache and one": (["verify", "--no-cache", "--cache", "c"], "not together"),
    "small piece size": (["hash", "data", "--piece-size", "63K"], "64 KiB … 1 TiB"),
}


@pytest.mark.parametrize("name", TOLD_FIRST)
def test_it_is_told_before_anything_is_hashed(unread, name):
    before = {path: path.read_bytes() for path in (unread / "data").rglob("*") if path.is_file()}
    arguments, words = TOLD_FIRST[name]

    done = run(*arguments, code=2)
    assert words in done.stderr
    assert done.stdout == ""
    assert {path: path.read_bytes() for path in (unread / "data").rglob("*") if path.is_file()} == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_told_first(unread):
    (unread / "closed").mkdir(mode=0o500)
    assert "nothing may be made" in run("hash", "data", "-o", "closed/m.lock.json", code=2).stderr
    assert "nothing may be made" in run("verify", "--summary", "closed/s.md", code=2).stderr


def test_a_manifest_in_the_way_is_replaced_in_whatever_form_it_is(folder):
    run("hash", "data", "-o", "data/inside.json")
    run("hash", "data", "-o", "packed.gz")
    (folder / "data/a.txt").write_bytes(b"two")
    (folder / "link").symlink_to("packed.gz")
    for name in ("data/inside.json", "packed.gz", "link"):
        before = (folder / name).read_bytes()
        run("hash", "data", "-o", name)
        assert (folder / name).read_bytes() != before
    assert (folder / "link").is_symlink()


def test_standard_output_gets_the_manifest_and_stays_what_it_is(folder):
    text = run("hash", "data", "-o", "-").stdout
    for target in ("/dev/stdout", "/dev/fd/1"):
        assert shell(folder, f"detdata hash data -o {target}").stdout == text
        assert shell(folder, f"echo first > out; detdata hash data -o {target} >> out").returncode == 0
        assert (folder / "out").read_text() == f"first\n{text}"
    assert stat.S_ISLNK(os.lstat("/dev/stdout").st_mode)
    assert json.loads(text)["files"] == 5


def test_a_file_that_was_named_and_is_ignored_is_told_to_people_and_machines(folder):
    (folder / "data/.detdataignore").write_text("*.tmp\nraw/\n")
    make_tree(folder / "data", {"a.tmp": b"1", "raw/x": b"2"})
    make_tree(folder / "data", {"b[1]*.tmp": b"1", "c.tmp": b""})
    named = ["data/a.txt", "data/a.tmp", "data/raw", "data/.hidden", "data/b[[]1]*.tmp", "data/b[1]*.tmp"]

    # The deepest folder that holds what was named is the root, and its ignore file counts.
    told = run("hash", *named)
    assert "2 files, 7 bytes" in told.stdout
    for name in ("a.tmp", "raw", "b[1]*.tmp"):
        assert f"note: {name} was asked for by name, and .detdataignore leaves it out" in told.stderr
    assert ".hidden" not in told.stderr
    notes = json.loads(run("hash", *named, "--json").stdout)["notes"]
    assert len(notes) == 3
    assert "note" not in run("hash", "data").stderr
    assert "note" not in run("hash", "data/*").stderr
    assert "the dataset is empty" in run("hash", "data/a.tmp", "data/raw", code=2).stderr


def test_a_deleted_current_folder_is_called_that(folder):
    for arguments in ("hash data", "hash .", "verify", "diff a b", f"hash {folder}/data"):
        done = shell(folder, f"mkdir gone; cd gone; rmdir ../gone; detdata {arguments}")
        assert done.returncode == 2, done
        assert "the current folder has been deleted" in done.stderr
        assert "Errno" not in done.stderr


def test_merge_speaks_to_machines_or_not_at_all(folder):
    for i in (1, 2):
        run("hash", "data", "--part", f"{i}/2", "-o", f"part-{i}.lock.json")
    parts = ["part-1.lock.json", "part-2.lock.json"]
    whole = json.loads(run("hash", "data", "--json", "-o", "whole.lock.json").stdout)

    record = json.loads(run("merge", *parts, "--json").stdout)
    assert record == {name: whole[name] for name in ("digest", "files", "bytes")} | {"manifest": "data.lock.json"}
    assert run("merge", *parts, "-q").output == ""
    assert run("merge", *parts, "-o", "-").stdout == (folder / "whole.lock.json").read_text()
    assert json.loads(run("merge", parts[0], "--json", code=2).stdout)["kind"] == "ArgumentValueError"


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("65537", 65537), ("64K", 2**16), ("64KiB", 2**16), ("1m", 2**20), ("1 GB", 2**30)]
)
def test_a_piece_size_may_be_written_with_a_unit(folder, text, size):
    run("hash", "data", "--piece-size", text)
    assert json.loads((folder / "data.lock.json").read_text())["piece_size"] == size


def test_an_error_that_nobody_foresaw_is_json_too(folder, monkeypatch):
    monkeypatch.setattr("detdata.versions.compare.compare", lambda *_, **__: 1 / 0)
    assert json.loads(run("diff", "data", "data", "--json", code=2).stdout)["kind"] == "ZeroDivisionError"


def test_a_reader_that_goes_away_is_no_traceback(folder):
    done = shell(folder, "detdata hash data -o - | true; exit ${PIPESTATUS[0]}")
    assert (done.stdout, done.returncode, done.stderr) == ("", 2, "detdata hash: Broken pipe\n")
