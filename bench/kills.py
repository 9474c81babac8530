"""SIGKILL a run in the middle of its saves, many times, and count what is found.

python bench/kills.py --kills 1000 [--folder DIR] [--seed 1]     exits with 1 if a checkpoint was torn or lost
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--folder", help="where the checkpoints go; by default a temporary folder")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    chosen = parser.parse_args()
    script = ROOT / "tests" / "checkpoint" / "kill_loop.py"
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        return subprocess.run(
            [sys.executable, "-W", "ignore", str(script), folder, str(chosen.kills), str(chosen.seed)],
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
