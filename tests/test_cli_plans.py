"""`detdata plan`: any step of any plan, asked of a file."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from detdata import (
    BucketPlan,
    Checkpointer,
    EveryEpoch,
    GroupShuffle,
    Loader,
    Mixture,
    PackPlan,
    Phases,
    Plan,
    PlanMixture,
    Shuffle,
    Topology,
    Weighted,
)
from detdata.cli import main

LENGTHS = np.random.default_rng(5).integers(1, 90, 300)


def plans():
    sources = {"web": Shuffle(200), "code": Shuffle(30)}
    return {
        "plan": (Plan(Shuffle(10**12, 3), 8), None),
        "bucket": (BucketPlan(LENGTHS, 8), LENGTHS),
        "tokens": (BucketPlan(LENGTHS, max_tokens=900).resized(4, max_tokens=400), LENGTHS),
        "concat": (PackPlan(LENGTHS, 64, 4), LENGTHS),
        "best_fit": (PackPlan(LENGTHS, 128, 4, method="best_fit"), LENGTHS),
        "mixture": (Plan(Mixture(sources, {"web": 0.75, "code": 0.25}, size=10**6), 8), None),
        "weighted": (Plan(Weighted(LENGTHS.astype(float), seed=1), 8), LENGTHS.astype(float)),
        "phases": (Phases([(BucketPlan(LENGTHS, 8), 3), (Plan(Shuffle(300), 8), None)]), LENGTHS),
        "every_epoch": (EveryEpoch(BucketPlan(LENGTHS, 8), 5), LENGTHS),
        "plan_mixture": (
            PlanMixture({"a": BucketPlan(LENGTHS, 8), "b": Plan(Shuffle(50), 8)}, {"a": 2, "b": 1}, size=20),
            LENGTHS,
        ),
        "groups": (Plan(GroupShuffle(LENGTHS % 20, 4, 2, seed=1), 8), LENGTHS % 20),
    }


def run(*arguments, code=0):
    done = CliRunner().invoke(main, ["plan", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(params=sorted(plans()))
def case(request, tmp_path):
    plan, table = plans()[request.param]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan.spec()))
    arguments = []
    if table is not None:
        np.save(tmp_path / "table.npy", table)
        arguments = ["--table", tmp_path / "table.npy"]
    return plan, [file, *arguments]


def test_any_step_of_any_plan_is_shown(case):
    plan, arguments = case
    for step in (0, 3, 1000, 10**6 if plan.id_bound > 1000 else 5000):
        told = json.loads(run("show", *arguments, "--step", step, "--json"))
        batch = plan.batch(step)
        assert told["ids"] == batch.ids.tolist()
        assert (told["epoch"], told["consumed"]) == (batch.epoch, plan.consumed(step))
        assert told["real"] == batch.real.tolist()
        assert told["width"] == batch.width
        text = run("show", *arguments, "--step", step)
        assert f"step {step}: epoch {batch.epoch}" in text
        assert str(batch.ids[0]) in text


def test_the_part_of_a_rank_is_shown(case):
    plan, arguments = case
    told = json.loads(run("show", *arguments, "--step", 2, "--rank", 1, "--world-size", 2, "--json"))
    assert told["ids"] == plan.shard(2, 1, 2).ids.tolist()


def test_when_and_digest_are_those_of_the_plan(case):
    plan, arguments = case
    assert run("digest", *arguments, 3, 9).strip() == plan.digest(3, 9)
    if isinstance(plan, Plan) and isinstance(plan.order, Weighted):
        assert "replacement" in run("when", *arguments, 5, code=2)
        return
    told = json.loads(run("when", *arguments, 5, 7, "--epoch", 2, "--json"))
    assert told == {"epoch": 2, "steps": {"5": plan.when(5, 2), "7": plan.when(7, 2)}}


def test_sources_and_documents_are_shown(tmp_path):
    for name, wanted in (("mixture", "of each source before: web 600, code 200"), ("concat", "document")):
        plan = plans()[name][0]
        (tmp_path / "p.json").write_text(json.dumps(plan.spec()))
        np.save(tmp_path / "t.npy", LENGTHS)
        assert wanted in run("show", tmp_path / "p.json", "--table", tmp_path / "t.npy", "--step", 100, "--all")


def test_a_loader_state_and_a_checkpoint_tell_their_plan(tmp_path):
    torch = pytest.importorskip("torch")
    loader = Loader(list(range(100)), Plan(Shuffle(100, 5), 4), Topology())
    next(iter(loader))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    with Checkpointer(tmp_path / "run", model=torch.nn.Linear(1, 1), loader=loader) as checkpointer:
        checkpointer.save()
    for place in (tmp_path / "state.json", tmp_path / "run" / "ckpt_latest"):
        assert json.loads(run("show", place, "--step", 7, "--json"))["ids"] == loader.plan.batch(7).ids.tolist()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "holds no JSON"),
        ("[1]", "holds no spec"),
        ('{"format": "detdata.shuffle/1", "n": 5, "seed": 0}', "is no plan"),
        ('{"format": "detdata.unheard_of/1"}', "unknown format"),
        ('{"a": 1}', '"format"'),
    ],
)
def test_a_file_that_is_no_plan_is_an_error_that_says_so(tmp_path, text, told):
    (tmp_path / "p.json").write_text(text)
    assert told in run("show", tmp_path / "p.json", code=2)


def test_a_table_that_is_missing_or_another_is_an_error_that_says_how_to_give_it(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(BucketPlan(LENGTHS, 8).spec()))
    np.save(tmp_path / "other.npy", LENGTHS + 1)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "names its lengths by the digest" in run("show", tmp_path / "p.json", code=2)
    assert "names its lengths" in run("show", tmp_path / "p.json", "--table", tmp_path / "other.npy", code=2)
    assert "--table" in run("show", tmp_path / "p.json", "--table", tmp_path / "objects.npy", code=2)
    assert "missing.json" in run("show", tmp_path / "missing.json", code=2)
