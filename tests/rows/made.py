"""Columns for tests: values first, then any of the many ways in which Arrow can hold them.

A `Kind` says what the type is called, what shape it has for the second implementation, which values it may have, and
how an array of it is built, buffer by buffer, with garbage wherever Arrow allows some.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


@dataclass(frozen=True)
class Kind:
    text: str
    shape: tuple
    values: st.SearchStrategy  # never None
    build: Callable[[list, random.Random], pa.Array]  # of values and None
    name: str = ""

    def __repr__(self):
        return f"Kind({self.text})"


def bitmap(values, r):
    """A validity bitmap, or none where there is no null and chance says so; bits beyond the end are anything."""
    if None not in values and r.random() < 0.5:
        return None
    bits = sum(1 << i for i, value in enumerate(values) if value is not None)
    bits |= r.getrandbits(8) << len(values)
    return pa.py_buffer(bits.to_bytes(len(values) // 8 + 2, "little"))


def fixed(text, arrow, width, values=None, garble=lambda value, r: value):
    def build(items, r):
        kind = arrow(r)
        data = b"".join(r.randbytes(width) if item is None else garble(item, r) for item in items)
        return pa.Array.from_buffers(kind, len(items), [bitmap(items, r), pa.py_buffer(data)])

    return Kind(text, ("fixed", width), st.binary(min_size=width, max_size=width) if values is None else values, build)


def ints(width, low, high, step=1):
    return st.integers(low, high).map(lambda x: (x * step).to_bytes(width, "little", signed=True))


def boolean(items, r):
    bits = sum(((r.getrandbits(1) if item is None else item[0]) << i) for i, item in enumerate(items))
    data = bits.to_bytes(len(items) // 8 + 1, "little")
    return pa.Array.from_buffers(pa.bool_(), len(items), [bitmap(items, r), pa.py_buffer(data)])


def other_nan(code, folded):
    def garble(value, r):
        if value != folded:
            return value
        width = len(value) * 8
        exponent = {16: 0x1F << 10, 32: 0xFF << 23, 64: 0x7FF << 52}[width]
        fraction = {16: 10, 32: 23, 64: 52}[width]
        bits = r.getrandbits(1) << (width - 1) | exponent | r.randrange(1, 1 << fraction)
        return bits.to_bytes(width // 8, "little")

    return garble


def floating(text, arrow, code, folded):
    size = {"e": 16, "f": 32, "d": 64}[code]
    values = st.floats(width=size).map(lambda x: folded if math.isnan(x) else struct.pack(f"<{code}", x))
    return fixed(text, lambda r: arrow, size // 8, values, other_nan(code, folded))


def decimal(precision, scale, *wider):
    width = 16 if precision <= 38 else 32
    limit = 10**precision - 1

    def build(items, r):
        kind = r.choice(wider)(precision, scale)
        size = kind.bit_width // 8
        data = b"".join(
            r.randbytes(size)
            if item is None
            else int.from_bytes(item, "little", signed=True).to_bytes(size, "little", signed=True)
            for item in items
        )
        return pa.Array.from_buffers(kind, len(items), [bitmap(items, r), pa.py_buffer(data)])

    values = st.integers(-limit, limit).map(lambda x: x.to_bytes(width, "little", signed=True))
    return Kind(f"decimal({precision}, {scale})", ("fixed", width), values, build)


def narrow_decimals(precision):
    found = [pa.decimal128, pa.decimal256]
    for name, most in (("decimal32", 9), ("decimal64", 18)):
        if hasattr(pa, name) and precision <= most:
            found.append(getattr(pa, name))
    return found


def text_like(text, values, narrow, large, view):
    def build(items, r):
        raw = [r.choice([b"", b"garbage"]) if item is None else item for item in items]
        wide, front = r.random() < 0.5, r.choice([b"", b"front"])
        offset, offsets, data = len(front), [], front
        for item in raw:
            offsets.append(len(data))
            data += item
        offsets.append(len(data))
        assert offsets[0] == offset
        packed = struct.pack(f"<{len(offsets)}{'q' if wide else 'i'}", *offsets)
        buffers = [bitmap(items, r), pa.py_buffer(packed), pa.py_buffer(data)]
        array = pa.Array.from_buffers(large if wide else narrow, len(items), buffers)
        return array.cast(view) if r.random() < 0.25 else array

    return Kind(text, ("bytes",), values, build)


def fill(items, r, empty):
    """Children that a null may own."""
    known = [item for item in items if item is not None]
    return [item if item is not None else (r.choice(known) if known else empty) for item in items]


def lists(item):
    def build(values, r):
        held = [r.choice([[], [None], [None, None]]) if value is None else value for value in values]
        front = [None] * r.randrange(3)
        flat, offsets = list(front), [len(front)]
        for value in held:
            flat += value
            offsets.append(len(flat))
        flat += [None] * r.randrange(2)
        child, field = item.build(flat, r), r.choice(["item", "element", "x"])
        wide, view = r.random() < 0.5, r.random() < 0.3
        field = pa.field(field, child.type)
        code = "q" if wide else "i"
        validity = bitmap(values, r)
        if view:
            kind = pa.large_list_view(field) if wide else pa.list_view(field)
            starts = struct.pack(f"<{len(values)}{code}", *offsets[:-1])
            sizes = struct.pack(f"<{len(values)}{code}", *(len(one) for one in held))
            return pa.Array.from_buffers(
                kind, len(values), [validity, pa.py_buffer(starts), pa.py_buffer(sizes)], children=[child]
            )
        kind = pa.large_list(field) if wide else pa.list_(field)
        packed = struct.pack(f"<{len(offsets)}{code}", *offsets)
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(packed)], children=[child])

    inner = st.lists(st.none() | item.values, max_size=4)
    return Kind(f"list<{item.text}>", ("list", item.shape), inner, build)


def fixed_lists(item, k):
    def build(values, r):
        flat = [one for value in fill(values, r, [None] * k) for one in value]
        child = item.build(flat, r)
        kind = pa.list_(pa.field(r.choice(["item", "element"]), child.type), k)
        return pa.Array.from_buffers(kind, len(values), [bitmap(values, r)], children=[child])

    inner = st.lists(st.none() | item.values, min_size=k, max_size=k)
    return Kind(f"fixed_size_list<{item.text}>[{k}]", ("fixed_list", k, item.shape), inner, build)


def structs(fields):
    kinds = list(fields.values())

    def build(values, r):
        full = fill(values, r, (None,) * len(kinds))
        children = [kind.build([one[i] for one in full], r) for i, kind in enumerate(kinds)]
        kind = pa.struct([pa.field(n, child.type) for n, child in zip(fields, children, strict=True)])
        return pa.Array.from_buffers(kind, len(values), [bitmap(values, r)], children=children)

    text = ", ".join(f"{name}: {kind.text}" for name, kind in fields.items())
    inner = st.tuples(*(st.none() | kind.values for kind in kinds))
    return Kind(f"struct<{text}>", ("struct", [kind.shape for kind in kinds]), inner, build)


def maps(key, item):
    def build(values, r):
        flat, offsets = [], [0]
        for value in values:
            flat += value or []
            offsets.append(len(flat))
        keys, items = key.build([k for k, _ in flat], r), item.build([i for _, i in flat], r)
        entries = pa.StructArray.from_arrays(
            [keys, items], fields=[pa.field("k", keys.type, nullable=False), pa.field("i", items.type)]
        )
        packed = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
        kind = pa.map_(pa.field("k", keys.type, nullable=False), pa.field("i", items.type))
        return pa.Array.from_buffers(kind, len(values), [bitmap(values, r), packed], children=[entries])

    inner = st.lists(st.tuples(key.values, st.none() | item.values), max_size=3)
    return Kind(f"map<{key.text}, {item.text}>", ("list", ("struct", [key.shape, item.shape])), inner, build)


def coded(kind):
    """The same kind, held as a dictionary with values that nobody uses, in any order, some of them null or twice."""

    def build(values, r):
        entries = [*dict.fromkeys(map(repr, values))]
        known = {repr(value): value for value in values}
        dictionary = [known[one] for one in entries] + r.choices([*values, None], k=r.randrange(1, 4))
        r.shuffle(dictionary)
        places = {repr(value): i for i, value in enumerate(dictionary)}
        index = [None if value is None and r.random() < 0.5 else places.get(repr(value)) for value in values]
        array = kind.build(dictionary, r)
        return pa.DictionaryArray.from_arrays(pa.array(index, r.choice([pa.int8(), pa.uint16(), pa.int64()])), array)

    return Kind(kind.text, kind.shape, kind.values, build, "coded")


def runs(kind):
    def build(values, r):
        ends = sorted(
            {*range(1, len(values) + 1)} - {i for i in range(1, len(values)) if repr(values[i - 1]) == repr(values[i])}
        )
        array = kind.build([values[end - 1] for end in ends], r)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), array)

    return Kind(kind.text, kind.shape, kind.values, build, "runs")


NULL = Kind("null", ("null",), st.nothing(), lambda values, r: pa.nulls(len(values)))
STRING = text_like("string", st.text(max_size=12).map(str.encode), pa.string(), pa.large_string(), pa.string_view())
BINARY = text_like("binary", st.binary(max_size=20), pa.binary(), pa.large_binary(), pa.binary_view())
BOOL = Kind("bool", ("fixed", 1), st.sampled_from([b"\0", b"\1"]), boolean)
NUMBERS = [
    fixed(f"{sign}int{bits}", partial(lambda kind, r: kind, getattr(pa, f"{sign}int{bits}")()), bits // 8)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
]
INT64, INT32 = NUMBERS[3], NUMBERS[2]
FLOATS = [
    floating("halffloat", pa.float16(), "e", bytes.fromhex("007e")),
    floating("float", pa.float32(), "f", bytes.fromhex("0000c07f")),
    floating("double", pa.float64(), "d", bytes.fromhex("000000000000f87f")),
]
TIMES = [
    fixed("date32", lambda r: pa.date32(), 4),
    fixed("date64", lambda r: pa.date64(), 8, ints(8, -(10**8), 10**8, 86_400_000)),
    fixed("time[ms]", lambda r: pa.time32("ms"), 4, ints(4, 0, 86_399_999)),
    fixed("time[ns]", lambda r: pa.time64("ns"), 8, ints(8, 0, 86_399_999_999_999)),
    fixed("timestamp[s]", lambda r: pa.timestamp("s"), 8),
    fixed("timestamp[us, Europe/Berlin]", lambda r: pa.timestamp("us", "Europe/Berlin"), 8),
    fixed("duration[ns]", lambda r: pa.duration("ns"), 8),
    fixed("month_day_nano_interval", lambda r: pa.month_day_nano_interval(), 16),
]
OTHERS = [
    decimal(9, 2, *narrow_decimals(9)),
    decimal(18, 0, *narrow_decimals(18)),
    decimal(38, 10, *narrow_decimals(38)),
    decimal(76, 3, pa.decimal256),
    fixed("fixed_size_binary[3]", lambda r: pa.binary(3), 3),
    fixed("fixed_size_binary[8]", lambda r: pa.binary(8), 8),
    fixed("fixed_size_binary[21]", lambda r: pa.binary(21), 21),
]
PLAIN = [NULL, BOOL, STRING, BINARY, *NUMBERS, *FLOATS, *TIMES, *OTHERS]


def nested(kinds):
    return st.one_of(
        kinds.map(lists),
        st.builds(fixed_lists, kinds, st.integers(0, 3)),
        st.lists(kinds, max_size=3).map(lambda found: structs({f"f{i}": kind for i, kind in enumerate(found)})),
        st.builds(maps, st.sampled_from([STRING, INT32]), kinds),
        kinds.filter(lambda kind: kind.shape[0] in {"fixed", "bytes"}).map(coded),
    )


KINDS = st.recursive(st.sampled_from(PLAIN), nested, max_leaves=4)


def array_of(kind: Kind, values: list[Any], r: random.Random) -> pa.Array:
    """The values in some form, as a slice of something longer."""
    before, after = r.randrange(10), r.randrange(3)
    filler = r.choices([*values, None], k=before + after)
    array = kind.build([*filler[:before], *values, *filler[before:]], r)
    return array.slice(before, len(values))


@st.composite
def tables(draw, largest=40):
    """(schema, kinds, columns of values, rows)."""
    rows = draw(st.integers(0, largest))
    kinds = draw(st.lists(KINDS, max_size=3))
    columns = [draw(st.lists(st.none() | kind.values, min_size=rows, max_size=rows)) for kind in kinds]
    names = draw(st.lists(st.text(max_size=3), min_size=len(kinds), max_size=len(kinds)))
    return tuple((name, kind.text) for name, kind in zip(names, kinds, strict=True)), kinds, columns, rows


RANDOMS = st.integers(0, 2**32 - 1).map(random.Random)
