"""Where the messages of Arrow's IPC files and streams lie, and how many rows each record batch has.

A message is four bytes 0xFF, the length of its metadata (int32), metadata, body. A stream is messages one after the
other, up to one of length 0; a file is such a stream behind the word ARROW1, with a footer that lists the messages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from detdata.arrays import Int64Array
from detdata.corpora.errors import CorpusError
from detdata.corpora.files import DataFile
from detdata.corpora.flat_tables import Malformed, Tables
from detdata.corpora.layout import MOST_ROWS
from detdata.corpora.remote_listing import side_by_side

MAGIC = b"ARROW1"
MARK = b"\xff\xff\xff\xff"
_FIRST = 8  # of the schema, in a file
_TAIL = 4 + len(MAGIC)
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # kinds of messages
_VERSIONS = (3, 4)  # V4 and V5, as Arrow counts them
_PREFIX = 8
_AT_ONCE = 4 << 20  # bytes of metadata that are looked at together
_GUESS = 1024  # bytes that most messages need before their bodies
_MOST_METADATA = 1 << 28  # of one message
_MOST_GAP = 64  # bytes between the last message and the footer: the mark of an end, and padding
_BLOCK = np.dtype([("start", "<i8"), ("head", "<i4"), ("gap", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("start", "<i8"), ("length", "<i8")])
MOST_PACKED = 1 << 15  # by how much zstd can shrink anything: 128 KiB to 4 bytes
_CODECS = {0: 256, 1: MOST_PACKED}  # LZ4 and zstd: how many times larger than its packed form a buffer can be at most


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one kind, by their places. starts: first bytes. heads: bytes before the body. bodies: bytes of it."""

    starts: Int64Array
    heads: Int64Array
    bodies: Int64Array

    @property
    def ends(self) -> Int64Array:
        """The byte behind each."""
        return self.starts + self.heads + self.bodies

    def some(self, which: Any) -> Messages:
        """Return those that an index of NumPy chooses."""
        return Messages(self.starts[which], self.heads[which], self.bodies[which])


class Found(NamedTuple):
    """What a file consists of.

    schema: (start, length) of its message. swapped: whether numbers have their high byte first. rows: of each batch.
    ids, deltas: of dictionaries. packed: whether any message is compressed. stream: whether dictionaries hold for the
    batches behind them only.
    """

    schema: tuple[int, int]
    swapped: bool
    batches: Messages
    rows: Int64Array
    dictionaries: Messages
    ids: Int64Array
    deltas: Int64Array
    packed: bool
    stream: bool


def find_messages(file: DataFile) -> Found:
    """Return what a file of Arrow consists of. Raises CorpusError for what is none, or is cut off.

    Cost: its footer and the metadata of every batch; of a stream the metadata of every message, one after the other.
    """
    size = file.identity().size
    head = file.read(0, min(size, 8))
    if head.startswith(MAGIC):
        return _of_file(file, size)
    if head.startswith(MARK):
        return _of_stream(file, size)
    raise CorpusError(file.name, _what_else(head))


def _what_else(head: bytes) -> str:
    if not head:
        return "is empty, and no Arrow file is"
    if head.startswith(b"FEA1"):
        return (
            "is of the first version of Feather, which is not read; write it anew: "
            "pyarrow.feather.write_feather(pyarrow.feather.read_table(path), path)"
        )
    if head.startswith(b"PAR1"):
        return 'is a Parquet file by its first bytes, not one of Arrow: format="parquet"'
    return "begins neither like a file nor like a stream of Arrow; streams of versions before 0.15 are not read"


