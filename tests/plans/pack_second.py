"""Section 15 of docs/spec.md a second time: plain Python integers and lists, written from the page.

A sequence is a list of (document, start, stop). Beside it, the naive way to say what a packed run is: lists of tokens.
"""

from __future__ import annotations

from itertools import count, islice
from math import isqrt

import xxhash

from tests.second import GOLDEN, MASK, by_sorting, fold, mix64, permute
from tests.second import steps as plan_steps

# --- detdata.document_shuffle/1 ---


def permuted(n, key):
    """permute(p, n, key) of all p."""
    return by_sorting(n, key) if n <= 65536 else [permute(p, n, key) for p in range(n)]


def document_order(n, seed, epoch):
    name = "detdata.document_shuffle/1"
    U, W = [], []
    for k, c in enumerate(permuted(-(-n // 256), fold(name, "cells", seed, epoch))):
        if k % 16 == 0:
            W.append(len(U))
        U += range(256 * c, min(256 * c + 256, n))
    W.append(n)
    places = []
    for w in range(len(W) - 1):
        places += [W[w] + q for q in permuted(W[w + 1] - W[w], fold(name, "window", seed, epoch, w))]
    documents = permuted(n, fold(name, "documents", seed))
    return [documents[U[q]] for q in places]


# --- concat ---


def stream(lengths, seed, epoch):
    return [(d, t) for d in document_order(len(lengths), seed, epoch) for t in range(lengths[d])]


def segments(tokens):
    """Runs of neighbouring tokens of one document, as (document, start, stop)."""
    found = []
    for document, token in tokens:
        if found and found[-1][0] == document and found[-1][2] == token:
            found[-1] = (document, found[-1][1], token + 1)
        else:
            found.append((document, token, token + 1))
    return found


def cut(tokens, seq_len):
    return [tokens[i : i + seq_len] for i in range(0, len(tokens), seq_len)]


# --- best_fit ---


def patterns(counts, L):
    """[(bins, [(length, copies), …]), …] of items given as {length: how many}."""
    stacks = {}
    for length in sorted(counts, reverse=True):
        c = counts[length]
        while c:
            rooms = [r for r in stacks if r >= length and stacks[r]]
            if rooms:
                r = min(rooms)
                bins, entries = stacks[r].pop()
            else:
                r, bins, entries = L, c, []
            k = min(r // length, c)
            x = min(bins, c // k)
            if rooms and bins > x:
                stacks[r].append((bins - x, entries))
            stacks.setdefault(r - k * length, []).append((x, [*entries, (length, k)]))
            c -= x * k
    return [group for r in sorted(stacks) for group in stacks[r]]


def ranks(seed, epoch, length, c):
    """The rank in each place, 0 … c - 1."""
    h = mix64(((length + 1) * GOLDEN + fold("detdata.best_fit/1", seed, epoch)) & MASK)
    p = next(p for p in count(max(c, 2)) if all(p % d for d in range(2, isqrt(p) + 1)))
    a, b = 1 + ((mix64((h + GOLDEN) & MASK) >> 32) * (p - 1) >> 32), (h >> 32) * p >> 32
    found = []
    for place in range(c):
        x = (a * place + b) % p
        while x >= c:
            x = (a * x + b) % p
        found.append(x)
    return found


def packed(lengths, L, seed, epoch):
    """All sequences of an epoch by their numbers."""
    by_length = {}
    for d, n in enumerate(lengths):
        if n:
            by_length.setdefault((n - 1) % L + 1, []).append(d)
    placed = {length: [ds[rank] for rank in ranks(seed, epoch, length, len(ds))] for length, ds in by_length.items()}
    used = dict.fromkeys(by_length, 0)
    sequences = []
    for bins, entries in patterns({length: len(ds) for length, ds in by_length.items()}, L):
        first = dict(used)
        for j in range(bins):
            sequence = []
            for length, copies in entries:
                for i in range(copies):
                    d = placed[length][first[length] + j * copies + i]
                    sequence.append((d, lengths[d] - length, lengths[d]))
                used[length] += copies
            sequences.append(sequence)
    for d, n in enumerate(lengths):
        sequences += [[(d, k * L, k * L + L)] for k in range((n - 1) // L if n else 0)]
    return sequences


def visited(sequences, seed, epoch):
    numbers = permuted(len(sequences), fold("detdata.shuffle/1", seed, epoch))
    return [(number, sequences[number]) for number in numbers]


# --- the run ---


def batches(spec, lengths):
    """Yield (epoch, start, seq_len, [(epoch, number, segments, real), …]) of each step, as a plan's spec says."""
    seed, total, concat = spec["seed"], sum(lengths), spec["method"] == "concat"
    t0 = b0 = e0 = L0 = None
    epochs = {}
    for phase, after in zip(spec["phases"], [*spec["phases"][1:], None], strict=True):
        L, first, epoch, token = (phase[key] for key in ("seq_len", "step", "epoch", "token"))
        M = -(-total // L) if concat else len(packed(lengths, L, seed, 0))
        R = -(-(total - token) // L) if concat else M
        base = 0 if L0 is None else b0 - (t0 - token) // L0 if e0 == epoch else -(-token // L0)
        e0, t0, b0, L0 = epoch, token, base, L
        plain = {"order": {"format": "detdata.sequential/1", "n": M}, "tail": spec["tail"], "skips": phase["skips"]}
        resizes = [[step - first, size] for step, size in phase["resizes"]]
        steps = plan_steps({**plain, "batch_size": phase["batch_size"], "resizes": resizes})
        for rows in islice(steps, None if after is None else after["step"] - first):
            found, start = [], None
            for e, p, real in rows:
                begins = concat and e == epoch
                number = base + (p - (M - R) if p >= M - R else p % R) if begins else p
                start = number if start is None else start
                if concat:
                    at = token + (number - base) * L if begins else p * L
                    found.append((e, number, segments(stream(lengths, seed, e)[at : at + L]), real))
                else:
                    if (L, e) not in epochs:
                        epochs[L, e] = visited(packed(lengths, L, seed, e), seed, e)
                    found.append((e, *epochs[L, e][p], real))
            yield rows[0][0], start, L, found


def digest(batches):
    """batches: [(seq_len, [(segments of a row, real), …]), …]"""
    data = b""
    for seq_len, rows in batches:
        flat = [(i, *segment) for i, (found, _) in enumerate(rows) for segment in found]
        data += b"".join(value.to_bytes(8, "little") for value in (len(rows), seq_len, len(flat)))
        data += bytes(int(real) for _, real in rows)
        data += b"".join(value.to_bytes(8, "little") for segment in flat for value in segment)
    return f"xxh3-128:{xxhash.xxh3_128(data, seed=0).intdigest():032x}"


def steps(tokens_of, tail, terms):
    """Walk over "concat" token by token: yield (epoch, seq_len, [(number or None, tokens, real), …]) of each step.

    tokens_of: epoch -> its tokens. terms: [(first step, seq_len, batch size), …], the first one at step 0.
    """
    e = t = number = 0
    origin = (0, 0)  # epoch and token at which the present seq_len began
    before = None

    def left(e, t, L):
        return -(-(len(tokens_of(e)) - t) // L)

    for s in count():
        _, L, B = [item for item in terms if item[0] <= s][-1]
        if before not in (None, L):
            origin = (e, t)
        before = L

        rows, begin = [], None
        if tail == "drop":
            while left(e, t, L) < B:
                e, t, number = e + 1, 0, 0
        while len(rows) < B:
            while left(e, t, L) <= 0:
                e, t, number = e + 1, 0, 0
            begin = e if begin is None else begin
            rows.append((e, number, tokens_of(e)[t : t + L], True))
            t, number = min(t + L, len(tokens_of(e))), number + 1
            if tail in ("keep", "pad") and left(e, t, L) <= 0:
                break
        if tail == "pad":
            whole = cut(tokens_of(e), L)
            mine = cut(tokens_of(e)[origin[1] :], L) if origin[0] == e else whole
            gap = len(whole) - len(mine)
            for j in range(B - len(rows)):
                p = j % len(whole)
                rows.append((e, None, mine[p % len(mine) if p < gap else p - gap], False))
        if tail == "drop" and left(e, t, L) < B:
            e, t, number = e + 1, 0, 0
        yield begin, L, rows
