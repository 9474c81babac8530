"""The version of a table's rows: a digest of what they say, not of how they are stored, and what differs in two."""

from detdata.rows.differences import RowDifference, RowDifferences, first_row_differences
from detdata.rows.errors import RowsError
from detdata.rows.faults import Faults, FileFault, find_faults, system_trouble
from detdata.rows.hasher import RowsHasher, hash_rows
from detdata.rows.parallel import hash_rows_on, parquet_rows
from detdata.rows.reading import Batch, is_table
from detdata.rows.report import BlockChange, RowsReport, compare_rows
from detdata.rows.version import BLOCK_ROWS, RowsVersion

__all__ = [
    "BLOCK_ROWS",
    "Batch",
    "BlockChange",
    "Faults",
    "FileFault",
    "RowDifference",
    "RowDifferences",
    "RowsError",
    "RowsHasher",
    "RowsReport",
    "RowsVersion",
    "compare_rows",
    "find_faults",
    "first_row_differences",
    "hash_rows",
    "hash_rows_on",
    "is_table",
    "parquet_rows",
    "system_trouble",
]
