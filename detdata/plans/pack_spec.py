"""The spec of a packed plan: all of it but the lengths, of which it holds count and digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from detdata.checks import brief
from detdata.errors import ArgumentTypeError, ArgumentValueError, UnknownFormat
from detdata.plans.pack_documents import Documents
from detdata.plans.pack_phases import Phase, Terms, build
from detdata.records import Spec, canonical_json

FORMAT = "detdata.pack_plan/1"
KEYS = ("lengths", "method", "phases", "seed", "tail")


def spec_of(documents: Documents, phases: Sequence[Phase]) -> Spec:
    """Return the spec of a plan."""
    return {
        "format": FORMAT,
        "lengths": documents.spec(),
        "method": documents.method,
        "phases": [phase.terms.spec() for phase in phases],
        "seed": documents.seed,
        "tail": phases[0].plan.tail,
    }


def read_spec(spec: Mapping[str, Any], lengths: npt.ArrayLike) -> tuple[Documents, tuple[Phase, ...]]:
    """Return the documents and phases of a spec. Raises UnknownFormat, TypeError, ValueError."""
    if not isinstance(spec, Mapping):
        raise ArgumentTypeError(f"spec must be a dict, got {type(spec).__name__}")
    if spec.get("format") != FORMAT or set(spec) != {"format", *KEYS}:
        raise UnknownFormat(f"a {FORMAT} spec has the keys {sorted(KEYS)}, got {str(dict(spec))[:300]}")
    documents = Documents(lengths, spec["seed"], spec["method"])
    if documents.spec() != spec["lengths"]:
        raise ArgumentValueError(
            f"lengths are not those of the spec: it says {brief(spec['lengths'])}, these are {documents.spec()}"
        )
    if not isinstance(spec["phases"], list) or not spec["phases"]:
        raise UnknownFormat(f"phases must be a list of at least one phase, got {str(spec['phases'])[:300]}")
    phases = build([Terms.read(one) for one in spec["phases"]], spec["tail"], documents.cut)
    if canonical_json(spec_of(documents, phases)) != canonical_json(dict(spec)):
        raise UnknownFormat(f"phases of a {FORMAT} spec are not in their one form: {str(spec['phases'])[:300]}")
    return documents, phases