def _of_file(file: DataFile, size: int) -> Found:
    tail = file.read(size - _TAIL, _TAIL) if size >= _FIRST + _PREFIX + _TAIL else b""
    if not tail.endswith(MAGIC):
        raise CorpusError(file.name, "is cut off, or was never finished: it does not end with its footer")
    length = int.from_bytes(tail[:4], "little", signed=True)
    stop = size - _TAIL - length
    if not (4 <= length <= _MOST_METADATA and stop >= _FIRST + _PREFIX):
        raise CorpusError(file.name, f"has a footer of {length} bytes, which cannot be")
    try:
        footer = Tables.roots([file.read(stop, length)])
        dictionaries, batches = (_listed(file, footer.vector(number, _BLOCK), stop) for number in (2, 3))
    except Malformed as error:
        raise CorpusError(file.name, "has a footer that leads outside of itself") from error
    every = Messages(*(np.concatenate(parts) for parts in zip(_values(dictionaries), _values(batches), strict=True)))
    order = np.argsort(every.starts, kind="stable")
    if (every.ends[order][:-1] > every.starts[order][1:]).any():
        raise CorpusError(file.name, "has a footer that lists messages which lie in each other")
    prefix = file.read(_FIRST, _PREFIX)
    head = _PREFIX + int.from_bytes(prefix[4:], "little", signed=True)
    if not prefix.startswith(MARK) or not _PREFIX < head <= min(stop - _FIRST, _MOST_METADATA):
        raise CorpusError(file.name, "has no schema behind its first bytes; files of versions before 0.15 are not read")
    gap = stop - max(_FIRST + head, int(every.ends.max(initial=0)))
    if gap > _MOST_GAP:
        raise CorpusError(file.name, f"has {gap} bytes that its footer does not tell of: is it several files in one?")
    return _found(file, (_FIRST, head), dictionaries, batches, stream=False)


def _values(messages: Messages) -> tuple[Int64Array, Int64Array, Int64Array]:
    return messages.starts, messages.heads, messages.bodies


def _listed(file: DataFile, blocks: npt.NDArray[Any], stop: int) -> Messages:
    starts, heads, bodies = (blocks[name].astype(np.int64) for name in ("start", "head", "body"))
    check_places(file.name, Messages(starts, heads, bodies), stop)
    return Messages(starts, heads, bodies)


def check_places(name: str, messages: Messages, stop: int) -> None:
    """Raise CorpusError unless all messages lie before byte `stop`."""
    starts, heads, bodies = _values(messages)
    good = (starts >= 0) & (starts % 8 == 0) & (heads > _PREFIX) & (heads <= _MOST_METADATA) & (bodies >= 0)
    good &= (starts <= stop) & (bodies <= stop)
    good &= starts + heads + bodies <= stop  # no sum of three that were checked is too large
    if not good.all():
        raise CorpusError(
            name, f"tells of a message that does not lie in it, before byte {stop}", block=int(good.argmin())
        )


def _of_stream(file: DataFile, size: int) -> Found:
    """Walk a stream from message to message."""
    places: list[tuple[int, int, int]] = []
    kinds: list[int] = []
    at = 0
    while True:
        found = file.read(at, min(_GUESS, size - at))
        length = int.from_bytes(found[4:_PREFIX], "little", signed=True)
        if len(found) < _PREFIX:
            raise CorpusError(
                file.name, f"is cut off at byte {size}, or was never finished: there is no mark of the stream's end"
            )
        if not found.startswith(MARK) or not 0 <= length <= _MOST_METADATA:
            raise CorpusError(file.name, f"has no message at byte {at}, where one must begin")
        if not length:
            break
        head = _PREFIX + length
        if head > size - at:
            raise CorpusError(file.name, f"is cut off: the message at byte {at} ends behind the file")
        try:
            metadata = found[_PREFIX:head] if head <= len(found) else file.read(at + _PREFIX, length)
            kind, body = _kind_and_body(metadata)
        except (struct.error, Malformed) as error:
            raise CorpusError(file.name, f"has a message at byte {at} that leads outside of itself") from error
        if not 0 <= body <= size - at - head or (head + body) % 8:
            raise CorpusError(file.name, f"is cut off: the message at byte {at} ends behind the file")
        places.append((at, head, body))
        kinds.append(kind)
        at += head + body
    if at + _PREFIX != size:
        raise CorpusError(
            file.name, f"goes on behind the end of its stream at byte {at + _PREFIX}; only one stream is read of a file"
        )
    if not kinds or kinds[0] != _SCHEMA or places[0][2]:
        raise CorpusError(file.name, "does not begin with a schema")
    table = np.array(places, np.int64).reshape(-1, 3)
    every = Messages(table[:, 0], table[:, 1], table[:, 2])
    kind_of = np.array(kinds)
    strange = ~np.isin(kind_of[1:], (_DICTIONARY, _BATCH))
    if strange.any():
        raise CorpusError(file.name, f"has a message of another kind at byte {int(every.starts[1:][strange][0])}")
    dictionaries, batches = every.some(kind_of == _DICTIONARY), every.some(kind_of == _BATCH)
    return _found(file, (0, places[0][1]), dictionaries, batches, stream=True)


