"""The format that docs/howto/write_a_format.md writes passes the suite, by the tests that the page writes."""

import os
import subprocess
import sys

from tests.sources import ROOT
from tests.test_docs import blocks_of


def test_the_format_of_the_page_passes_the_suite(tmp_path):
    blocks = {block.info: [] for block in blocks_of(ROOT / "docs" / "howto" / "write_a_format.md")}
    for block in blocks_of(ROOT / "docs" / "howto" / "write_a_format.md"):
        blocks[block.info].append(block.code)
    written, used = blocks["python"]
    (tests,) = blocks["python norun"]
    write = used[used.index("def write(") : used.index("register_corpus_format(")]
    (tmp_path / "frames.py").write_text(written + "\n\n" + write)
    (tmp_path / "test_frames.py").write_text(tests)

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_frames.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
