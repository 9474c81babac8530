"""Measure detdata beside what a user would run otherwise, and hold it to a budget.

python bench/run.py                  measure, print the table, save results/<date>.json
python bench/run.py --check          … and exit 1 where a budget is exceeded
python bench/run.py --write-docs     … and write the table into docs/benchmarks.md
python bench/run.py --full           torch at 10^8 too: 5 GB of memory and half a minute
python bench/run.py --smoke          every case, tiny: only that it runs
python bench/run.py --only loader    the rows whose names begin so
python bench/run.py --from FILE      no measuring: the rows of a saved result
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from checkpoint_rows import GROUPS as CHECKPOINT_GROUPS
from corpus_rows import GROUPS as CORPUS_GROUPS
from hash_rows import GROUPS as HASH_GROUPS
from plan_rows import GROUPS as PLAN_GROUPS
from rows import GROUPS as LOADER_GROUPS
from rows import Row, Setting
from table import console, markdown

GROUPS = {**LOADER_GROUPS, **HASH_GROUPS, **CHECKPOINT_GROUPS, **CORPUS_GROUPS, **PLAN_GROUPS}
PACKAGES = (
    *("detdata", "torch", "numpy", "torchdata", "grain", "xxhash", "pyarrow", "accelerate", "lightning"),
    *("datasets", "mosaicml-streaming", "litdata", "webdataset", "transformers", "lhotse"),
)
HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs" / "benchmarks.md"
MARKERS = ("<!-- results: begin -->", "<!-- results: end -->")


def run_case(name, **arguments):
    """Run one case in a process of its own and return its answer."""
    command = [sys.executable, "-W", "ignore", str(HERE / "cases.py"), name, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode:
        raise SystemExit(f"{name} {arguments} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def machine():
    """What was measured on: only what a reader needs to weigh the numbers."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    packages = {}
    for package in PACKAGES:
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = "not installed" if package != "detdata" else "this checkout"
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "cpu": model,
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": packages,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def measure(setting, only):
    rows = []
    for name, group in GROUPS.items():
        if only and not name.startswith(only):
            continue
        for row in group(run_case, setting):
            print(console(row), flush=True)
            rows.append(row)
    return rows


def judge(rows, budgets):
    """Set each row's budget, and whether it is met; return the rows over it."""
    for row in rows:
        row.judge(budgets.get(row.id))
    return [row for row in rows if row.met is False]


def write_docs(result):
    text = DOCS.read_text(encoding="utf-8")
    begin, end = (text.index(marker) for marker in MARKERS)
    DOCS.write_text(f"{text[:begin]}{MARKERS[0]}\n\n{markdown(result)}\n{text[end:]}", encoding="utf-8")
    print(f"wrote {DOCS.relative_to(HERE.parent)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("check", "write-docs", "full", "smoke"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--only", default="", help="group of rows: " + ", ".join(GROUPS))
    parser.add_argument(
        "--repeat", type=int, default=3, help="rounds of each comparison (an epoch has four more, the loader eight)"
    )
    parser.add_argument("--from", dest="saved", type=Path, help="a file in bench/results")
    parser.add_argument("--save", type=Path, help="where to save the result")
    chosen = parser.parse_args()
    budgets = json.loads((HERE / "budgets.json").read_text(encoding="utf-8"))

    if chosen.saved:
        result = json.loads(chosen.saved.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in result["rows"]]
        for row in rows:
            print(console(row))
    else:
        setting = Setting.smoke() if chosen.smoke else Setting.of(chosen.repeat, full=chosen.full)
        result = {"machine": {**machine(), "rounds": setting.repeat}}
        rows = measure(setting, chosen.only)
    over = judge(rows, {} if chosen.smoke else budgets)
    result["rows"] = [vars(row) for row in rows]
    if not chosen.smoke and not chosen.saved:
        path = chosen.save or HERE / "results" / f"{result['machine']['date']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"saved {path}")
    if chosen.write_docs:
        write_docs(result)
    for row in over:
        print(f"over budget: {row.id}: {row.verdict()}")
    return 1 if chosen.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