def _kind_and_body(metadata: bytes) -> tuple[int, int]:
    """Return (kind, bytes of the body) of one message; as `Tables` does, for one at a time."""
    (root,) = struct.unpack_from("<I", metadata)
    vtable = root - struct.unpack_from("<i", metadata, root)[0]
    if vtable < 0:
        raise Malformed(0)
    entries = struct.unpack_from("<H", metadata, vtable)[0] // 2 - 2
    kind_at, _, body_at = struct.unpack_from("<3H", metadata, vtable + 6) if entries >= 4 else (0, 0, 0)
    if entries in (2, 3):  # no body, as with a schema
        (kind_at,) = struct.unpack_from("<H", metadata, vtable + 6)
    kind = struct.unpack_from("<B", metadata, root + kind_at)[0] if kind_at else 0
    return kind, struct.unpack_from("<q", metadata, root + body_at)[0] if body_at else 0


def _found(
    file: DataFile, schema: tuple[int, int], dictionaries: Messages, batches: Messages, *, stream: bool
) -> Found:
    first = _Heads.of(file, Messages(*(np.array([value], np.int64) for value in (schema[0], schema[1], 0))), _SCHEMA)
    rows = _Heads.of(file, batches, _BATCH)
    words = _Heads.of(file, dictionaries, _DICTIONARY)
    if (rows.numbers < 0).any():
        raise CorpusError(file.name, "tells of fewer rows than none", block=int((rows.numbers < 0).argmax()))
    if float(rows.numbers.sum(dtype=float)) > MOST_ROWS:
        raise CorpusError(file.name, f"claims to have some {rows.numbers.sum(dtype=float):.0e} rows, which cannot be")
    return Found(
        schema=schema,
        swapped=bool(first.numbers[0]),
        batches=batches,
        rows=rows.numbers,
        dictionaries=dictionaries,
        ids=words.numbers,
        deltas=words.deltas,
        packed=bool(rows.packed or words.packed),
        stream=stream,
    )


class _Heads(NamedTuple):
    """What the metadata of messages say.

    numbers: of a batch its rows, of a dictionary its id, of a schema whether its numbers have their high byte first.
    """

    numbers: Int64Array
    deltas: Int64Array
    packed: bool

    @staticmethod
    def of(file: DataFile, messages: Messages, kind: int) -> _Heads:
        parts = [_Heads(np.empty(0, np.int64), np.empty(0, np.int64), False)]
        begin = 0
        edges = np.concatenate([[0], np.cumsum(messages.heads)])
        while begin < messages.starts.size:
            end = max(begin + 1, int(edges.searchsorted(edges[begin] + _AT_ONCE, side="right")) - 1)
            chosen = messages.some(slice(begin, end))
            try:
                parts.append(_heads(file, chosen, kind))
            except Malformed as error:
                at = int(chosen.starts[error.number])
                raise CorpusError(
                    file.name, f"has a message at byte {at} that is not what it should be, or leads outside of itself"
                ) from error
            begin = end
        return _Heads(
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.deltas for part in parts]),
            any(part.packed for part in parts),
        )


