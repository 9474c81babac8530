"""The spec a second time: docs/spec.md in plain Python integers and lists, written from the page, sharing no code."""

from __future__ import annotations

from itertools import accumulate
from math import isqrt

import xxhash

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


# --- section 1 ---


def fold(*path):
    data = b""
    for part in path:
        body = part.encode("utf-8") if isinstance(part, str) else part.to_bytes(8, "little")
        data += (b"s" if isinstance(part, str) else b"i") + len(body).to_bytes(8, "little") + body
    return xxhash.xxh3_64(data, seed=0).intdigest()


def derive_seed(seed, *path):
    return fold("detdata.seed/1", seed, *path)


def mix64(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def sample_seed(seed, epoch, id):
    return mix64(((id + 1) * GOLDEN + fold("detdata.sample/1", seed, epoch)) & MASK)


# --- section 2 ---


def by_sorting(n, key):
    keys = [mix64(((id + 1) * GOLDEN + key) & MASK) >> 16 << 16 | id for id in range(n)]
    return [key & 0xFFFF for key in sorted(keys)]


def F(x, k, m):
    z = (x ^ k) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93 & MASK
    return ((z >> 32) * m) >> 32


def radices(n):
    a = isqrt(n)
    a += a * a < n
    b = n // a
    b += a * b < n
    return a, b


def network(x, n, key, rounds=6):
    a, b = radices(n)
    K = [fold("detdata.feistel/1", key, i) for i in range(rounds)]
    L, R = x // b, x % b
    for i in range(rounds):
        if i % 2:
            R = (R + F(L, K[i], b)) % b
        else:
            L = (L + F(R, K[i], a)) % a
    return L * b + R


def inverse_network(x, n, key):
    a, b = radices(n)
    L, R = x // b, x % b
    for i in (5, 4, 3, 2, 1, 0):
        k = fold("detdata.feistel/1", key, i)
        if i % 2:
            R = (R - F(L, k, b)) % b
        else:
            L = (L - F(R, k, a)) % a
    return L * b + R


def permute(p, n, key):
    if n <= 65536:
        return by_sorting(n, key)[p]
    x = network(p, n, key)
    while x >= n:
        x = network(x, n, key)
    return x


def unpermute(id, n, key):
    if n <= 65536:
        return by_sorting(n, key).index(id)
    x = inverse_network(id, n, key)
    while x >= n:
        x = inverse_network(x, n, key)
    return x


# --- section 3 ---


def size_of(spec):
    kind = spec["format"]
    if kind in ("detdata.sequential/1", "detdata.shuffle/1"):
        return spec["n"] if isinstance(spec["n"], int) else size_of(spec["n"])
    if kind == "detdata.block_shuffle/1":
        return sum(size * count for size, count in spec["blocks"])
    if kind == "detdata.subset/1":
        return sum(count for _, count in spec["runs"])
    return sum(size_of(source) for _, source in spec["sources"])


def bound_of(spec):
    if spec["format"] == "detdata.concat/1":
        return sum(bound_of(source) for _, source in spec["sources"])
    inner = spec.get("order") or spec.get("n")
    return bound_of(inner) if isinstance(inner, dict) else size_of(spec)


def take(spec, p, epoch):
    kind = spec["format"]
    if kind == "detdata.sequential/1":
        return p
    if kind == "detdata.shuffle/1":
        place = permute(p, size_of(spec), fold("detdata.shuffle/1", spec["seed"], epoch))
        return take(spec["n"], place, epoch) if isinstance(spec["n"], dict) else place
    if kind == "detdata.block_shuffle/1":
        row = block_row(spec, p, epoch)
        return take(spec["order"], row, epoch) if spec["order"] else row
    if kind == "detdata.subset/1":
        ids = [id for first, count in spec["runs"] for id in range(first, first + count)]
        return take(spec["order"], sorted(find(spec["order"], id, epoch) for id in ids)[p], epoch)
    base = 0
    for _, source in spec["sources"]:
        if p < size_of(source):
            return base + take(source, p, epoch)
        p -= size_of(source)
        base += bound_of(source)
    raise IndexError(p)


def find(spec, id, epoch):
    """By the inverse where it is cheap, else by looking at every position."""
    kind = spec["format"]
    if kind == "detdata.sequential/1":
        return id
    if kind == "detdata.shuffle/1":
        place = find(spec["n"], id, epoch) if isinstance(spec["n"], dict) else id
        return unpermute(place, size_of(spec), fold("detdata.shuffle/1", spec["seed"], epoch))
    return next(p for p in range(size_of(spec)) if take(spec, p, epoch) == id)


def block_row(spec, p, epoch):
    s = [size for size, count in spec["blocks"] for _ in range(count)]
    seed, window, m = spec["seed"], spec["window"], len(s)
    B = [permute(k, m, fold("detdata.block_shuffle/1", "blocks", seed, epoch)) for k in range(m)]
    S = [0, *accumulate(s[b] for b in B)]
    for w in range(-(-m // window)):
        begin, end = S[w * window], S[min((w + 1) * window, m)]
        if begin <= p < end:
            key = fold("detdata.block_shuffle/1", "rows", seed, epoch, w)
            q = begin + permute(p - begin, end - begin, key)
            k = next(k for k in range(m) if S[k] <= q < S[k + 1])
            return sum(s[: B[k]]) + q - S[k]
    raise IndexError(p)


# --- section 4 ---


def steps(spec):
    """Yield every step's rows (epoch, position, real), by the walk of the page."""
    n, tail = size_of(spec["order"]), spec["tail"]

    def B(s):
        return [size for first, size in [(0, spec["batch_size"]), *spec["resizes"]] if first <= s][-1]

    def left(e):
        gone = [((a, b), (c, d)) for a, b, c, d in spec["skips"]]
        return [p for p in range(n) if not any(begin <= (e, p) < end for begin, end in gone)]

    e = q = s = 0
    while True:
        rows = []
        if tail == "drop":
            while len(left(e)) - q < B(s):
                e, q = e + 1, 0
            rows = [(e, p, True) for p in left(e)[q : q + B(s)]]
            q += B(s)
            if len(left(e)) - q < B(s):
                e, q = e + 1, 0
        else:
            while len(rows) < B(s):
                while len(left(e)) == q:
                    e, q = e + 1, 0
                r = min(B(s) - len(rows), len(left(e)) - q)
                rows += [(e, p, True) for p in left(e)[q : q + r]]
                q += r
                if tail == "pad":
                    rows += [(e, j % n, False) for j in range(B(s) - r)]
                if tail != "carry":
                    break
        yield rows
        s += 1


def digest(spec, batches):
    data = b""
    for rows in batches:
        data += len(rows).to_bytes(8, "little")
        data += b"".join(take(spec["order"], p, e).to_bytes(8, "little") for e, p, _ in rows)
        data += bytes(int(real) for _, _, real in rows)
    return f"xxh3-128:{xxhash.xxh3_128(data, seed=0).intdigest():032x}"


def part(rows, B, rank, W, micro_steps):
    m = B // micro_steps
    return [rows[i] for k in range(micro_steps) for i in range(k * m + rank, (k + 1) * m, W) if i < len(rows)]
