import importlib.util
import sys

import pytest
from click.testing import CliRunner

import detdata
from detdata import cli
from tests.sources import run_python


def invoke(*words):
    return CliRunner().invoke(cli.main, list(words))


def test_the_version_is_printed():
    result = invoke("--version")

    assert (result.exit_code, result.stdout) == (0, f"detdata, version {detdata.__version__}\n")


def test_the_help_names_command_options_and_exit_codes():
    assert "demo" in invoke("--help").stdout
    text = " ".join(invoke("demo", "--help").stdout.split())

    for words in ("--out", "--seed", "--kill-step", "--json", "Exit code: 0", "[default:"):
        assert words in text
    assert "--fault" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "-1 is not in the range"),
        (["--seed", "x"], "not a valid integer"),
        (["--kill-step", "3"], "kill_step must be in 7 … 112"),
        (["--corpus", "xlsx"], "'xlsx' is not one of 'arrow'"),
        (["extra"], "unexpected extra argument"),
    ],
)
def test_a_wrong_argument_exits_2_and_says_why(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)

    result = invoke("demo", *words)

    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_folder_is_refused_with_exit_code_2(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")

    result = invoke("demo", "--out", str(tmp_path))

    assert result.exit_code == 2
    assert "no demo wrote it" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("missing", ["torch", "matplotlib"])
def test_without_its_extra_the_demo_says_what_to_install(tmp_path, monkeypatch, missing):
    monkeypatch.chdir(tmp_path)
    module = sys.modules["detdata.cli.demo"]  # as an attribute of the package it is the command
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == missing else importlib.util.find_spec(name))

    result = invoke("demo")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'detdata[torch,demo]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_exits_130(tmp_path, monkeypatch):
    from detdata.demo import run

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_demo", interrupt)

    result = invoke("demo", "--out", str(tmp_path / "out"))

    assert result.exit_code == 130
    assert "stopped" in result.stderr


def test_the_command_line_imports_nothing_heavy():
    result = run_python(
        "import sys, detdata.cli\nprint(sorted({'torch', 'pyarrow', 'rich', 'matplotlib'} & set(sys.modules)))"
    )

    assert (result.stdout.strip(), result.returncode) == ("[]", 0)
