"""JSON lines as text: blocks of whole lines, one object on each, none nested too deep to be read safely."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.rows.errors import RowsError
from detdata.rows.schema import MOST_LEVELS

_LONGEST_LINE = 1 << 27  # bytes; reading one takes some seven times as much memory
_BLANK = b" \t\r\n"  # all that is blank in JSON
_OPEN, _CLOSE, _LIST, _LIST_END, _QUOTE, _LINE_END = b'{}[]"\n'


class Block(NamedTuple):
    """Some whole lines. first: the number of the first in the file, from 1."""

    first: int
    text: bytes

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number in the file, text) of each line that is not blank."""
        for number, line in enumerate(self.text.split(b"\n"), self.first):
            if stripped := line.strip(_BLANK):
                yield number, stripped


def line_blocks(source: Any, name: str, size: int) -> Iterator[Block]:
    """Yield a file's lines in blocks of about `size` bytes; none that is blank altogether."""
    held: list[bytes] = []
    first = 1
    for chunk in _chunks(source, size):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            text = b"".join([*held, chunk[:cut]])
            if text.strip(_BLANK):
                yield Block(first, text)
            first += text.count(b"\n")
            held = [chunk[cut:]]
        else:
            held.append(chunk)
            if sum(map(len, held)) > _LONGEST_LINE:
                raise RowsError(name, f"line {first} has more than {_LONGEST_LINE >> 20} MiB; is it JSON lines?")
    text = b"".join(held)
    if text.strip(_BLANK):
        yield Block(first, text)


def _chunks(source: Any, size: int) -> Iterator[bytes]:
    """Yield what a file holds, without a byte order mark before it."""
    start = source.read(len(codecs.BOM_UTF8))
    if start and start != codecs.BOM_UTF8:
        yield start
    while chunk := source.read(size):
        yield chunk


def check_lines(block: Block, name: str) -> int:
    """Return how many objects the block must have: one for each line that is not blank.

    Raises RowsError for a line that does not begin with `{` and end with `}`, so no object can go on over a line's end
    (inside one, no `{` follows a `}`), and for one nested deeper than MOST_LEVELS, at which a reader may overflow its
    stack. Cost: some ms a block of 4 MiB.
    """
    text = block.text.strip(_BLANK)
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == _LINE_END)
    starts = np.append(0, ends + 1)
    if (data[starts] == _OPEN).all() and (data[np.append(ends, data.size) - 1] == _CLOSE).all():
        rows = starts.size
    else:  # blank lines, blanks around objects, CR LF
        rows = 0
        for number, line in block.lines():
            if not (line.startswith(b"{") and line.endswith(b"}")):
                raise RowsError(name, f"line {number} is no JSON object; write one whole object a line")
            rows += 1
    if text.count(b"{") + text.count(b"[") - rows >= MOST_LEVELS and _many_in_a_line(data, starts):
        _check_depth(block, name)
    return rows


def check_count(block: Block, found: int, expected: int, name: str) -> None:
    """Raise RowsError, with the line, if there are more objects than lines."""
    if found == expected:
        return
    for number, line in block.lines():
        try:
            json.loads(line)
        except ValueError as error:
            if "Extra data" in str(error):
                raise RowsError(name, f"line {number} has more than one object; write one object a line") from None
    raise RowsError(name, f"has {found} objects on {expected} lines from line {block.first} on; write one a line")


def _many_in_a_line(data: npt.NDArray[np.uint8], starts: Int64Array) -> bool:
    """Whether a line has more than MOST_LEVELS opening brackets, those in strings too."""
    lines = np.searchsorted(starts, np.flatnonzero(data | np.uint8(_OPEN ^ _LIST) == _OPEN), side="right")
    return bool((lines[MOST_LEVELS:] == lines[:-MOST_LEVELS]).any())


def _check_depth(block: Block, name: str) -> None:
    # What is escaped goes first: pairs of backslashes, then quotes. The quotes that are left begin and end strings.
    text = block.text.replace(b"\\\\", b"").replace(b'\\"', b"")
    data = np.frombuffer(text, np.uint8)
    outside = np.logical_xor.accumulate(data == _QUOTE)
    np.logical_not(outside, out=outside)
    steps = ((data == _OPEN) | (data == _LIST)).astype(np.int8)
    steps -= (data == _CLOSE) | (data == _LIST_END)
    steps *= outside
    deep = np.cumsum(steps, dtype=np.int32) > MOST_LEVELS
    if deep.any():
        line = block.first + text.count(b"\n", 0, int(deep.argmax()))
        raise RowsError(
            name, f"line {line} is nested more than {MOST_LEVELS} levels deep; flatten it, or hash by content='bytes'"
        )
