"""Sections 11 to 13 of docs/spec.md a second time, in plain Python integers and lists, written from the page."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

import xxhash

from tests.second import GOLDEN, MASK, F, fold, mix64, permute, radices


def digest_of(numbers):
    data = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    return f"xxh3-128:{xxhash.xxh3_128(data, seed=0).intdigest():032x}"


# --- section 11 ---


def units_of(weights):
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    scale = Fraction(2) ** 200
    while total * scale >= 2**62:
        scale /= 2
    while total * scale < 2**61:
        scale *= 2
    return [max(1, int(weight * scale)) if weight else 0 for weight in exact]


def weighted_take(units, seed, epoch, p):
    h = mix64(((p + 1) * GOLDEN + fold("detdata.weighted/1", "draw", seed, epoch)) & MASK)
    r = h * sum(units) >> 64
    return next(i for i, edge in enumerate(accumulate(units)) if edge > r)


def balanced_weights(labels, power):
    """For powers that are whole or halves: with exact roots."""
    result = []
    for label in labels:
        m = labels.count(label)
        square = Fraction(2) ** 124 / Fraction(m) ** int(2 * power)  # of the weight
        low = isqrt_of(square)
        result.append(max(1, low + (square > (low + Fraction(1, 2)) ** 2)))
    return result


def isqrt_of(square):
    low, high = 0, 2**63
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle * middle <= square else (low, middle)
    return low


# --- section 12 ---

GROUPS = "detdata.group_shuffle/1"


def network(x, n, key, *, inverse=False):
    a, b = radices(n)
    K = [mix64((key + (i + 1) * GOLDEN) & MASK) for i in range(10)]
    L, R = x // b, x % b
    for i in reversed(range(10)) if inverse else range(10):
        sign = -1 if inverse else 1
        if i % 2:
            R = (R + sign * F(L, K[i], b)) % b
        else:
            L = (L + sign * F(R, K[i], a)) % a
    return L * b + R


def permute_each(p, n, key):
    if n <= 64:
        return permute(p, n, key)
    x = network(p, n, key)
    while x >= n:
        x = network(x, n, key)
    return x


def group_numbers(labels, ids=None):
    used = range(len(labels)) if ids is None else sorted(ids)
    names = sorted({labels[id] for id in used})
    numbers = [-1] * len(labels)
    for id in used:
        numbers[id] = names.index(labels[id])
    return numbers


def group_batches(numbers, c, k, seed, epoch):
    """The batches of an epoch, each as its rows of ids: the whole page, step by step."""
    members = {}
    for id, y in enumerate(numbers):
        if y >= 0:
            members.setdefault(y, []).append(id)
    u = {y: len(mine) // k for y, mine in members.items()}
    usable = sorted(y for y in u if u[y])
    G = len(usable)
    M = max(M for M in range(1, sum(u.values()) // c + 1) if sum(min(u[y], M) for y in usable) >= c * M)

    line = []  # (group, turn) of each number
    for i in range(G):
        y = usable[permute(i, G, fold(GROUPS, "groups", seed, epoch))]
        line += [(y, turn) for turn in range(min(u[y], M))]
    del line[c * M :]

    most = min(-(-G // c), max(2, 1024 // c))
    R = -(-M // most)
    batches = []
    for rho in range(R):
        z = M // R + (rho < M % R)
        mine = [line[j * M + rho + R * q] for j in range(c) for q in range(z)]
        runs = []
        for y, turn in mine:
            if not runs or runs[-1][-1][0] != y:
                runs.append([])
            runs[-1].append((y, turn))
        key = mix64(((rho + 1) * GOLDEN + fold(GROUPS, "rounds", seed, epoch)) & MASK)
        order = sorted(range(len(runs)), key=lambda run, key=key: mix64(((run + 1) * GOLDEN + key) & MASK))
        dealt = [item for run in order for item in runs[run]]
        for place in range(z):
            batches.append([dealt[slot * z + place] for slot in range(c)])

    rows = []
    for batch in batches:
        ids = []
        for s in range(k):
            for y, turn in batch:
                key = mix64(((y + 1) * GOLDEN + fold(GROUPS, "members", seed, epoch)) & MASK)
                ids.append(members[y][permute_each(turn * k + s, len(members[y]), key)])
        rows.append(ids)
    return rows


# --- section 13 ---


def split_hash(id, seed):
    if isinstance(id, int):
        return mix64(((id + 1) * GOLDEN + fold("detdata.split/1", seed)) & MASK)
    return fold("detdata.split/1", seed, id)


def share_of(value):
    return Fraction(Decimal(repr(value))) if isinstance(value, float) else Fraction(value)


def ends_of(parts):
    shares = [share_of(value) for value in parts.values()]
    if all(share.denominator == 1 for share in shares):
        shares = [share / sum(shares) for share in shares]
    last = max(i for i, share in enumerate(shares) if share > 0)
    return [int(2**64 * sum(shares[: i + 1])) if i < last else 2**64 for i in range(len(shares))]


def split_of(id, parts, seed):
    h = split_hash(id, seed)
    return next(name for name, end in zip(parts, ends_of(parts), strict=True) if h < end)
