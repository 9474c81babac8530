"""Specs are read strictly: nothing missing, unknown, newer or hostile gets through, and none of it costs anything."""

import pytest

from detdata import (
    BlockShuffle,
    Concat,
    DetdataError,
    Plan,
    Sequential,
    Shuffle,
    Subset,
    TorchShuffle,
    UnknownFormat,
    from_spec,
    register_format,
)

SPECS = [
    order.spec()
    for order in (
        Sequential(10),
        Shuffle(10, 1),
        BlockShuffle([3, 7], 1, 2),
        Subset(Shuffle(20, 1), [1, 2, 5]),
        Concat({"a": Shuffle(4), "b": Sequential(6)}),
        TorchShuffle(10, 1),
        Plan(Shuffle(10, 1), 2).resized(3, 4).skipping(1, 2),
    )
]
BASE = {spec["format"].split(".")[1].split("/")[0]: spec for spec in SPECS}
by_format = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["format"])


@by_format
def test_a_missing_key_is_refused_by_name(spec):
    for key in spec.keys() - {"format"}:
        with pytest.raises(UnknownFormat, match=key):
            from_spec({name: value for name, value in spec.items() if name != key})


@by_format
def test_an_unknown_key_is_refused_by_name(spec):
    with pytest.raises(UnknownFormat, match="temperature"):
        from_spec({**spec, "temperature": 1})


@by_format
def test_a_newer_format_is_refused_with_what_is_known(spec):
    newer = spec["format"].replace("/1", "/2")
    with pytest.raises(UnknownFormat, match=rf"{newer}.*{spec['format']}"):
        from_spec({**spec, "format": newer})


@pytest.mark.parametrize("spec", [{}, {"n": 3}, {"format": None}, {"format": 1}, {"format": ["detdata.shuffle/1"]},
                                  {"format": "detdata.shuffle"}, {"format": "DETDATA.SHUFFLE/1"}, {1: 2}])  # fmt: skip
def test_what_names_no_known_format_is_refused(spec):
    with pytest.raises(UnknownFormat):
        from_spec(spec)


@pytest.mark.parametrize("spec", [None, 5, "detdata.shuffle/1", [SPECS[0]], b"{}"])
def test_what_is_no_mapping_is_refused(spec):
    with pytest.raises(TypeError, match="spec"):
        from_spec(spec)


