"""Section 8 of docs/spec.md a second time, in plain Python integers, lists and bytes, written from the page.

A shape is what the page's text of a type comes down to:

    ("null",)  ("fixed", bytes)  ("bytes",)  ("list", shape)  ("fixed_list", k, shape)  ("struct", [shape, …])

and the values are lists of None, bytes (little-endian where fixed), lists, and tuples for structs. A map is a list of
structs of two.
"""

import hashlib

import xxhash

from tests.second import GOLDEN, MASK, mix64

H = {
    "xxh3-128": lambda data: xxhash.xxh3_128(data, seed=0).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}
NULL = 0x6A09E667F3BCC908


def u64(number):
    return number.to_bytes(8, "little")


def streams(shape, values):
    if shape[0] == "null":
        return []
    found = [b"".join(u64(i) for i, value in enumerate(values) if value is None)]
    if shape[0] == "fixed":
        found.append(b"".join(bytes(shape[1]) if value is None else value for value in values))
    elif shape[0] == "bytes":
        found.append(b"".join(u64(len(value or b"")) for value in values))
        found.append(b"".join(value or b"" for value in values))
    elif shape[0] == "list":
        found.append(b"".join(u64(len(value or [])) for value in values))
        found += streams(shape[1], [item for value in values for item in value or []])
    elif shape[0] == "fixed_list":
        found += streams(
            shape[2], [item for value in values for item in ([None] * shape[1] if value is None else value)]
        )
    else:
        for i, field in enumerate(shape[1]):
            found += streams(field, [None if value is None else value[i] for value in values])
    return found


def schema_bytes(schema):
    text = u64(len(schema))
    for column in schema:
        for word in column:
            text += u64(len(word.encode("utf-8"))) + word.encode("utf-8")
    return text


def column_digests(shapes, columns, rows, algorithm, block):
    """C of each column of each block."""
    hash = H[algorithm]
    return [
        [
            hash(b"".join(hash(stream) for stream in streams(shape, column[start : start + block])))
            for shape, column in zip(shapes, columns, strict=True)
        ]
        for start in range(0, rows, block)
    ]


def ordered(schema, shapes, columns, rows, algorithm="xxh3-128", block=65536):
    digests = column_digests(shapes, columns, rows, algorithm, block)
    data = b"detdata.rows/1\0" + schema_bytes(schema) + b"".join(C for row in digests for C in row) + u64(rows)
    return H[algorithm](data).hex()


def place(number):
    return mix64((number + 1) * GOLDEN & MASK)


def v(shape, value):
    if value is None:
        return 0
    if shape[0] == "fixed" and shape[1] <= 8:
        return int.from_bytes(value, "little")
    if shape[0] == "fixed":
        total = 0
        for i in range(0, shape[1], 8):
            total = mix64(((total ^ int.from_bytes(value[i : i + 8], "little")) + GOLDEN) & MASK)
        return total
    if shape[0] == "bytes":
        return xxhash.xxh3_64(value, seed=0).intdigest()
    if shape[0] == "struct":
        return together(shape[1], value)
    item = shape[-1]
    if item[0] == "fixed" and item[1] > 0:
        data = b"".join(bytes(item[1]) if one is None else one for one in value)
    else:
        data = b"".join(u64(v(item, one)) for one in value)
    return xxhash.xxh3_64(data, seed=0).intdigest()


def n(shape, value):
    if value is None:
        return NULL
    if shape[0] in {"fixed", "bytes"}:
        return 0
    shapes = shape[1] if shape[0] == "struct" else [shape[-1]] * len(value)
    return holes(shapes, value)


def together(shapes, values):
    terms = [mix64(v(shape, value) ^ place(i)) for i, (shape, value) in enumerate(zip(shapes, values, strict=True))]
    return mix64(sum(terms) & MASK)


def holes(shapes, values):
    words = [n(shape, value) for shape, value in zip(shapes, values, strict=True)]
    return sum(mix64(word ^ place(i)) for i, word in enumerate(words) if word) & MASK


def unordered(schema, shapes, columns, rows):
    A = B = 0
    for row in range(rows):
        values = [column[row] for column in columns]
        value, word = together(shapes, values), holes(shapes, values)
        A = (A + value + word) & MASK
        B = (B + mix64((value + 2 * word & MASK) ^ GOLDEN)) & MASK
    data = b"detdata.rows.unordered/1\0" + schema_bytes(schema) + u64(rows) + u64(A) + u64(B)
    return H["xxh3-128"](data).hex()
