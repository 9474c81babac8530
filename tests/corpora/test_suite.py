"""The suite for other people's formats: JSON lines pass it, and a planted fault breaks the law that names it."""

import json
from typing import ClassVar

from detdata.testing import CorpusSuite


class TestJsonLines(CorpusSuite):
    format = "jsonl"
    options: ClassVar = {"rows_per_block": 8}

    def write(self, folder, rows):
        path = folder / "a.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
