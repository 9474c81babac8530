"""FSDP2 and tensor parallelism: each rank its pieces, and any other layout has the same values to the bit."""

import json
import os
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detdata import Loader, Plan, Shuffle, Topology
from detdata.checkpoint import Checkpointer, SavePolicy, list_checkpoints, sharded
from detdata.checkpoint.manifest import read_manifest
from detdata.checkpoint.saved import read
from detdata.errors import CheckpointBroken, UnknownFormat
from tests.checkpoint.fakes import Box, bits
from tests.checkpoint.ranks import in_ranks

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="forks"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:FSDP2-wrapped module .* returned a view tensor"),
]
NEVER = SavePolicy(latest_every_seconds=None, latest_every_steps=None, on_signal=False, on_exit=False)
N, BATCH = 64, 8
DATA = torch.randn(N, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def parallel(model, size, tp):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if not size:
        return Topology()
    mesh = init_device_mesh("cpu", (size // tp, tp), mesh_dim_names=("dp", "tp"))
    if tp > 1:
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    if size // tp > 1 or tp == 1:
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh["dp"])
    return Topology.from_mesh(mesh)


def build(root, size, *, seed=0, tp=1, **options):
    """A model over `size` ranks of the process group; 0: unsharded, in this process alone."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()
    model.register_buffer("seen", torch.full((2,), float(seed)))
    topology = parallel(model, size, tp)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loader = Loader(DATA, Plan(Shuffle(N, seed=5), BATCH), topology, randomness="off")
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    options = {"timeout_seconds": 30, **options}
    return parts, Checkpointer(root, policy=NEVER, **parts, **options)


def train(parts, checkpointer, stop):
    model, optimizer, losses = parts["model"], parts["optimizer"], []
    for batch in parts["loader"].until(stop):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        checkpointer.step()
        losses.append(loss.item())
    return losses


def whole(value):
    return value.full_tensor() if sharded.is_sharded(value) else value


def full_state(parts):
    """Parameters and moments, gathered: the same on every rank."""
    names = {id(parameter): name for name, parameter in parts["model"].named_parameters()}
    moments = {
        names[id(parameter)]: {key: bits(whole(value)) for key, value in state.items()}
        for parameter, state in parts["optimizer"].state.items()
    }
    return {name: bits(whole(value)) for name, value in parts["model"].state_dict().items()}, moments


def save_at(rank, size, root, stop, tp=1, extra=False):
    parts, checkpointer = build(root, size, tp=tp)
    train(parts, checkpointer, stop)
    if extra:
        checkpointer._run.extra["ema"] = Box({name: value * 0.5 for name, value in parts["model"].state_dict().items()})
    checkpointer.save()
    return full_state(parts)


def load(rank, size, root, stop, tp=1, accept=("world_size", "topology")):
    parts, checkpointer = build(root, size, seed=7, tp=tp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        progress = checkpointer.resume(accept=accept)
    state = full_state(parts)
    return progress.global_step, state, train(parts, checkpointer, stop), full_state(parts)


def load_alone(root, stop):
    return load(0, 0, root, stop)


def test_pieces_are_written_by_each_rank_and_every_layout_reads_the_same_bits(tmp_path):
    root = tmp_path / "root"
    saved = in_ranks(2, save_at, tmp_path / "a", root, 3)
    assert saved[0] == saved[1]
    [entry] = list_checkpoints(root)
    assert entry.ok
    names = {path.name for path in entry.path.iterdir()}
    assert {"shards_rank00000.pt", "shards_rank00001.pt", "shards.json"} <= names
    meta = json.loads((entry.path / "meta.json").read_text())
    assert "Shard" in str(meta["sharding"])

    same = in_ranks(2, load, tmp_path / "b", root, 6, 1, ())
    alone = load_alone(root, 6)
    four = in_ranks(4, load, tmp_path / "c", root, 6)

    for step, state, _, _ in [*same, alone, *four]:
        assert step == 3
        assert state == saved[0]
    assert same[0][3] == same[1][3]
    together = [sum(rank[2][step] for rank in same) / 2 for step in range(3)]
    in_fours = [sum(rank[2][step] for rank in four) / 4 for step in range(3)]
    for losses in (together, in_fours):  # sums of float64 in another order
        assert losses == pytest.approx(alone[2], rel=1e-12)


def test_an_unsharded_run_goes_on_sharded_and_one_sharded_in_four_on_two(tmp_path):
    parts, checkpointer = build(tmp_path / "one", 0)
    train(parts, checkpointer, 3)
    checkpointer.save()
    expected = full_state(parts)
    for _, state, _, _ in in_ranks(2, load, tmp_path / "a", tmp_path / "one", 4):
        assert state == expected

    saved = in_ranks(4, save_at, tmp_path / "b", tmp_path / "four", 3)
    for _, state, _, _ in in_ranks(2, load, tmp_path / "c", tmp_path / "four", 4):
        assert state == saved[0]


def test_two_ranks_go_on_as_if_never_stopped(tmp_path):
    straight = in_ranks(2, straight_to, tmp_path / "a", tmp_path / "unused", 8)
    in_ranks(2, save_at, tmp_path / "b", tmp_path / "root", 5)
    resumed = in_ranks(2, load, tmp_path / "c", tmp_path / "root", 8, 1, ())

    for rank in range(2):
        assert resumed[rank][2] == straight[rank][0][5:]
        assert resumed[rank][3] == straight[rank][1]


def straight_to(rank, size, root, stop):
    parts, checkpointer = build(root, size)
    return train(parts, checkpointer, stop), full_state(parts)


def test_tensor_parallel_and_two_dimensions_are_read_by_any_other_layout(tmp_path):
    saved = in_ranks(2, save_at, tmp_path / "a", tmp_path / "tp", 2, 2)
    assert load_alone(tmp_path / "tp", 2)[1] == saved[0]

    both = in_ranks(4, save_at, tmp_path / "b", tmp_path / "both", 2, 2)
    assert load_alone(tmp_path / "both", 2)[1] == both[0]
    for _, state, _, _ in in_ranks(2, load, tmp_path / "c", tmp_path / "both", 2):
        assert state == both[0]


def damaged(rank, size, root):
    _, checkpointer = build(root, size, seed=7)
    with pytest.raises(CheckpointBroken) as caught:
        checkpointer.resume()
    return str(caught.value)


def test_a_flipped_bit_in_one_ranks_pieces_stops_every_rank(tmp_path):
    root = tmp_path / "root"
    in_ranks(2, save_at, tmp_path / "a", root, 1)
    path = root / "ckpt_latest" / "shards_rank00001.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    for message in in_ranks(2, damaged, tmp_path / "b", root):
        assert "shards_rank00001.pt is altered" in message


def test_extra_parts_may_be_sharded_and_tools_see_whole_tensors(tmp_path):
    root = tmp_path / "root"
    saved = in_ranks(2, save_at, tmp_path / "a", root, 1, 1, True)

    path = root / "ckpt_latest"
    trees = read(path, read_manifest(path)).trees
    assert {name: bits(value) for name, value in trees["model.pt"].items()} == saved[0][0]
    half = trees["extra.pt"]["ema"]["value"]
    assert all(bits(half[name]) == bits(value * 0.5) for name, value in trees["model.pt"].items())


@st.composite
def tilings(draw):
    """A shape, and boxes that tile it, cut at random."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=0, max_size=3)))
    found = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6)) if shape else 0):
        offset, size = found.pop(draw(st.integers(0, len(found) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        cut = draw(st.integers(0, size[axis]))
        for start, length in ((0, cut), (cut, size[axis] - cut)):
            if length:
                at, long = list(offset), list(size)
                at[axis], long[axis] = at[axis] + start, length
                found.append((tuple(at), tuple(long)))
    return shape, draw(st.permutations(found))


@given(tilings(), st.data())
def test_any_box_is_cut_out_of_any_tiling_and_a_missing_piece_is_named(tiling, data):
    shape, tiles = tiling
    tensor = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    pieces = [
        sharded.Piece("model.pt#0", (at, size), tensor[tuple(slice(a, a + s) for a, s in zip(at, size, strict=True))])
        for at, size in tiles
    ]
    mark = {sharded.MARK: "model.pt#0", "shape": list(shape), "dtype": torch.float64}
    tree = {"w": mark, "other": [1, torch.ones(2)]}

    placed = sharded.place("model.pt", tree, None, {"model.pt#0": pieces})

    assert bits(placed["w"]) == bits(tensor)
    assert bits(placed["other"]) == bits([1, torch.ones(2)])
    lost = data.draw(st.integers(0, len(pieces) - 1))
    with pytest.raises(UnknownFormat, match=r"model\.pt#0: the pieces in the checkpoint do not make up"):
        sharded.place("model.pt", tree, None, {"model.pt#0": pieces[:lost] + pieces[lost + 1 :]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
)


@given(
    st.dictionaries(st.sampled_from(["format", "pieces", "x"]), json_values | st.dictionaries(st.text(), json_values))
)
def test_an_index_from_anywhere_is_read_or_refused(record):
    try:
        sharded.Index.from_record({"format": sharded.FORMAT, **record})
    except UnknownFormat:
        return


def test_an_index_comes_back():
    index = sharded.Index({"model.pt#0": ((0, ((0, 0), (2, 3))), (1, ((2, 0), (1, 3))))})
    assert sharded.Index.from_record(json.loads(json.dumps(index.to_record()))) == index
