"""`detdata hash`, `verify`, `diff`, `merge`: exit codes, what goes where, and without torch."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from detdata.cli import main
from tests.versions.trees import PLAIN, make_tree

NO_TORCH = "import sys; sys.modules['torch'] = None; sys.argv[0] = 'detdata'; from detdata.cli import main; main()"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with data in it, and the user's cache elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_tree(tmp_path / "data", PLAIN)
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    return done


def test_hash_then_verify_is_the_same(folder):
    assert "5 files, 19 bytes -> data.lock.json" in run("hash", "data").stdout
    assert run("verify").stdout == "same: 5 files, 19 bytes (5 read, 0 taken from the cache)\n"
    assert run("verify", "data.lock.json", "--root", "data", "--quiet").output == ""


def test_verify_finds_the_data_beside_or_around_the_manifest(folder):
    run("hash", "data", "-o", "data/any.lock.json")
    run("verify", "data/any.lock.json")
    run("hash", "data", "-o", "other.lock.json")
    assert "--root FOLDER" in run("verify", "other.lock.json", code=2).stderr
    run("verify", "other.lock.json", "--root", "data")


def test_verify_does_not_look_elsewhere_once_files_are_gone(folder):
    run("hash", "data")
    (folder / "data/.hidden/f").unlink()
    assert "different: 1 removed" in run("verify", code=1).stdout
    for file in sorted((folder / "data").rglob("*.txt")):
        file.unlink()
    assert "different: 5 removed" in run("verify", code=1).stdout


def test_what_nobody_foresaw_is_exit_2_and_never_1(folder, monkeypatch):
    run("hash", "data")
    monkeypatch.setattr("detdata.versions.verify.verify_manifest", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in run("verify", code=2).stderr


def test_a_user_without_a_home_has_no_cache(folder, monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", nobody)
    run("hash", "data")
    run("verify", "--quick")


def test_a_change_is_exit_1_for_people_and_machines(folder):
    run("hash", "data")
    (folder / "data/a.txt").write_bytes(b"two")
    (folder / "data/new").write_bytes(b"")

    text = run("verify", code=1).stdout
    assert "different: 1 added, 1 changed" in text
    assert "a.txt: other content" in text
    record = json.loads(run("verify", "--json", code=1).stdout)
    assert (record["ok"], record["added"], [c["path"] for c in record["changed"]]) == (False, ["new"], ["a.txt"])
    run("verify", "--quiet", code=1)


def test_growth_is_exit_1_unless_allowed(folder):
    run("hash", "data")
    (folder / "data/zz").write_bytes(b"new")

    run("verify", code=1)
    assert "grown at the end only" in run("verify", "--allow-growth").stdout
    (folder / "data/a.txt").write_bytes(b"two")
    run("verify", "--allow-growth", code=1)


CANNOT = {
    "no manifest": (["verify", "none.lock.json"], "none.lock.json: cannot be read"),
    "no root": (["verify", "--root", "nowhere"], "nowhere: no such folder"),
    "no data": (["hash", "nowhere"], "nowhere: there is no such file or folder"),
    "no algorithm": (["hash", "data", "-a", "md5"], "algorithm must be one of"),
    "part": (["hash", "data", "--part", "3"], "--part must be I/N"),
    "part of none": (["hash", "data", "--part", "3/2"], "part"),
    "cache and no cache": (["hash", "data", "--no-cache", "--quick"], "--no-cache: not together"),
    "no diff": (["diff", "data", "nowhere"], "nowhere"),
    "merge": (["merge", "data.lock.json"], "part"),
    "no manifest in it": (["verify", "data/a.txt"], "a.txt"),
    "folder": (["verify", "data"], "data"),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_told_is_exit_2_on_stderr(folder, name):
    run("hash", "data")
    arguments, words = CANNOT[name]

    done = run(*arguments, code=2)
    assert words in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.output


def test_an_error_is_json_too_where_json_was_asked_for(folder):
    record = json.loads(run("verify", "none", "--json", code=2).stdout)
    assert record["kind"] == "DatasetError"


def test_the_manifest_can_go_to_the_terminal_or_be_compact(folder):
    text = run("hash", "data", "-o", "-").stdout
    assert json.loads(text)["files"] == 5
    run("hash", "data", "-o", "m.lock.json.gz")
    run("verify", "m.lock.json.gz", "--root", "data")
    record = json.loads(run("hash", "data", "--json").stdout)
    assert record["digest"] == json.loads(text)["digest"]


def test_diff_takes_manifests_and_data_in_any_pairing(folder):
    run("hash", "data", "-o", "old.lock.json")
    make_tree(folder / "new", PLAIN | {"a.txt": b"onE"})
    run("hash", "new", "-o", "new.lock.json")

    for old in ("data", "old.lock.json"):
        for new in ("new", "new.lock.json"):
            assert "a.txt: other content, 3 bytes as before" in run("diff", old, new, code=1).stdout
        assert run("diff", old, "data").stdout.startswith("same")
    assert "from byte 2 on" in run("diff", "data", "new", code=1).stdout
    run("hash", "data", "-o", "sha.lock.json", "-a", "sha256")
    assert "algorithm" in run("diff", "old.lock.json", "sha.lock.json", code=2).stderr


def test_parts_and_merge(folder):
    for i in (1, 2, 3):
        run("hash", "data", "--part", f"{i}/3", "-o", f"part-{i}.lock.json")
    run("merge", *(f"part-{i}.lock.json" for i in (3, 1, 2)))
    run("verify")
    assert "merge the parts first" in run("verify", "part-1.lock.json", "--root", "data", code=2).stderr


def test_rules_on_the_command_line(folder):
    run("hash", "data", "--exclude", "b/", "--include", "*.txt")
    assert [entry[0] for entry in json.loads((folder / "data.lock.json").read_text())["entries"]] == ["a.txt", "b.txt"]
    run("verify")


def test_a_summary_is_appended_as_markdown(folder):
    run("hash", "data")
    (folder / "summary.md").write_text("before\n")
    run("verify", "--summary", "summary.md")
    (folder / "data/a.txt").unlink()
    run("verify", "--summary", "summary.md", code=1)

    lines = (folder / "summary.md").read_text().splitlines()
    assert lines[0] == "before"
    assert [line for line in lines if line.startswith("**Dataset")] != []
    assert "- `a.txt`" in lines


def test_rows_in_other_files_are_the_same(folder):
    table = pa.table({"id": range(1000), "price": [i / 3 for i in range(1000)]})
    for name, size, codec in (("a", 100, "snappy"), ("b", 999, "zstd")):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "part-0.parquet", row_group_size=size, compression=codec)

    assert run("diff", "a", "b", "--content", "rows").stdout.startswith("same")
    run("diff", "a", "b", code=1)
    run("hash", "a", "--content", "rows", "-o", "rows.lock.json")
    run("verify", "rows.lock.json", "--root", "b")
    changed = table.set_column(1, "price", pa.array([-1.0 if i == 420 else i / 3 for i in range(1000)]))
    pq.write_table(changed, folder / "b" / "part-0.parquet")
    text = run("diff", "a", "b", "--content", "rows", code=1).stdout
    assert "1 row changed, near row 420 of part-0.parquet" in text
    assert "price" in run("verify", "rows.lock.json", "--root", "b", code=1).stdout


def test_it_works_without_torch(folder):
    for arguments in (["hash", "data"], ["verify"], ["diff", "data.lock.json", "data"]):
        done = subprocess.run([sys.executable, "-c", NO_TORCH, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done


def test_a_full_disk_or_read_only_folder_loses_nothing(folder, monkeypatch):
    run("hash", "data")
    before = (folder / "data.lock.json").read_bytes()
    (folder / "data/a.txt").write_bytes(b"two")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in run("hash", "data", code=2).stderr
    assert (folder / "data.lock.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["cache", "data", "data.lock.json"]
