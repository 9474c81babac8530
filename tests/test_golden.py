"""Recorded values hold, and the tool that records them can't lose one."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load():
    spec = importlib.util.spec_from_file_location("golden", ROOT / "tools" / "golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def golden():
    return load()


def test_every_case_has_its_recorded_value(golden):
    assert golden.verify(golden.CASES) == []


def test_write_then_verify_agree(golden, tmp_path):
    table = {"a/one": lambda: 1, "a/two": lambda: [2, "zwei…"], "b/three": lambda: {"x": None}}

    assert golden.write(table, tmp_path) == ["a/one", "a/two", "b/three"]

    assert golden.verify(table, tmp_path) == []
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"one": 1, "two": [2, "zwei…"]}
    assert golden.write(table, tmp_path) == []


def test_a_changed_value_is_found_and_not_overwritten(golden, tmp_path):
    golden.write({"a/one": lambda: 1}, tmp_path)
    changed = {"a/one": lambda: 2, "a/new": lambda: 3}

    assert [line.split("\n")[0] for line in golden.verify(changed, tmp_path)] == [
        "a/new: not recorded yet; run `make golden`",
        "a/one: changed",
    ]
    with pytest.raises(ValueError, match="a/one"):
        golden.write(changed, tmp_path)
    assert golden.recorded(tmp_path) == {"a/one": 1}

    assert golden.write(changed, tmp_path, allow=["a/one"]) == ["a/new", "a/one"]
    assert golden.recorded(tmp_path) == {"a/new": 3, "a/one": 2}


def test_a_case_that_is_gone_is_found_and_not_dropped(golden, tmp_path):
    golden.write({"a/one": lambda: 1, "b/two": lambda: 2}, tmp_path)
    fewer = {"a/one": lambda: 1}

    assert golden.verify(fewer, tmp_path) == ["b/two: recorded, but no longer a case"]
    with pytest.raises(ValueError, match="b/two"):
        golden.write(fewer, tmp_path)

    golden.write(fewer, tmp_path, allow=["b/two"])
    assert golden.verify(fewer, tmp_path) == []


def test_allowing_a_change_of_an_unknown_case_is_refused(golden, tmp_path):
    with pytest.raises(ValueError, match="a/typo"):
        golden.write({"a/one": lambda: 1}, tmp_path, allow=["a/typo"])


@pytest.mark.parametrize("value", [1.0, (1, 2), {1: 2}, b"x", [float("nan")]])
def test_values_that_json_would_bend_are_refused(golden, tmp_path, value):
    with pytest.raises(TypeError):
        golden.write({"a/one": lambda: value}, tmp_path)


def test_true_and_one_are_different_values(golden, tmp_path):
    golden.write({"a/one": lambda: 1}, tmp_path)

    assert len(golden.verify({"a/one": lambda: True}, tmp_path)) == 1
