"""What a command imports: starting it takes longer than hashing a small folder, so nothing that isn't needed."""

import ast
import json
import pickle
import subprocess
import sys
from importlib import import_module

import pytest

import detdata
from tests.sources import PACKAGE, ROOT, run_python
from tests.versions.trees import PLAIN, make_tree

HEAVY = ("torch", "pyarrow", "numpy", "fsspec", "rich", "matplotlib")


def imported(folder, *arguments, code=0):
    """Which modules a fresh process has after `detdata …`, by their top names."""
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, *map(str, arguments)],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


WITNESS = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr))
from detdata.cli import main
main(prog_name="detdata")
"""


@pytest.fixture
def folder(tmp_path):
    make_tree(tmp_path / "data", PLAIN)
    return tmp_path


@pytest.mark.parametrize("command", [[], ["hash"], ["verify"], ["diff"], ["merge"]], ids=" ".join)
def test_help_imports_nothing_but_click(folder, command):
    modules = imported(folder, *command, "--help")

    assert modules & {*HEAVY, "xxhash", "concurrent"} == set()


def test_bytes_are_hashed_without_what_only_tables_and_training_need(folder):
    for arguments in (["hash", "data"], ["verify"], ["diff", "data.lock.json", "data"], ["diff", "data", "data"]):
        assert imported(folder, *arguments) & set(HEAVY) == set(), arguments


def test_importing_the_package_imports_nothing_but_the_standard_library():
    code = "import sys; before = set(sys.modules); import detdata; print(sorted({*sys.modules} - before))"
    result = run_python(code)

    new = {name.partition(".")[0] for name in ast.literal_eval(result.stdout)}
    assert new - set(sys.stdlib_module_names) == {"detdata"}


def test_every_public_name_is_the_one_that_its_module_defines():
    assert set(detdata._HOME) == set(detdata.__all__)
    assert {name: getattr(detdata, name) for name in detdata.__all__} == {
        name: getattr(import_module(home), name) for name, home in detdata._HOME.items()
    }


def test_type_checkers_are_told_the_same_names_from_the_same_modules():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.body[0], ast.ImportFrom)]

    told = {alias.name: line.module for line in block.body for alias in line.names}
    assert told == detdata._HOME


@pytest.mark.parametrize("name", sorted(detdata.__all__))
def test_a_public_name_is_found_by_a_process_that_has_only_imported_the_package(name):
    assert detdata.__all__ == sorted(detdata.__all__)
    # One process for each would take a minute; a package that has forgotten its names stands for it.
    vars(detdata).pop(name, None)
    assert getattr(detdata, name) is import_module(detdata._HOME[name]).__dict__[name]


def test_specs_and_pickles_are_read_by_a_process_that_has_imported_nothing_else():
    plan = detdata.Plan(detdata.Concat({"a": detdata.Shuffle(10, seed=3)}), batch_size=2)
    code = f"import detdata; print(detdata.from_spec({plan.spec()!r}).spec())"
    assert ast.literal_eval(run_python(code).stdout) == plan.spec()

    code = f"import pickle; print(pickle.loads({pickle.dumps(plan)!r}).spec())"
    assert ast.literal_eval(run_python(code).stdout) == plan.spec()


def test_a_name_of_this_library_is_taken_before_its_module_is_imported():
    code = """
import detdata
try:
    detdata.register_format("detdata.shuffle/1", ("n",), len)
except ValueError as error:
    print(error)
detdata.register_format("mine.order/1", ("n",), len)
print(detdata.from_spec({"format": "detdata.sequential/1", "n": 3}))
"""
    taken, order = run_python(code).stdout.splitlines()
    assert "already registered" in taken
    assert "Sequential" in order
