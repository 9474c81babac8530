"""The whole demonstration at a small size, through the command line, with a real SIGKILL."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from detdata.cli import main
from detdata.demo import run as runs
from detdata.demo.children import ChildFailed, Children, Kill, Stopped
from detdata.demo.settings import SMALL, Settings

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, CliRunner().invoke(main, ["demo", "--small", "--seed", "3", "--json", "--out", str(out)])


def test_the_exact_resume_is_bit_equal_and_the_others_are_not(demo):
    out, result = demo

    assert result.exit_code == 0, result.output
    table = json.loads((out / "table.json").read_text())
    rows = {row["arm"]: row for row in table["rows"]}
    exact, straight = rows["detdata"], rows["straight"]
    assert table["kill"]["signal"] == signal.SIGKILL
    assert table["kill"]["workers"] == 2
    assert exact["digest"] == straight["digest"]
    assert exact["held_out_loss"] == straight["held_out_loss"]
    assert (exact["largest_loss_difference"], exact["largest_parameter_difference"]) == (0, 0)
    assert exact["equal_losses"] == exact["compared_losses"] == SMALL.steps - table["checkpoint_step"]
    assert (exact["repeated"], exact["skipped"]) == (0, 0)
    for arm in ("weights", "no-position"):
        assert not rows[arm]["parameters_equal"]
        assert rows[arm]["largest_loss_difference"] > 1e-3
        assert rows[arm]["held_out_difference"] > 0


def test_the_counts_are_those_of_the_arithmetic(demo):
    out, _ = demo
    table = json.loads((out / "table.json").read_text())
    rows = {row["arm"]: row for row in table["rows"]}
    done = table["checkpoint_step"]

    in_epoch = done % SMALL.steps_per_epoch * SMALL.batch_size
    anew = min(done, SMALL.steps - done) * SMALL.batch_size
    assert (rows["no-position"]["repeated"], rows["no-position"]["skipped"]) == (in_epoch, in_epoch)
    assert (rows["weights"]["repeated"], rows["weights"]["skipped"]) == (anew, anew)


def test_progress_goes_to_stderr_and_the_table_to_stdout(demo):
    out, result = demo

    assert json.loads(result.stdout) == json.loads((out / "table.json").read_text())
    assert "killed with signal 9 in step" in result.stderr
    assert (out / "curves.png").stat().st_size > 10_000


def test_from_files_all_figures_are_the_same(demo, tmp_path):
    out, _ = demo
    words = ["demo", "--small", "--seed", "3", "--corpus", "parquet", "--json", "--out", str(tmp_path / "out")]

    result = CliRunner().invoke(main, words)

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["settings"]["corpus"] == "parquet"
    assert json.loads(result.stdout)["rows"] == json.loads((out / "table.json").read_text())["rows"]
    assert len(list((tmp_path / "out" / "corpus").glob("*.parquet"))) == 2


@pytest.mark.parametrize(("fault", "words"), [("rng", "loss"), ("position", "samples repeated")])
def test_a_fault_in_the_exact_resume_is_found_and_the_command_exits_1(demo, tmp_path, monkeypatch, fault, words):
    # The runs before the resume are those of the fixture: only the last one is made anew, spoiled.
    made, _ = demo
    table = json.loads((made / "table.json").read_text())

    def resume_only(folder, settings, watcher):
        shutil.copytree(made / "runs", folder / "runs")
        shutil.rmtree(folder / "runs" / "detdata")
        watcher.begin("detdata", settings.steps)
        Children(folder, watcher.step).run("detdata")
        return Kill(**table["kill"])

    monkeypatch.setattr(runs, "_run_all", resume_only)

    result = CliRunner().invoke(main, ["demo", "--small", "--seed", "3", "--fault", fault, "--out", str(tmp_path)])

    assert result.exit_code == 1, result.output
    assert "NOT EXACT" in result.stdout
    assert "is the first that differs" in result.stdout
    assert words in result.stdout
    assert not json.loads((tmp_path / "table.json").read_text())["exact"]


def test_a_failing_child_is_reported_with_the_end_of_its_stderr(tmp_path):
    (tmp_path / "settings.json").write_text("[]")

    with pytest.raises(ChildFailed, match=r"(?s)'straight' ended with exit code 1:.*must hold a JSON object"):
        Children(tmp_path, lambda *_: None).run("straight")


def test_a_stop_ends_the_children_and_their_workers(tmp_path):
    Settings(epochs=100).save(tmp_path / "settings.json")  # would run for minutes
    pids = []

    def stop_at_the_first_step(arm, step, loss):
        [process] = children._running
        pids.append(process.pid)
        children.stop()

    children = Children(tmp_path, stop_at_the_first_step)
    with pytest.raises(Stopped):
        children.run("straight")

    left = subprocess.run(["ps", "-o", "stat=", "-g", str(pids[0])], capture_output=True, text=True, check=False)
    assert [state for state in left.stdout.split() if not state.startswith("Z")] == []
    with pytest.raises(Stopped):
        children.run("interrupted")


def test_python_m_detdata_is_the_command():
    done = subprocess.run([sys.executable, "-m", "detdata", "--version"], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("detdata, version ")
