"""What a mixture is made of: its arguments checked and brought into the one form in which they stand in its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from detdata.checks import MAX_SIZE, as_int, as_seed, brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.orders.base import Order, as_order
from detdata.orders.quotas import as_weights, read_weight
from detdata.orders.segments import MAX_DRAWS
from detdata.orders.shuffle import as_size
from detdata.orders.timeline import Change, Rules
from detdata.records import Spec, canonical_json, from_spec

Stop: TypeAlias = Literal["first", "all", "all_once"]
FORMAT = "detdata.mixture/1"
KEYS = ("sources", "weights", "seed", "size", "stop", "limits", "changes")


class Terms(NamedTuple):
    """A mixture's arguments, checked. limits: passes that each source may make; None: any number."""

    sources: dict[str, Order]
    weights: tuple[Fraction, ...]
    seed: int
    size: int | None
    stop: Stop | None
    limits: tuple[int | None, ...]
    changes: tuple[Change, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sources."""
        return tuple(self.sources)

    def rules(self) -> Rules:
        """Return what the draws of an epoch (with `size`: of the whole run) follow."""
        sizes = tuple(order.size for order in self.sources.values())
        passes = (1,) * len(sizes) if self.stop == "all_once" else self.limits
        most = tuple(None if count is None else count * size for count, size in zip(passes, sizes, strict=True))
        goal = self.stop if self.stop in {"first", "all"} else None
        return Rules(self.names, self.weights, self.changes, most, sizes, goal, self.seed)

    def before(self, draws: int) -> tuple[object, ...]:
        """Return all that decides the first `draws` draws: sources that are not drawn until then have no part in it."""
        if draws == 0:
            return self.seed, self.size, self.stop
        changes = [change for change in self.changes if change[0] < draws]
        named = {index for _, rows in changes for index, _ in rows}
        used = [index for index, weight in enumerate(self.weights) if weight or index in named]
        bases = [0, *accumulate(order.id_bound for order in self.sources.values())]
        orders = list(self.sources.items())
        rows = [(*orders[index], bases[index], self.weights[index], self.limits[index]) for index in used]
        later = [(at, [(used.index(index), weight) for index, weight in rows]) for at, rows in changes]
        return self.seed, self.size, self.stop, rows, later

    def spec(self) -> Spec:
        """Return the plain JSON that `build_terms` reads."""
        names = self.names
        limits = zip(names, self.limits, strict=True)
        return {
            "format": FORMAT,
            "sources": [[name, order.spec()] for name, order in self.sources.items()],
            "weights": [str(weight) for weight in self.weights],
            "seed": self.seed,
            "size": self.size,
            "stop": self.stop,
            "limits": [[name, passes] for name, passes in limits if passes is not None],
            "changes": [[at, [[names[i], str(weight)] for i, weight in rows]] for at, rows in self.changes],
        }


def as_terms(
    sources: object, weights: object, seed: object, size: object, stop: object, limits: object, changes: object
) -> Terms:
    """Return the arguments of a mixture as terms. Raises TypeError and ValueError."""
    orders = _as_sources(sources)
    names = tuple(orders)
    given = as_weights(weights, names)
    missing = [name for name in names if name not in given]
    if missing:
        raise ArgumentValueError(f"weights: {brief(missing)} have none; give each source one (0: it is not drawn)")
    rule = _as_stop(size, stop)
    epoch = None if size is None else as_size(size, "size")
    first, later = _as_changes(changes, given, names)
    if not any(first.values()):
        raise ArgumentValueError("weights are all 0: at least one source must be drawn")
    return Terms(orders, tuple(first.values()), as_seed(seed), epoch, rule, _as_limits(limits, names, rule), later)


def _as_sources(sources: object) -> dict[str, Order]:
    if not isinstance(sources, Mapping):
        raise ArgumentTypeError(f"sources must be a dict of name: order, got {brief(sources)}")
    if not sources:
        raise ArgumentValueError("sources is empty: give at least one name: order")
    for name, order in sources.items():
        if not isinstance(name, str):
            raise ArgumentTypeError(f"sources: names must be strings, got {brief(name)}")
        as_order(order, f"sources[{name!r}]")
    bound = sum(order.id_bound for order in sources.values())
    if bound > MAX_SIZE:
        raise ArgumentValueError(f"sources have {bound} samples together; at most 2**62 are possible")
    return dict(sources)


def _as_stop(size: object, stop: object) -> Stop | None:
    if size is not None and stop is not None:
        raise ArgumentValueError(f"give size or stop, not both; got size={brief(size)} and stop={brief(stop)}")
    if size is None and stop is None:
        return "first"
    if stop is not None and (not isinstance(stop, str) or stop not in get_args(Stop)):
        raise ArgumentValueError(f"stop must be one of {', '.join(get_args(Stop))}; got {brief(stop)}")
    return stop  # type: ignore[return-value]


def _as_limits(limits: object, names: Sequence[str], stop: Stop | None) -> tuple[int | None, ...]:
    if limits is None:
        limits = {}
    if not isinstance(limits, Mapping):
        raise ArgumentTypeError(f"limits must be a dict of name: passes, got {brief(limits)}")
    if limits and stop in {"first", "all_once"}:
        raise ArgumentValueError(
            f"limits have no effect with stop={stop!r}, in which no source makes more than one pass an epoch; "
            'leave them out, or take stop="all" or size='
        )
    for name in limits:
        if name not in names:
            raise ArgumentValueError(f"limits names {brief(name)}, which is no source; the sources are {brief(names)}")
    passes = {name: as_int(count, f"limits[{name!r}]", low=1, high=MAX_SIZE) for name, count in limits.items()}
    return tuple(passes.get(name) for name in names)


def _as_changes(
    changes: object, first: dict[str, Fraction], names: Sequence[str]
) -> tuple[dict[str, Fraction], tuple[Change, ...]]:
    """Return the weights at the beginning and the changes after it, without those that change nothing."""
    rows = list(changes) if isinstance(changes, (list, tuple)) else None
    if rows is None or any(not isinstance(row, (list, tuple)) or len(row) != 2 for row in rows):
        raise ArgumentTypeError(f"changes must be a list of (position, {{name: weight}}), got {brief(changes)}")
    weights = {name: first[name] for name in names}
    kept: list[Change] = []
    start, last = dict(weights), -1
    for number, (position, given) in enumerate(rows):
        at = as_int(position, f"changes[{number}]: position", high=MAX_DRAWS)
        if at <= last:
            raise ArgumentValueError(f"changes must have rising positions, got {at} after {last}")
        checked = as_weights(given, names, f"changes[{number}]")
        before = list(weights.values())
        weights.update(checked)
        new = tuple((i, weight) for i, weight in enumerate(weights.values()) if weight != before[i])
        if not any(weights.values()):
            raise ArgumentValueError(f"changes[{number}] leaves all weights 0: at least one source must be drawn")
        if at == 0:
            start = dict(weights)
        elif new:
            kept.append((at, new))
        last = at
    return start, tuple(kept)


def build_terms(spec: Spec) -> dict[str, Any]:
    """Return the arguments of the mixture that a spec describes, checked to stand in their one form."""
    pairs = _pairs(spec["sources"], "sources")
    names = [name for name, _ in pairs]
    if any(not isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ArgumentValueError(f"sources: names must be strings that differ, got {brief(names)}")
    weights = spec["weights"]
    if not isinstance(weights, list) or len(weights) != len(names):
        raise UnknownFormat(f"weights must be a list of one for each of the {len(names)} sources, got {brief(weights)}")
    return {
        "sources": {name: as_order(from_spec(order), f"sources[{name!r}]") for name, order in pairs},
        "weights": {name: read_weight(text, "weights") for name, text in zip(names, weights, strict=True)},
        "seed": spec["seed"],
        "size": spec["size"],
        "stop": spec["stop"],
        "limits": dict(_pairs(spec["limits"], "limits")),
        "changes": [
            (at, {name: read_weight(text, "changes") for name, text in _pairs(rows, "changes")})
            for at, rows in _pairs(spec["changes"], "changes")
        ],
    }


def check_form(spec: Spec, terms: Terms) -> None:
    """Check that a spec is the one that its terms have: equal mixtures have equal specs."""
    own = terms.spec()
    for key in ("weights", "size", "stop", "limits", "changes"):
        if canonical_json(spec[key]) != canonical_json(own[key]):
            raise UnknownFormat(f"{key} of a {FORMAT} spec must stand as {brief(own[key])}, got {brief(spec[key])}")


def _pairs(value: object, name: str) -> list[tuple[Any, Any]]:
    if not isinstance(value, list) or any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
        raise ArgumentTypeError(f"{name} of a spec must be a list of pairs, got {brief(value)}")
    if any(not isinstance(first, (str, int)) for first, _ in value):
        raise ArgumentTypeError(f"{name} of a spec must be pairs that begin with a name or number, got {brief(value)}")
    return [(first, second) for first, second in value]
