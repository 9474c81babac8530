"""diff_checkpoints: what differs between two checkpoints, whole or in pieces, and what does not count."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
import torch

from detdata import CheckpointBroken, diff_checkpoints
from detdata.checkpoint import reading
from detdata.checkpoint.files import write_file
from detdata.checkpoint.manifest import Manifest, read_manifest
from detdata.checkpoint.sharded import FORMAT, INDEX, MARK
from detdata.checkpoint.tensor_table import tensor_rows
from detdata.checkpoint.tensors import tree_writer
from tests.checkpoint.runs import save_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, options in (("a", {}), ("twin", {}), ("changed", {"weight": 0.5}), ("longer", {"steps": 4})):
        save_run(folder / name, **options)
    return folder


def test_two_runs_that_are_the_same_have_the_same_state(runs):
    found = diff_checkpoints(runs / "a", runs / "twin" / "ckpt_latest")

    assert found.same
    assert str(found).startswith("same: all state")
    assert found.to_dict()["same"] is True
    assert {part.name for part in found.parts} >= {"model.pt", "optimizer.pt", "progress.json", "rng_rank00000.pt"}


def test_a_changed_weight_is_named_with_its_place_and_nothing_else_differs(runs):
    found = diff_checkpoints(runs / "a", runs / "changed")

    assert not found.same
    [part] = found.differing
    [difference] = part.differences
    assert (part.name, part.tensors, part.differing) == ("model.pt", 4, 1)
    assert (difference.name, difference.elements.count, difference.elements.first) == ("2.weight", 1, (0, 0))
    assert difference.elements.b == "0.5"
    assert "model: 1 of 4 tensors differ" in str(found)


def test_progress_plan_moments_schedule_scaler_and_random_states_are_compared_by_name(runs):
    found = diff_checkpoints(runs / "a", runs / "longer")

    names = {f"{part.name}:{difference.name}" for part in found.parts for difference in part.differences}
    assert {
        "progress.json:global_step",
        "data.json:loader/progress/global_step",
        "optimizer.pt:state/0.weight/exp_avg",
        "scheduler.pt:states/[0]/last_epoch",
        "scaler.pt:_growth_tracker",
        "model.pt:0.weight",
    } <= names
    assert "random states of rank 0: not equal: torch" in str(found)


def test_a_part_on_one_side_only_is_a_difference(runs, tmp_path):
    save_run(tmp_path / "bare", scaler=False)

    found = diff_checkpoints(tmp_path / "bare", runs / "a")

    [part] = found.differing
    assert (part.name, part.differences[0].kind) == ("scaler.pt", "only_b")
    assert "scaler: differs\n  all of it: only in b" in str(found)
    assert "scaler: differs\n  all of it: only in a" in str(diff_checkpoints(runs / "a", tmp_path / "bare"))


def test_config_and_versions_are_listed_and_do_not_count(runs, tmp_path):
    save_run(tmp_path / "other", config={"lr": 0.02})

    found = diff_checkpoints(runs / "a", tmp_path / "other")

    assert found.same
    assert [(one.name, one.a, one.b) for one in found.recorded] == [("config/lr", "0.01", "0.02")]
    assert "does not count" in str(found)


def in_pieces(folder, rows):
    """Rewrite a checkpoint as ranks would that hold `rows` rows each of every matrix of the model and its moments."""
    pieces, index = {}, {}

    def mark(part, tree):
        for key, value in tree.items():
            if isinstance(value, dict):
                mark(part, value)
            elif isinstance(value, torch.Tensor) and value.dim() == 2:
                name = f"{part}#{len(index)}"
                cut = value.split(rows)
                index[name] = [[rank, [rank * rows, 0], list(piece.shape)] for rank, piece in enumerate(cut)]
                for rank, piece in enumerate(cut):
                    pieces.setdefault(rank, []).append((name, [rank * rows, 0], piece.clone()))
                tree[key] = {MARK: name, "shape": list(value.shape), "dtype": value.dtype}

    trees = {}
    for part in ("model.pt", "optimizer.pt"):
        trees[part] = torch.load(folder / part, weights_only=True)
        mark(part, trees[part])
    trees |= {f"shards_rank{rank:05d}.pt": {"format": FORMAT, "pieces": own} for rank, own in pieces.items()}
    old = read_manifest(folder)
    files = dict(old.files)
    for name, tree in trees.items():
        (folder / name).unlink(missing_ok=True)
        files[name] = write_file(folder / name, tree_writer(tree))
    text = json.dumps({"format": FORMAT, "pieces": index}).encode()
    files[INDEX] = write_file(folder / INDEX, lambda file: file.write(text))
    (folder / "manifest.json").write_bytes(Manifest(old.step, old.kind, old.saved_ns, files).to_bytes())
    return folder


def test_tensors_in_pieces_are_compared_whole_whatever_the_layout(runs, tmp_path):
    [two], [three] = (save_run(tmp_path / name) for name in ("two", "three"))
    in_pieces(two, 2)
    in_pieces(three, 3)

    assert diff_checkpoints(runs / "a", two).same
    assert diff_checkpoints(two, three).same
    assert diff_checkpoints(two, two).same
    whole = [row.to_dict() for row in tensor_rows(runs / "a")]
    assert [row.to_dict() for row in tensor_rows(three)] == whole


def test_a_difference_in_a_piece_is_found_at_its_place_in_the_whole(runs, tmp_path):
    [changed] = save_run(tmp_path / "changed", weight=0.5)
    found = diff_checkpoints(runs / "a", in_pieces(changed, 2))

    [difference] = [one for part in found.parts for one in part.differences]
    assert (difference.name, difference.elements.count, difference.elements.first) == ("2.weight", 1, (0, 0))


def test_in_one_layout_only_the_files_of_pieces_differ_and_are_read(runs, tmp_path):
    [one], [other], [twin] = (
        save_run(tmp_path / name, weight=weight) for name, weight in (("one", 0.5), ("other", 0.25), ("twin", 0.5))
    )
    for folder in (one, other, twin):
        in_pieces(folder, 2)

    [difference] = [row for part in diff_checkpoints(one, other).parts for row in part.differences]
    assert (difference.name, difference.elements.a, difference.elements.b) == ("2.weight", "0.5", "0.25")
    assert diff_checkpoints(one, twin).same
    file = twin / "shards_rank00001.pt"
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointBroken, match=r"shards_rank00001.pt is altered"):
        diff_checkpoints(one, twin)


def test_an_altered_or_missing_piece_is_broken_and_no_difference(runs, tmp_path):
    [folder] = save_run(tmp_path / "x")
    file = in_pieces(folder, 2) / "shards_rank00001.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointBroken, match=r"shards_rank00001.pt is altered"):
        diff_checkpoints(runs / "a", folder)
    file.unlink()
    old = read_manifest(folder)
    files = {name: record for name, record in old.files.items() if name != file.name}
    (folder / "manifest.json").write_bytes(Manifest(old.step, old.kind, old.saved_ns, files).to_bytes())
    with pytest.raises(CheckpointBroken, match=r"shards_rank00001.pt \(pieces of tensors\) is not in the manifest"):
        diff_checkpoints(runs / "a", folder)


def test_one_part_of_each_side_is_held_at_a_time(runs, monkeypatch):
    alive, most = [], []
    real = reading.Parts.tree

    class Tree(dict):
        """A dict that can be watched."""

    def tree(self, name):
        gc.collect()
        most.append(sum(one() is not None for one in alive))
        result = Tree(real(self, name))
        alive.append(weakref.ref(result))
        return result

    monkeypatch.setattr(reading.Parts, "tree", tree)
    assert not diff_checkpoints(runs / "a", runs / "longer").same
    assert len(most) >= 8
    assert max(most) <= 1  # when one is asked for, that of the other side at most