def _heads(file: DataFile, messages: Messages, kind: int) -> _Heads:
    tables = Tables.roots(_metadata(file, messages))
    version, found, body = (tables.field(number, dtype, 0) for number, dtype in ((0, "<i2"), (1, "|u1"), (3, "<i8")))
    good = np.isin(version, _VERSIONS) & (found == kind) & (body == messages.bodies)
    if not good.all():
        raise Malformed(int(good.argmin()))
    inside = tables.table(2)
    deltas = np.zeros(version.size, np.int64)
    if kind == _SCHEMA:
        return _Heads(inside.field(0, "<i2", 0), deltas, False)
    if kind == _BATCH:
        return _Heads(inside.field(0, "<i8", 0), deltas, bool(inside.has(3).any()))
    packed = bool(inside.table(1).has(3).any())
    return _Heads(inside.field(0, "<i8", 0), inside.field(2, "|u1", 0), packed)


def _metadata(file: DataFile, messages: Messages) -> list[bytes]:
    """Return the metadata of messages without what stands before them."""
    places = list(zip(messages.starts.tolist(), messages.heads.tolist(), strict=True))
    parts = side_by_side(lambda place: file.read(*place), places, file.path is None)
    for number, (part, (_, head)) in enumerate(zip(parts, places, strict=True)):
        if part[:4] != MARK or int.from_bytes(part[4:_PREFIX], "little", signed=True) + _PREFIX != head:
            raise Malformed(number)
    return [part[_PREFIX:] for part in parts]


def check_unpacked(name: str, message: Any, head: int, kind: int, block: int) -> None:
    """Raise CorpusError if a compressed message claims to hold more than its bytes can unpack to.

    message: its bytes; head: those before the body.
    """
    view = memoryview(message)
    body = view[head:]
    try:
        inside = Tables.roots([bytes(view[_PREFIX:head])]).table(2)
        inside = inside if kind == _BATCH else inside.table(1)
        if not inside.has(3).any():
            return
        most = _CODECS.get(int(inside.table(3).field(0, "|i1", 0)[0]), 0)
        for start, length in inside.vector(2, _BUFFER).tolist():
            if length == 0:
                continue
            if not (0 <= start <= body.nbytes and 8 <= length <= body.nbytes - start):
                raise Malformed(0)
            claimed = int.from_bytes(body[start : start + 8], "little", signed=True)
            if claimed < -1 or claimed > length * most:
                raise CorpusError(name, f"claims that {length} packed bytes are {claimed} unpacked", block=block)
    except Malformed as error:
        raise CorpusError(name, "has metadata that lead outside of themselves", block=block) from error


def check_batch(name: str, message: Any, head: int, block: int) -> None:
    """Raise CorpusError if a compressed record batch claims more than it can hold. See `check_unpacked`."""
    check_unpacked(name, message, head, _BATCH, block)


def check_dictionary(name: str, message: Any, head: int, block: int) -> None:
    """Raise CorpusError if a compressed dictionary claims more than it can hold. See `check_unpacked`."""
    check_unpacked(name, message, head, _DICTIONARY, block)


def needed(places: Sequence[tuple[int, int, int]], before: int | None) -> list[int]:
    """Return which dictionaries make up those of a batch: of each id the last whole one, and what is added to it.

    places: (start, id, whether it adds to what is there). before: the start of the batch, in a stream; None in a file.

    >>> needed([(8, 0, 0), (16, 1, 0), (24, 0, 1), (32, 0, 0)], 30)
    [0, 1, 2]
    """
    held: dict[int, list[int]] = {}
    for number, (start, id_, adds) in enumerate(places):
        if before is None or start < before:
            held[id_] = [*held.get(id_, []), number] if adds else [number]
    return sorted(number for numbers in held.values() for number in numbers)
