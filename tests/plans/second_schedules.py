"""Section 16 of docs/spec.md a second time, in plain Python, written from the page; of parts that are plain plans.

A step is (epoch, start, rows), rows (epoch, id, real). Everything is found by walking from step 0.
"""

from __future__ import annotations

from itertools import islice

from tests.second import bound_of, fold, steps, take
from tests.second_mixture import Walk


def plain(spec):
    for rows in steps(spec):
        e, p, _ = rows[0]
        yield e, p, [(epoch, take(spec["order"], position, epoch), real) for epoch, position, real in rows]


def phases(spec):
    H = 0
    for part, f, c in spec["parts"]:
        own = walk(part)
        before = list(islice(own, f))
        G = begun(part, before)
        for number, (epoch, start, rows) in enumerate(own, 1):
            before.append((epoch, start, rows))
            yield epoch + H, start, [(e + H, id, real) for e, id, real in rows]
            if number == c:
                break
        G = begun(part, before)
        H = 0 if spec["continues"] else H + max(G, before[-1][0] + 1)


def begun(spec, before):
    """G(P, n), `before` being the first n steps of P."""
    if spec["format"] == "detdata.phases/1" and before:
        S, H = 0, 0
        for part, f, c in spec["parts"]:
            n = len(before) - S
            if c is None or n <= c:
                return H + begun(part, list(islice(walk(part), f + n)))
            inner = list(islice(walk(part), f + c))
            H = 0 if spec["continues"] else H + max(begun(part, inner), inner[-1][0] + 1)
            S += c
    return 1 + max((e for _, _, rows in before for e, _, _ in rows), default=-1)


def every_epoch(spec):
    for s, (_, start, rows) in enumerate(walk(spec["plan"])):
        yield s // spec["steps"], start, rows


def plan_mixture(spec):
    names = [name for name, _ in spec["plans"]]
    mixture = {
        "sources": [[name, {"format": "detdata.sequential/1", "n": 1}] for name in names],
        "weights": spec["weights"],
        "changes": [[at, [list(pair) for pair in zip(names, w, strict=True)]] for at, w in spec["changes"]],
        "seed": fold("detdata.plan_mixture/1", spec["seed"]),
        "size": None,
        "stop": None,
        "limits": [],
    }
    walks = [walk(plan) for _, plan in spec["plans"]]
    base = [sum(width(plan) for _, plan in spec["plans"][:i]) for i in range(len(names))]
    for s, (i, _) in enumerate(Walk(mixture, 300).draws):
        _, start, rows = next(walks[i])
        yield s // spec["size"], start, [(e, id + base[i], real) for e, id, real in rows]


def width(spec):
    kind = spec["format"]
    if kind == "detdata.phases/1":
        return width(spec["parts"][0][0])
    if kind == "detdata.every_epoch/1":
        return width(spec["plan"])
    if kind == "detdata.plan_mixture/1":
        return sum(width(plan) for _, plan in spec["plans"])
    return bound_of(spec["order"])


KINDS = {
    "detdata.plan/1": plain,
    "detdata.phases/1": phases,
    "detdata.every_epoch/1": every_epoch,
    "detdata.plan_mixture/1": plan_mixture,
}


def walk(spec):
    """Yield the steps of a plan."""
    return KINDS[spec["format"]](spec)


def linear_ramp(first, last, steps, divisor):
    """The table, by asking at each step."""
    k = (last - first) // divisor
    sizes = [first + divisor * (s * k // steps) for s in range(steps)] + [last]
    return [[s, size] for s, size in enumerate(sizes) if s == 0 or size != sizes[s - 1]]
