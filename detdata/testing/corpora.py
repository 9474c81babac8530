"""The laws of a corpus format, as tests over files that you write.

A law is a method `test_…`; it raises AssertionError that says which format broke it, and how. No test framework is
imported: pytest collects the methods of a subclass, and so may anything else. Files are random by a seed, so a failure
comes again.
"""

from __future__ import annotations

from detdata.testing.corpora_access import AccessLaws
from detdata.testing.corpora_faults import FaultLaws
from detdata.testing.corpora_files import FileLaws
from detdata.testing.corpora_processes import ProcessLaws


class CorpusSuite(AccessLaws, FileLaws, FaultLaws, ProcessLaws):
    """The laws that every corpus format keeps. Subclass it, name the subclass `Test…`, and say how to write files.

    format: its name, or the format itself. options: arguments of `open_corpus` beside it; they should make a file of
    60 rows at least three blocks. columns: some names that rows have, to ask for; () for a format without columns.
    sees_cuts: False where a file that was cut short may be a good one with a shorter last row, as with plain text.
    holds_empty: False where a file cannot be without rows. remote: False for a format that needs a path.

    write(folder, rows): write rows as one file (and what belongs to it) into an empty folder, and return its path.
    rows(count, seed): rows to write, just as the corpus is to give them; by default dicts of integers, text, floats
    and lists. The laws start processes, which import the module of the subclass.

    >>> import json
    >>> class TestJsonLines(CorpusSuite):
    ...     format = "jsonl"
    ...     options = {"rows_per_block": 8}
    ...     def write(self, folder, rows):
    ...         path = folder / "a.jsonl"
    ...         _ = path.write_text("".join(json.dumps(row) + "\\n" for row in rows))
    ...         return path
    >>> TestJsonLines().test_rows_are_those_that_were_written()
    """
