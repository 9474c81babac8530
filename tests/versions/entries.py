"""Entries of a manifest: strategies, and what the page says of them, said again without the library."""

import hashlib
import struct

import xxhash
from hypothesis import strategies as st

from detdata.versions.manifest import Manifest

# Letters, and all that has ever broken a list of files: quotes, backslashes, newlines, other scripts, bytes of no text.
_CHARACTERS = st.one_of(
    st.sampled_from(list("abzAZ019._- \"'\\\n\t[]{},:#*\x01\x7f")),
    st.sampled_from(list("éß你\u2028\U0001f600\ufeff")),
    st.integers(0x80, 0xFF).map(lambda byte: chr(0xDC00 + byte)),
)


def is_one_text_of_its_bytes(name):
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == name


_PARTS = st.text(_CHARACTERS, min_size=1, max_size=8).filter(
    lambda part: part not in {".", ".."} and is_one_text_of_its_bytes(part)
)
PATHS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)
SIZES = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
KINDS = st.sampled_from(["file", "file", "file", "link"])
HEXES = st.binary(min_size=16, max_size=16).map(bytes.hex)
ROWS = st.tuples(SIZES, HEXES, KINDS)
ENTRIES = st.dictionaries(PATHS, ROWS, max_size=12)  # path -> (size, hex, kind)


def key(path):
    return path.encode("utf-8", "surrogateescape")


def build(entries, **ways):
    """The manifest of {path: (size, hex, kind)}, given in the order of the dict."""
    sizes, hexes, kinds = ([row[column] for row in entries.values()] for column in range(3))
    return Manifest.build(list(entries), sizes, hexes, kinds, **ways)


def digest_by_the_page(entries, algorithm="xxh3-128", piece_size=0):
    """Section 7 of docs/spec.md, column by column."""
    paths = sorted(entries, key=key)
    data = b"detdata.dataset/1\0bytes" + struct.pack("<QQ", piece_size, len(entries))
    data += b"".join(key(path) + b"\0" for path in paths)
    data += b"".join(struct.pack("<Q", entries[path][0]) for path in paths)
    data += bytes({"file": 0, "link": 1}[entries[path][2]] for path in paths)
    data += b"".join(bytes.fromhex(entries[path][1]) for path in paths)
    made = xxhash.xxh3_128(data) if algorithm == "xxh3-128" else hashlib.new(algorithm, data)
    return f"{algorithm}:{made.hexdigest()}"


def some(count=3, **ways):
    """A manifest of `count` files with nothing special about them."""
    entries = {f"folder/{i:05d}.bin": (i, f"{i:032x}", "file") for i in range(count)}
    return build(entries, **ways)
