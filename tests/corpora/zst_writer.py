"""Zstandard frames made by hand from RFC 8878, to have every kind of header; their blocks are stored or runs."""

import random

import xxhash

MAGIC = b"\x28\xb5\x2f\xfd"


def skippable(content, kind=0):
    return bytes([0x50 + kind]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


def frame(text, *, size_bytes=0, single=False, checksum=False, dictionary_bytes=0, block=1000):
    """One frame. size_bytes: of the field for the size of the text: 0, 1 (single only), 2, 4 or 8. block: largest."""
    flag = {0: 0, 1: 0, 2: 1, 4: 2, 8: 3}[size_bytes]
    flags = flag << 6 | single << 5 | checksum << 2 | {0: 0, 1: 1, 2: 2, 4: 3}[dictionary_bytes]
    head = MAGIC + bytes([flags])
    if not single:
        head += bytes([10 << 3])  # a window of 1 MiB
    head += bytes(dictionary_bytes)  # 0: none
    if size_bytes:
        head += (len(text) - 256 * (size_bytes == 2)).to_bytes(size_bytes, "little")
    parts = [text[at : at + block] for at in range(0, len(text), block)] or [b""]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        run = bool(part) and part == part[:1] * len(part)
        head += (len(part) << 3 | run << 1 | last).to_bytes(3, "little") + (part[:1] if run else part)
    if checksum:
        head += (xxhash.xxh64_intdigest(text) & 0xFFFFFFFF).to_bytes(4, "little")
    return head


def frames(seed, count):
    """Random frames of all kinds, with what is skipped between them; (packed, text)."""
    rng = random.Random(seed)
    packed, text = [], []
    for _ in range(count):
        if rng.random() < 0.3:
            packed.append(skippable(rng.randbytes(rng.randrange(40)), rng.randrange(16)))
        size = rng.choice([0, 1, 255, 256, 300, 5000, 70_000])
        part = b"a" * size if rng.random() < 0.2 else rng.randbytes(size // 2).hex().encode()
        part = part[:99] + b"\n" + part[99:]
        fields = [4, 8] + [2] * (256 <= len(part) < 65_792)
        single = rng.random() < 0.4
        fields += [1] * (single and len(part) < 256) + [0] * (not single)
        packed.append(
            frame(
                part,
                size_bytes=rng.choice(fields),
                single=single,
                checksum=rng.random() < 0.5,
                dictionary_bytes=rng.choice([0, 0, 1, 2, 4]),
                block=rng.choice([50, 1000, 1 << 17]),
            )
        )
        text.append(part)
    return b"".join(packed), b"".join(text)
