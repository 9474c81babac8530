"""What people put into their CI is run here: the action's steps, the hooks' commands, the shell of the how-to."""

import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest
import yaml
from click.testing import CliRunner

import detdata
from detdata.cli import main
from tests.sources import ROOT
from tests.test_docs import blocks_of
from tests.versions.trees import PLAIN, make_tree

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
HOWTO = ROOT / "docs" / "howto" / "verify_in_ci.md"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture
def project(tmp_path):
    """A folder with data, its manifest, and a `detdata` and `pip` on the path that are this checkout and nothing."""
    make_tree(tmp_path / "data", PLAIN)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in (
        ("detdata", f'exec {shlex.quote(sys.executable)} -m detdata "$@"'),
        ("python", f'exec {shlex.quote(sys.executable)} "$@"'),
        ("pip", "exit 0"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    assert shell(tmp_path, "detdata hash data -o data.lock.json").returncode == 0
    return tmp_path


def shell(folder, script, **variables):
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def act(folder, *, step="Verify", **inputs):
    """Run a step of the action as GitHub does: inputs by their defaults, in variables; detdata as if just installed."""
    given = {name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()} | inputs
    values = {f"inputs.{name}": value for name, value in given.items()}
    values["steps.python.outputs.python-path"] = str(folder / "bin/python")
    (step,) = [known for known in ACTION["runs"]["steps"] if known.get("name") == step]
    variables = {name: values[text.removeprefix("${{ ").removesuffix(" }}")] for name, text in step["env"].items()}
    installed = folder / "temporary/detdata/detdata"
    if not installed.exists():
        installed.parent.mkdir(parents=True)
        installed.symlink_to(ROOT / "detdata")
    variables |= {"RUNNER_TEMP": str(folder / "temporary"), "PYTHONPATH": ""}
    return shell(folder, step["run"], GITHUB_STEP_SUMMARY=str(folder / "summary.md"), **variables)


def test_the_action_passes_on_the_same_data_and_writes_a_summary(project):
    done = act(project)
    assert done.returncode == 0, done.stderr
    assert (project / "summary.md").read_text().startswith("**Dataset same")
    assert act(project, root="data", quick="true", cache=str(project / "digests")).returncode == 0
    assert list((project / "digests").iterdir()) != []


def test_the_action_fails_on_other_data_and_where_it_cannot_tell(project):
    (project / "data/a.txt").write_bytes(b"two")
    assert act(project).returncode == 1
    assert "a.txt" in (project / "summary.md").read_text()
    assert act(project, manifest="none.lock.json").returncode == 2


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [({}, VERSION), ({"version": "0.2.0"}, "0.2.0"), ({"version": "1; touch owned"}, "1; touch owned")],
)
def test_the_action_installs_the_release_that_its_tag_pins(project, inputs, wanted):
    (project / "bin/python").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > asked\n')

    assert act(project, step="Install", **inputs).returncode == 0
    assert (project / "asked").read_text().splitlines()[-1] == f"detdata=={wanted}"
    assert not (project / "owned").exists()


def test_the_action_leaves_the_jobs_own_python_alone():
    (setup,) = [step for step in ACTION["runs"]["steps"] if "setup-python" in step.get("uses", "")]
    assert setup["with"]["update-environment"] is False


@pytest.mark.parametrize("name", ["click.py", "random.py", "json/__init__.py", "pip.py", "detdata/__init__.py"])
def test_no_file_of_the_repository_is_run_by_the_action(project, name):
    make_tree(project, {name: b"open('owned', 'w'); raise SystemExit(0)"})
    (project / "data/a.txt").write_bytes(b"two")
    assert act(project).returncode == 1
    (project / "bin/python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$1" -c "import pip, json"\n')
    assert act(project, step="Install").returncode == 0
    assert not (project / "owned").exists()


def test_no_name_of_a_file_is_a_command_to_the_runner(project):
    (project / "data" / "::error::found nothing").write_bytes(b"")
    told = act(project)
    first, *report, last = told.stdout.splitlines()
    assert told.returncode == 1
    assert "  ::error::found nothing" in report
    assert first.startswith("::stop-commands::")
    token = first.removeprefix("::stop-commands::")
    assert (len(token), last) == (32, f"::{token}::")
    assert first not in act(project).stdout


def test_no_release_forgets_a_version_that_is_written_down():
    assert ACTION["inputs"]["version"]["default"] == VERSION == detdata.__version__
    pins = re.findall(r"(?:detdata@|rev: )v([0-9][^\s]*)", HOWTO.read_text(encoding="utf-8"))
    assert set(pins) == {VERSION}
    shells = re.findall(r"pip install [\"']?detdata(\S*)", HOWTO.read_text(encoding="utf-8"))
    assert set(shells) == {f"=={VERSION}"}


@pytest.mark.parametrize("evil", ['"; touch owned; "', "$(touch owned)", "`touch owned`", "-o owned"])
def test_an_input_of_the_action_is_never_run(project, evil):
    act(project, manifest=evil)
    act(project, root=evil)
    assert not (project / "owned").exists()
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    assert not any("${{" in script for script in scripts)


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_and_stops_a_commit_of_other_data(project, hook):
    command = f"{hook['entry']} {shlex.join(hook['args'])}"
    before = (project / "data.lock.json").read_bytes()
    done = shell(project, command)
    assert done.returncode == 0, done.stderr
    assert (project / "data.lock.json").read_bytes() == before

    (project / "data/a.txt").write_bytes(b"two")
    changed = shell(project, command)
    # pre-commit fails a commit on a bad exit code, and on a file that a hook has changed.
    assert changed.returncode == 1 or (project / "data.lock.json").read_bytes() != before


SHELL = [block for block in blocks_of(HOWTO) if block.info == "sh"]


@pytest.mark.parametrize("block", SHELL, ids=lambda block: f"line {block.line}")
@pytest.mark.parametrize(("change", "code"), [(None, 0), ("edit", 1), ("fifo", None)])
def test_the_shell_of_the_how_to_does_what_it_says(project, block, change, code):
    if change == "edit":
        (project / "data/a.txt").write_bytes(b"two")
    elif change == "fifo":
        os.mkfifo(project / "data/pipe")

    done = shell(project, block.code)
    assert done.returncode == code if code is not None else done.returncode != 0, done.stderr


def test_what_the_readme_shows_for_ci_does_what_it_says(project):
    blocks = [block for block in blocks_of(ROOT / "README.md") if "detdata verify" in block.code]
    (typed,) = [block for block in blocks if block.info == "console"]
    (job,) = [block for block in blocks if block.info == "sh"]
    (project / "data.lock.json").unlink()
    lines = [line.removeprefix("$ ") for line in typed.code.splitlines() if line.startswith("$ ")]
    assert shell(project, "\n".join(lines)).returncode == 0
    assert shell(project, job.code).returncode == 0
    (project / "data/new.txt").write_bytes(b"")
    assert shell(project, job.code).returncode == 1
    (project / "data.lock.json").write_text("{}")
    assert shell(project, job.code).returncode == 2


def test_the_yaml_of_the_how_to_calls_what_there_is(project):
    configs = [yaml.safe_load(block.code) for block in blocks_of(HOWTO) if block.info == "yaml"]
    text = str(configs)
    assert set(ACTION["inputs"]) >= {"manifest", "root", "quick", "cache"}
    for hook in (item for config in configs if "repos" in config for item in config["repos"][0]["hooks"]):
        (entry,) = [known["entry"] for known in HOOKS if known["id"] == hook["id"]]
        assert shell(project, f"{entry} {shlex.join(hook['args'])}").returncode == 0
    lines = next(
        config["verify data"]["script"] for config in configs if isinstance(config, dict) and "verify data" in config
    )
    assert "detdata verify" in text
    assert shell(project, "\n".join(lines)).returncode == 0
    (project / "data/a.txt").write_bytes(b"two")
    assert shell(project, "\n".join(lines)).returncode == 1


@pytest.mark.parametrize("name", ["hash", "verify", "diff", "merge"])
def test_every_command_has_help_with_its_exit_codes_and_an_example(name):
    text = CliRunner().invoke(main, [name, "-h"]).output
    assert "Exit code: 0" in text
    assert f"Example:\n    detdata {name} " in text
    assert ("It cannot see" in " ".join(text.split())) == (name != "merge")  # what --quick misses
