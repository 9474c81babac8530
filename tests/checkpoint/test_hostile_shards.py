"""Descriptions of pieces that somebody planted under a manifest that fits: named, in bounded memory, nothing loaded."""

import json
import warnings
import weakref

import pytest
import torch

from detdata import CheckpointBroken, Checkpointer, SavePolicy, UnknownFormat
from detdata.checkpoint import saved, sharded
from detdata.checkpoint.files import hash_file
from detdata.checkpoint.manifest import Manifest, read_manifest
from detdata.checkpoint.tensor_table import tensor_rows
from detdata.checkpoint.tensors import load_tree
from tests.checkpoint.fakes import bits

NEVER = SavePolicy(latest_every_seconds=None, on_signal=False, on_exit=False)
WEIGHT = torch.arange(12.0).reshape(4, 3)


def start(root):
    torch.manual_seed(1)
    return Checkpointer(root, model=torch.nn.Linear(3, 4, bias=False), policy=NEVER)


def plant(root, *, mark=None, files=None, index=None):
    """A checkpoint whose weight lies in pieces in the files of two ranks, with what is to be wrong in it."""
    folder = start(root).save()
    mark = {"detdata.sharded": "model.pt#0", "shape": [4, 3], "dtype": torch.float32} if mark is None else mark
    torch.save({"weight": mark}, folder / "model.pt")
    files = [[("model.pt#0", [0, 0], WEIGHT[:2])], [("model.pt#0", [2, 0], WEIGHT[2:])]] if files is None else files
    for rank, pieces in enumerate(files):
        tree = pieces if isinstance(pieces, dict) else {"format": "detdata.shards/1", "pieces": pieces}
        torch.save(tree, folder / f"shards_rank{rank:05d}.pt")
    if index is None:
        index = {"model.pt#0": [[0, [0, 0], [2, 3]], [1, [2, 0], [2, 3]]]}
    record = {"format": "detdata.shards/1", "pieces": index}
    (folder / "shards.json").write_text(json.dumps(record))
    manifest = read_manifest(folder)
    names = sorted(path.name for path in folder.iterdir() if path.name != "manifest.json")
    sealed = Manifest(
        manifest.step, manifest.kind, manifest.saved_ns, {name: hash_file(folder / name) for name in names}
    )
    (folder / "manifest.json").write_bytes(sealed.to_bytes())
    return folder


def test_pieces_that_fit_are_put_together(tmp_path):
    plant(tmp_path)
    checkpointer = start(tmp_path)
    checkpointer.resume()
    assert bits(checkpointer._run.model.weight.detach()) == bits(WEIGHT)


HUGE = 2**40


def marked(**changes):
    return {"detdata.sharded": "model.pt#0", "shape": [4, 3], "dtype": torch.float32, **changes}


def two(first, second):
    return [[("model.pt#0", *first)], [("model.pt#0", *second)]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": two(([0, 0], WEIGHT[:2]), ([1, 0], WEIGHT[2:]))},  # one row twice, and one in no piece
        {"files": two(([0, 0], WEIGHT[:2]), ([0, 0], WEIGHT[2:]))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2, 0], WEIGHT[2:, :2]))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2, 0], WEIGHT[2:].double()))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2], WEIGHT[2:]))},
        {"files": two(([0, 0], WEIGHT[:2]), ([-2, 0], WEIGHT[2:]))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2, 0], WEIGHT[2:].to_sparse()))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2, 0], "text"))},
        {"files": two(([0, 0], WEIGHT[:2]), ([2.0, 0], WEIGHT[2:]))},
        {"files": [{"format": "detdata.shards/1"}, []]},
        {"files": [{"format": "other", "pieces": []}, []]},
        {"files": [[("model.pt#0", [0, 0])], []]},
        {"files": [[("model.pt#0", [0, 0], WEIGHT[:2])]]},  # a rank's file is missing
        {"index": {}},
        {"index": {"model.pt#0": [[0, [0, 0], [2, 3]]]}},
        {"index": {"model.pt#0": [[7, [0, 0], [4, 3]]]}},
        {"index": {"model.pt#0": [[0, [-1, 0], [2, 3]]]}},
        {"index": {"model.pt#0": [[10**30, [0, 0], [2, 3]]]}},
        {"index": [1]},
        {"mark": marked(shape=[HUGE, HUGE])},
        {"mark": marked(shape=[HUGE, 3])},
        {"mark": marked(shape=[-4, 3])},
        {"mark": marked(shape="text")},
        {"mark": marked(shape=[4.0, 3])},
        {"mark": marked(dtype="float32")},
        {"mark": marked(more=1)},
        {"mark": {"detdata.sharded": 5}},
        {"mark": {"detdata.sharded": ["model.pt#0"], "shape": [4, 3], "dtype": torch.float32}},
        {"mark": marked(**{"detdata.sharded": "model.pt#1"})},
    ],
)
def test_what_does_not_make_up_the_tensor_is_a_broken_checkpoint(tmp_path, wrong):
    folder = plant(tmp_path, **wrong)
    checkpointer = start(tmp_path)
    before = bits(checkpointer._run.model.weight.detach())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CheckpointBroken):
            checkpointer.resume()
        with pytest.raises((CheckpointBroken, UnknownFormat)):
            list(tensor_rows(folder))

    assert bits(checkpointer._run.model.weight.detach()) == before


def test_one_file_of_pieces_at_a_time_and_of_it_what_is_wanted(tmp_path, monkeypatch):
    """Every rank would else hold all files at once where rows become columns."""
    many = 32
    rows = torch.arange(float(many * 1000)).reshape(many, 1000)
    files = [[("model.pt#0", [rank, 0], rows[rank : rank + 1].clone())] for rank in range(many)]
    index = {"model.pt#0": [[rank, [rank, 0], [1, 1000]] for rank in range(many)]}
    folder = plant(tmp_path, mark=marked(shape=[many, 1000]), files=files, index=index)
    monkeypatch.setattr(sharded, "boxes", lambda target: [((0, 7), (many, 1))])
    alive, loads = [], []

    def noted(name, held):
        tree = load_tree(name, held)
        if name.startswith("shards"):
            loads.append(name)
            alive.append(weakref.ref(tree["pieces"][0][2].untyped_storage()))
            assert sum(one() is not None for one in alive[:-2]) == 0
        return tree

    monkeypatch.setattr(saved, "load_tree", noted)
    monkeypatch.setattr(saved, "place", lambda name, tree, like, pieces: pieces)
    found = saved.read(folder, read_manifest(folder), like=lambda part, path: rows)

    assert len(loads) == many
    pieces = found.trees["model.pt"]["model.pt#0"]
    assert [one.tensor.tolist() for one in pieces] == [[[row[7]]] for row in rows.tolist()]
    assert all(one.tensor.untyped_storage().nbytes() == 4 for one in pieces)
