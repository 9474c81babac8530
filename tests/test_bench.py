"""The benchmark stays runnable: every case runs, tiny, and every budget is for a row that there is."""

import json
import re
import subprocess
import sys

import pytest

from tests.sources import ROOT

BENCH = ROOT / "bench"


def budgets():
    return json.loads((BENCH / "budgets.json").read_text(encoding="utf-8"))


def bench(*arguments):
    return subprocess.run(
        [sys.executable, str(BENCH / "run.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "group", ["start", "resume", "epoch", "loader", "hash", "rows", "checkpoint", "corpus", "plans"]
)
def test_every_case_of_a_group_runs(group):
    done = bench("--smoke", "--only", group)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(f"{group}/")] != []


def saved(tmp_path, ours):
    row = {"id": "epoch/take/8192", "what": "take", "unit": "ns an id", "ours": ours}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"machine": {}, "rows": [row]}), encoding="utf-8")
    return str(path)


def test_a_row_over_its_budget_fails_the_check_and_is_named(tmp_path):
    limit = budgets()["epoch/take/8192"]["value"]

    assert bench("--check", "--from", saved(tmp_path, limit)).returncode == 0
    done = bench("--check", "--from", saved(tmp_path, limit * 1.01))
    assert done.returncode == 1
    assert "over budget: epoch/take/8192" in done.stdout


def test_every_budget_is_a_positive_limit_of_a_known_kind():
    for row, limits in budgets().items():
        assert re.fullmatch(r"(start|resume|epoch|loader|hash|rows|checkpoint|corpus|plans)/\S+", row)
        assert {"ratio", "value"} >= set(limits) != set()
        assert all(limit > 0 for limit in limits.values())