HOSTILE = [
    ("sequential", {"n": 0}), ("sequential", {"n": -1}), ("sequential", {"n": 2**62 + 1}), ("sequential", {"n": True}),
    ("sequential", {"n": 5.0}), ("sequential", {"n": "5"}), ("sequential", {"n": None}), ("sequential", {"n": [5]}),
    ("shuffle", {"n": 0}), ("shuffle", {"n": [5]}), ("shuffle", {"n": {}}), ("shuffle", {"n": {"format": "x/1"}}),
    ("shuffle", {"seed": -1}), ("shuffle", {"seed": 2**63}), ("shuffle", {"seed": 1.0}), ("shuffle", {"seed": None}),
    ("torch_shuffle", {"n": 0}), ("torch_shuffle", {"seed": True}),
    *[("block_shuffle", {"blocks": blocks}) for blocks in (
        None, 5, {}, "ab", [], [[]], [5], [[1]], [[1, 2, 3]], [[1, 2], [3]], [["1", 2]], [[1.0, 2]], [[True, 2]],
        [[None, 2]], [[[1], 2]], [[0, 5]], [[-1, 2]], [[5, -2]], [[5, 0]], [[2**62, 2]], [[2**62 + 1, 1]], [[2**70, 1]],
        [[0, 2**40], [1, 1]], [[1, 2**31], [2, 2**31]], [[0, 2**63]], [[1, 2**70]], [[0, 2**62], [1, 2**62], [2, 2**62],
        [3, 2**62]])],
    ("block_shuffle", {"window": 0}), ("block_shuffle", {"window": 1.5}), ("block_shuffle", {"order": 5}),
    ("block_shuffle", {"order": Sequential(9).spec()}), ("block_shuffle", {"order": []}),
    *[("subset", {"runs": runs}) for runs in (
        None, 5, {}, "ab", [], [[]], [5], [[1]], [[1, 2], [3]], [["1", 2]], [[1.0, 2]], [[True, 2]], [[[1], 2]],
        [[0, 0]], [[0, -1]], [[-1, 2]], [[20, 1]], [[19, 2]], [[0, 21]], [[0, 2], [1, 2]], [[0, 2**40]], [[0, 2**62]],
        [[0, 2**63]], [[0, 2**62]] * 4)],
    ("subset", {"order": 5}), ("subset", {"order": None}), ("subset", {"order": {"format": "detdata.shuffle/1"}}),
    *[("concat", {"sources": sources}) for sources in (
        None, 5, {}, "ab", [], [[]], [5], ["ab"], [["a"]], [["a", 5]], [[1, Sequential(2).spec()]],
        [[["a"], Sequential(2).spec()]], [["a", Sequential(2).spec()]] * 2, [["a", Sequential(2**62).spec()],
        ["b", Sequential(2).spec()]])],
    *[("plan", change) for change in (
        {"batch_size": 0}, {"batch_size": 2**31}, {"batch_size": 1.0}, {"tail": "DROP"}, {"tail": None},
        {"tail": ["drop"]},
        {"order": 5}, {"resizes": None}, {"resizes": [[1]]}, {"resizes": [5]}, {"resizes": [[0, 3]]},
        {"resizes": [[1, 2]]},
        {"resizes": [[3, 4], [2, 3]]}, {"resizes": [[1.5, 3]]}, {"resizes": [[1, True]]}, {"resizes": [[2**63, 3]]},
        {"skips": [[0, 1, 0]]}, {"skips": [[0, 1, 0, 1]]}, {"skips": [[0, 3, 0, 1]]}, {"skips": [[0, 1, 0, 10]]},
        {"skips": [[0, 1, 0, 4], [0, 4, 0, 6]]}, {"skips": [[-1, 0, 0, 1]]}, {"skips": [[0, 0, 2**63, 1]]},
        {"skips": {}})],
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change"), HOSTILE, ids=lambda x: str(x)[:60])
def test_a_hostile_spec_is_refused_before_anything_large_is_made(kind, change):
    with pytest.raises(DetdataError):
        from_spec({**BASE[kind], **change})


@pytest.mark.parametrize("runs", [[[0, 2**40]], [[0, 2**62]], [[0, 2**61], [2**61, 2**61]], [[0, 2**62]] * 4])
def test_runs_of_a_huge_order_cannot_exhaust_the_memory(runs):
    with pytest.raises((ValueError, IndexError), match="runs"):
        from_spec({"format": "detdata.subset/1", "order": Sequential(2**62).spec(), "runs": runs})


def wrap(spec, kind):
    if kind == "shuffle":
        return {"format": "detdata.shuffle/1", "n": spec, "seed": 1}
    if kind == "concat":
        return {"format": "detdata.concat/1", "sources": [["a", spec]]}
    return {"format": "detdata.subset/1", "order": spec, "runs": [[0, 2]]}


@pytest.mark.parametrize("kind", ["shuffle", "concat", "subset"])
def test_nesting_goes_60_deep_and_a_bottomless_spec_is_refused(kind):
    spec = Sequential(2).spec()
    for _ in range(60):
        spec = wrap(spec, kind)

    assert sorted(from_spec(spec).take(range(2), 3).tolist()) == [0, 1]

    for _ in range(5_000):
        spec = wrap(spec, kind)
    with pytest.raises(UnknownFormat, match="deep"):
        from_spec(spec)


def test_bottomless_lists_are_refused():
    runs = []
    for _ in range(5_000):
        runs = [runs]
    with pytest.raises(UnknownFormat, match="deep"):
        from_spec({**BASE["subset"], "runs": runs})


@pytest.mark.parametrize(
    "name", ["constant", "constant/0", "constant/01", "Constant/1", "a b/1", "/1", "x/1\n", 5, None]
)
def test_a_malformed_format_name_is_refused(name):
    with pytest.raises(ValueError, match=r"project\.name/1"):
        register_format(name, (), lambda spec: spec)


def test_a_format_of_another_builder_is_not_taken_over():
    def build(spec):
        return spec

    with pytest.raises(ValueError, match="already registered"):
        register_format("detdata.shuffle/1", ("n", "seed"), build)
    assert from_spec(BASE["shuffle"]) == Shuffle(10, 1)
