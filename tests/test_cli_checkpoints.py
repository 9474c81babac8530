"""`detdata ckpt list`, `show`, `verify`, `diff`: exit codes, what is printed, what is imported, what files may hold."""

import json
import os
import pickle
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner

from detdata.checkpoint.files import FileRecord, hash_file
from detdata.checkpoint.manifest import Manifest, read_manifest
from detdata.cli import main
from tests.checkpoint.runs import save_run
from tests.sources import ROOT
from tests.test_cli_faults import shell

WITNESS = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr))
from detdata.cli import main
main(prog_name="detdata")
"""


@pytest.fixture
def root(tmp_path):
    """A root with a latest and a periodic checkpoint of step 3."""
    save_run(tmp_path / "run", kinds=("latest", "periodic"))
    return tmp_path / "run"


def run(*arguments, code=0):
    done = CliRunner().invoke(main, ["ckpt", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def flip(path, at=-100):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def resealed(folder, name, data, **more):
    """Replace a file and write a manifest that fits: what somebody with the right to write can do."""
    (folder / name).write_bytes(data)
    old = read_manifest(folder)
    files = {**old.files, name: hash_file(folder / name), **more}
    (folder / "manifest.json").write_bytes(Manifest(old.step, old.kind, old.saved_ns, files).to_bytes())


@pytest.mark.parametrize("options", ["", " --json"])
def test_a_reader_that_goes_away_leaves_the_verdict(tmp_path, root, options):
    flip(root / "ckpt_latest" / "model.pt")
    for command, code in (("list run", 1), ("show run/ckpt_step_3", 0), ("verify run/ckpt_latest", 1)):
        done = shell(tmp_path, f"(sleep 0.1; detdata ckpt {command}{options}) | true; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (code, ""), command


# --- list -------------------------------------------------------------------------------------------------------------


def test_list_shows_each_checkpoint_newest_first(root):
    lines = run("list", root).stdout.splitlines()

    assert lines[0].split() == ["name", "kind", "step", "epoch", "samples", "size", "saved", "ranks", "state"]
    assert [line.split()[0] for line in lines[1:]] == ["ckpt_step_3", "ckpt_latest"]
    assert [line.split()[2:5] for line in lines[1:]] == [["3", "0", "24"]] * 2
    assert all(line.endswith("1  whole") for line in lines[1:])


def test_list_for_machines_has_everything(root):
    record = json.loads(run("list", root, "--json").stdout)

    newest = record["checkpoints"][0]
    assert (record["ok"], record["checked"], len(record["checkpoints"])) == (True, "bytes", 2)
    assert (newest["step"], newest["kind"], newest["world_size"], newest["ok"]) == (3, "periodic", 1, True)
    assert newest["size_bytes"] == sum(
        file.stat().st_size for file in (root / "ckpt_step_3").iterdir() if file.name != "manifest.json"
    )
    assert newest["saved"].endswith("Z")


def test_list_says_what_is_broken_and_quick_sees_sizes_only(root):
    flip(root / "ckpt_latest/model.pt")

    text = run("list", root, code=1).stdout
    assert "broken\n  - model.pt is altered: its digest is" in text
    assert "sizes right" in run("list", root, "--quick").stdout
    (root / "ckpt_latest/model.pt").unlink()
    assert "model.pt is missing" in run("list", root, "--quick", code=1).stdout
    assert run("list", root, "-q", code=1).output == ""


def test_list_reads_on_where_manifest_and_records_are_garbage(root):
    (root / "ckpt_latest/manifest.json").write_bytes(b"{")
    (root / "ckpt_step_3/meta.json").write_bytes(b"\xff")

    found = {row["name"]: row for row in json.loads(run("list", root, "--json", code=1).stdout)["checkpoints"]}
    assert found["ckpt_latest"]["step"] is None
    assert found["ckpt_step_3"]["world_size"] is None
    assert found["ckpt_step_3"]["epoch"] == 0


def test_list_of_what_is_no_root_is_exit_2(root, tmp_path):
    assert "there is no folder" in run("list", tmp_path / "nope", code=2).stderr
    assert "is no folder" in run("list", root / "ckpt_latest/model.pt", code=2).stderr
    assert "name the folder around it" in run("list", root / "ckpt_latest", code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "no checkpoints in" in run("list", tmp_path / "empty").stdout


def test_a_checkpoint_of_another_release_is_neither_whole_nor_broken(root):
    path = root / "ckpt_latest/manifest.json"
    from detdata.records import canonical_json, digest

    record = json.loads(path.read_bytes()) | {"format": "detdata.checkpoint/9"}
    del record["digest"]
    path.write_bytes(canonical_json(record | {"digest": digest(canonical_json(record))}))

    assert "of another release" in run("list", root, code=2).stdout
    run("verify", root / "ckpt_latest", code=2)
    assert "newer release" in run("show", root / "ckpt_latest", code=2).stderr
    assert "newer release" in run("diff", root / "ckpt_latest", root / "ckpt_step_3", code=2).stderr


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_says_what_the_run_was_and_where_it_stood(root):
    text = run("show", root / "ckpt_latest").stdout

    for words in (
        "names and sizes as written",
        "consumed_samples 24, epoch 0, global_step 3",
        "model: torch.nn.modules.container.Sequential, 25 parameters, 4 tensors",
        "optimizer: torch.optim.AdamW, 1 group(s)",
        "0.weight, 0.bias, 2.weight, 2.bias",
        "schedulers: torch.optim.StepLR",
        "world_size: 1",
        f"torch: {torch.__version__}",
        "  lr: 0.01",
        "accepted: none",
        "resumed: none",
        f"({os.getpid()})",
        "rng_rank00000.pt",
        "random states of: 1 rank(s): 0",
    ):
        assert words in text, words


def test_show_of_a_root_takes_what_resume_would_take(root):
    assert json.loads(run("show", root, "--json").stdout)["path"] == str(root / "ckpt_step_3")
    flip(root / "ckpt_step_3/optimizer.pt")

    record = json.loads(run("show", root, "--json").stdout)
    assert (record["path"], record["verified"]) == (str(root / "ckpt_latest"), True)
    assert "optimizer.pt is altered" in record["passed_over"][str(root / "ckpt_step_3")][0]
    text = run("show", root).stdout
    assert "passed over:" in text
    assert "whole: every byte was read" in text


def test_show_lists_the_tensors_with_what_is_in_them(root):
    rows = json.loads(run("show", root / "ckpt_latest", "--tensors", "--json").stdout)["tensors"]

    found = {(row["part"], row["name"]): row for row in rows}
    weight = torch.load(root / "ckpt_latest/model.pt", weights_only=True)["0.weight"]
    row = found["model.pt", "0.weight"]
    assert (row["dtype"], row["shape"], row["non_finite"]) == ("float32", [4, 4], 0)
    assert (row["min"], row["max"]) == (weight.min().item(), weight.max().item())
    assert row["mean"] == pytest.approx(weight.mean().item())
    assert ("optimizer.pt", "state/0.weight/exp_avg") in found
    assert ("rng_rank00000.pt", "torch") in found
    assert "state/0.weight/exp_avg_sq" in run("show", root / "ckpt_latest", "--tensors").stdout


def test_show_of_a_broken_one_says_so_and_shows_the_rest(root):
    (root / "ckpt_latest/progress.json").write_text("{}")
    flip(root / "ckpt_latest/model.pt")

    done = run("show", root / "ckpt_latest", code=1)
    assert "broken: " in done.stdout
    assert "progress.json has 2 bytes" in done.stdout
    assert "model: torch.nn" in done.stdout
    assert "model.pt is altered" in run("show", root / "ckpt_latest", "--tensors", code=1).stdout
    flip(root / "ckpt_step_3/model.pt")
    assert "ckpt_step_3 is broken" in run("show", root, code=1).stderr


def test_nothing_from_a_file_reaches_the_terminal_as_it_is(root):
    meta = json.loads((root / "ckpt_latest/meta.json").read_bytes()) | {"config": {"\x1b[2J": "\x1b]0;x\x07\u202e"}}
    resealed(root / "ckpt_latest", "meta.json", json.dumps(meta).encode())

    text = run("show", root / "ckpt_latest").stdout
    assert "\\x1b[2J: \\x1b]0;x\\x07\\u202e" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_meta_that_is_nonsense_is_shown_without_a_crash(root):
    meta = {"format": "detdata.meta/1", "model": [], "optimizer": {"groups": 3}, "topology": 1, "processes": [[]]}
    resealed(root / "ckpt_latest", "meta.json", json.dumps(meta).encode())

    assert "optimizer: None" in run("show", root / "ckpt_latest").stdout
    run("list", root)


# --- verify -----------------------------------------------------------------------------------------------------------


def test_verify_reads_every_byte_of_checkpoints_and_roots(root):
    assert run("verify", root / "ckpt_latest", root).stdout.count("whole: ") == 3
    flip(root / "ckpt_latest/rng_rank00000.pt")
    (root / "ckpt_latest/more").touch()

    text = run("verify", root, code=1).stdout
    assert "broken: " in text
    assert "  - rng_rank00000.pt is altered" in text
    assert "  - more is not part of the checkpoint" in text
    record = json.loads(run("verify", root, "--json", code=1).stdout)
    assert [row["ok"] for row in record["checkpoints"]] == [True, False]
    assert run("verify", root, "-q", code=1).output == ""


def test_verify_of_nothing_is_exit_2(root, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "no checkpoint in" in run("verify", tmp_path / "empty", code=2).stderr
    done = run("verify", root, tmp_path / "nope", code=2)
    assert (done.stdout, "no folder" in done.stderr) == ("", True)


# --- diff -------------------------------------------------------------------------------------------------------------


def test_diff_is_exit_0_for_equal_state_and_1_for_other_state(root, tmp_path):
    save_run(tmp_path / "twin")
    save_run(tmp_path / "other", weight=0.25)

    assert run("diff", root, tmp_path / "twin").stdout.startswith("same: all state of 7 parts is equal to the bit")
    text = run("diff", root, tmp_path / "other", code=1).stdout
    assert text.startswith("different: 1 of 7 parts: model\n")
    assert "2.weight  float32 [1, 4]: 1 of 4 elements differ by up to" in text
    assert "not compared: time, host, pid, processes" in text
    assert run("diff", root, tmp_path / "other", "-q", code=1).output == ""


def test_diff_for_machines_has_every_figure(root, tmp_path):
    save_run(tmp_path / "other", weight=float("inf"))

    record = json.loads(run("diff", root, tmp_path / "other", "--json", code=1).stdout, parse_constant=pytest.fail)
    [part] = [part for part in record["parts"] if not part["same"]]
    [row] = part["differences"]
    assert (part["name"], row["name"], row["kind"]) == ("model.pt", "2.weight", "elements")
    assert row["elements"]["max_abs"] == "inf"
    assert row["elements"] | {"a": 0, "max_rel": 0} == {
        "count": 1, "total": 4, "max_abs": "inf", "max_rel": 0, "nan": 0, "first": [0, 0], "a": 0, "b": "inf",
    }  # fmt: skip


@pytest.mark.parametrize("file", ["model.pt", "meta.json", "rng_rank00000.pt", "manifest.json"])
def test_a_broken_checkpoint_on_either_side_is_exit_2(root, file):
    flip(root / "ckpt_latest" / file, at=40)

    for pair in (("ckpt_latest", "ckpt_step_3"), ("ckpt_step_3", "ckpt_latest")):
        done = run("diff", *(root / name for name in pair), code=2)
        assert "ckpt_latest is broken" in done.stderr
        assert file in done.stderr
        assert "Name another checkpoint" in done.stderr
    assert json.loads(run("diff", root / "ckpt_latest", root, "--json", code=2).stdout)["kind"] == "CheckpointBroken"


def test_diff_without_checkpoints_is_exit_2(root, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "there is no folder" in run("diff", root, tmp_path / "nope", code=2).stderr
    assert "there is no checkpoint in" in run("diff", tmp_path / "empty", root, code=2).stderr


class Planted:
    def __reduce__(self):
        return os.mkdir, (os.environ["PLANTED"],)


def test_no_code_from_a_file_runs(root, tmp_path, monkeypatch):
    planted = tmp_path / "planted"
    monkeypatch.setenv("PLANTED", str(planted))
    torch.save({"0.weight": Planted()}, tmp_path / "x.pt")
    for data in ((tmp_path / "x.pt").read_bytes(), pickle.dumps(Planted(), protocol=2)):
        resealed(root / "ckpt_latest", "model.pt", data)

        assert "running code" in run("diff", root / "ckpt_latest", root / "ckpt_step_3", code=2).stderr
        assert "running code" in run("show", root / "ckpt_latest", "--tensors", code=1).stdout
        run("list", root)
        run("verify", root)
        assert not planted.exists()


def test_files_that_a_manifest_lists_stay_in_the_folder(root, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    (root / "ckpt_latest/more.pt").symlink_to(secret)
    resealed(root / "ckpt_latest", "progress.json", (root / "ckpt_latest/progress.json").read_bytes(),
             **{"more.pt": FileRecord(1, hash_file(secret).digest)})  # fmt: skip

    assert "more.pt" in run("diff", root / "ckpt_latest", root / "ckpt_step_3", code=2).stderr
    assert "more.pt" in run("verify", root / "ckpt_latest", code=1).stdout


# --- a process of its own ---------------------------------------------------------------------------------------------


def spawned(*arguments, code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, "ckpt", *map(str, arguments)],
        env={"PATH": "", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


def test_only_what_looks_into_tensors_imports_torch(root):
    for arguments in (["list", root], ["verify", root], ["show", root], ["show", root / "ckpt_latest", "--json"]):
        text, modules = spawned(*arguments)
        assert text
        assert modules & {"torch", "numpy", "pyarrow", "rich"} == set(), arguments
    for command in ([], ["list"], ["show"], ["verify"], ["diff"]):
        _, modules = spawned(*command, "--help")
        assert modules & {"torch", "numpy", "xxhash"} == set(), command


def test_a_process_of_its_own_tells_two_checkpoints_apart(root, tmp_path):
    save_run(tmp_path / "other", steps=4)

    text, _ = spawned("diff", root, tmp_path / "other", code=1, NO_COLOR="1")
    assert text.startswith("different: ")
    assert "\x1b" not in text
    text, _ = spawned("diff", root, root / "ckpt_latest")
    assert text.startswith("same: ")
