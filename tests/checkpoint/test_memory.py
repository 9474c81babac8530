"""A file of tensors in memory: torch.load's own tree, in the memory that was read, whatever the file is like."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from detdata.checkpoint import memory
from detdata.checkpoint.memory import LARGE, hold
from detdata.checkpoint.saved import Damaged, read
from detdata.checkpoint.tensors import Unreadable, load_tree, tree_writer
from tests.checkpoint.fakes import bits, resumed_step, save_steps, stamped

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn,
]  # fmt: skip


def large(count=1, dtype=torch.float32):
    """Tensors of more than LARGE bytes in which no stretch is like another."""
    size = LARGE // dtype.itemsize + 5
    words = torch.arange(count * size * dtype.itemsize) * 2654435761 % 251 % (2 if dtype == torch.bool else 256)
    return [row.clone() for row in words.to(torch.uint8).view(dtype).view(count, size)]


def write(path, tree):
    with path.open("wb") as file:
        tree_writer(tree)(file)
    return path


def digest(path):
    return f"xxh3-128:{xxhash.xxh3_128(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("lent", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, monkeypatch, dtype, lent):
    if not lent:
        monkeypatch.setattr(memory._Reader, "place", lambda self, storage, _: storage)
    [tensor] = large(dtype=dtype)
    tree = {"large": tensor, "small": tensor[:3].clone(), "none": tensor[:0].clone(), "step": torch.tensor(7.0)}

    assert bits(hold(write(tmp_path / "f", tree)).load()) == bits(tree)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 100, LARGE // 4 - 1, LARGE // 4, LARGE // 4 + 1, 3 * LARGE]), max_size=8))
def test_any_mixture_of_sizes_comes_back(tmp_path_factory, sizes):
    tree = [torch.arange(float(size)) + index for index, size in enumerate(sizes)]
    path = write(tmp_path_factory.mktemp("mixture") / "f", tree)

    held = hold(path)

    assert (held.record.size, held.record.digest) == (path.stat().st_size, digest(path))
    assert held.bytes() == path.read_bytes()
    assert bits(held.load()) == bits(tree)


def test_views_and_shared_memory_stay_what_they_are(tmp_path):
    base = torch.arange(float(LARGE)).view(-1, 64)
    path = write(tmp_path / "f", {"base": base, "view": base.t()[3:], "tied": base, "cut": base[5:7]})

    tree = hold(path).load()

    assert bits(tree) == bits(torch.load(path, weights_only=True))
    assert tree["view"].stride() == base.t()[3:].stride()
    tree["base"].zero_()
    assert not tree["view"].any()
    assert not tree["cut"].any()
    assert tree["tied"].data_ptr() == tree["base"].data_ptr()


def test_large_tensors_live_in_the_memory_that_was_read_and_small_ones_do_not_keep_it(tmp_path):
    one, other = large(2)
    held = hold(write(tmp_path / "f", {"one": one, "small": one[:4].clone(), "other": other}))
    blocks = {block.data_ptr() for block in held._blocks}

    tree = held.load()

    assert tree["one"].data_ptr() in blocks
    assert tree["other"].data_ptr() in blocks
    assert tree["small"].data_ptr() not in blocks
    for name in ("one", "other"):
        assert tree[name].untyped_storage().nbytes() == tree[name].nbytes
        assert tree[name].data_ptr() % 64 == 0


def test_tensors_are_the_processs_own_whatever_happens_to_the_file(tmp_path):
    one, other = large(2)
    path = write(tmp_path / "f", {"one": one, "other": other})
    tree = hold(path).load()

    path.write_bytes(b"\0" * path.stat().st_size)
    path.unlink()

    assert torch.equal(tree["one"], one)
    tree["one"].add_(1)
    assert torch.equal(tree["one"], one + 1)
    assert torch.equal(tree["other"], other)


def test_where_torch_reads_another_way_a_copy_is_made(tmp_path, monkeypatch):
    tree = {"one": large()[0]}
    path = write(tmp_path / "f", tree)
    load, calls = torch.load, []

    def once_refused(*args, **options):
        calls.append(1)
        result = load(*args, **options)
        if len(calls) == 1:
            raise RuntimeError("the record is not what its checksum says")
        return result

    monkeypatch.setattr(memory._Reader, "place", lambda self, storage, _: storage)
    monkeypatch.setattr(torch, "load", once_refused)

    assert bits(hold(path).load()) == bits(tree)
    assert len(calls) == 2


@pytest.mark.parametrize("cut", [0, 1, 100, LARGE, 2 * LARGE])
def test_cut_files_are_told_by_their_record(tmp_path, cut):
    path = write(tmp_path / "f", large(2))
    path.write_bytes(path.read_bytes()[:cut])

    held = hold(path)

    assert (held.record.size, held.record.digest) == (cut, digest(path))
    with pytest.raises(Unreadable, match="f is no plain archive"):
        load_tree("f", held)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_damaged_archive_is_held_as_it_is_and_costs_no_more_memory_than_its_size(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("damaged") / "f", {"one": large()[0], "two": torch.zeros(3)})
    content = bytearray(path.read_bytes())
    places = st.integers(0, 800) | st.integers(len(content) - 1500, len(content) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=12)):
        content[place] = data.draw(st.sampled_from([0, 1, 127, 255]))
    path.write_bytes(content)

    held = hold(path)

    assert held.bytes() == content
    assert held.record.digest == digest(path)
    assert sum(block.nbytes for block in held._blocks) == len(content)


def test_members_that_share_bytes_are_never_lent(tmp_path):
    path = tmp_path / "f"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", bytes(LARGE))
        again = archive.getinfo("archive/data/0")
        archive.filelist.append(again)
    with path.open("rb", buffering=0) as file:
        assert memory._large_members(file, path.stat().st_size) == []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", os.urandom(LARGE))
    with path.open("rb", buffering=0) as file:
        assert memory._large_members(file, path.stat().st_size) is None  # not what torch.save writes


def test_a_file_that_grows_or_shrinks_under_the_reader_is_not_what_was_written(tmp_path, monkeypatch):
    path = write(tmp_path / "f", large(2))
    content, fill = path.read_bytes(), memory.read_hashed

    for changed in (content + b"x", content[:-5]):
        path.write_bytes(content)

        def change(*arguments, changed=changed):
            path.write_bytes(changed)
            return fill(*arguments)

        monkeypatch.setattr(memory, "read_hashed", change)
        assert hold(path).record.size == len(changed)


def test_no_memory_is_no_broken_checkpoint(tmp_path, monkeypatch):
    save_steps(tmp_path, [1, 2])

    def refuse(size):
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(torch, "UntypedStorage", refuse)
    with pytest.raises(MemoryError, match="can't allocate memory"):
        resumed_step(tmp_path)


@pytest.mark.parametrize("member", ["model.pt", "rng_rank00000.pt", "meta.json", "rng_rank00001.pt"])
def test_nothing_is_loaded_of_a_broken_checkpoint_and_all_that_is_wrong_is_told(tmp_path, monkeypatch, member):
    from detdata.checkpoint.store import Stage, find
    from detdata.checkpoint.tensors import tree_writer

    stage = Stage(tmp_path)
    for name in ("model.pt", "rng_rank00000.pt", "rng_rank00001.pt"):
        stage.write(name, tree_writer({"x": stamped(1).state_dict()}))
    for name in ("progress.json", "data.json", "meta.json"):
        stage.write(name, lambda file: file.write(b"{}"))
    path = stage.publish("periodic", 1)
    for name in {member, "data.json"}:
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)
    monkeypatch.setattr(torch, "load", lambda *args, **options: pytest.fail("loaded"))

    with pytest.raises(Damaged) as caught:
        read(path, find(tmp_path)[0].manifest, 0)

    assert [problem.split()[0] for problem in caught.value.problems] == sorted({member, "data.json"})
    assert all("is altered" in problem for problem in caught.value.problems)


PEAK = """
import resource, sys
from pathlib import Path
import torch
from detdata.checkpoint.memory import hold
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
torch.load(sys.argv[2], weights_only=True), hold(Path(sys.argv[2])).load()  # what else that loads
before = peak()
tree = hold(Path(sys.argv[1])).load()
print(peak() - before, sum(tensor.nbytes for tensor in tree))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak memory of a process")
def test_loading_takes_the_memory_of_one_copy(tmp_path):
    write(tmp_path / "large", [torch.ones(2**20) * index for index in range(16)])
    write(tmp_path / "small", [torch.ones(3)])

    result = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "large"), str(tmp_path / "small")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )

    grown, size = map(int, result.stdout.split())
    assert size == 2**26
    assert grown < 1.1 * size


def test_the_reader_is_a_file_like_any_other(tmp_path):
    path = write(tmp_path / "f", {"one": large()[0]})
    content = path.read_bytes()
    reader = memory._Reader(hold(path), lend=False)

    assert reader.read() == content
    assert reader.read(1) == b""
    assert reader.seek(-3, io.SEEK_END) == len(content) - 3
    assert reader.read(9) == content[-3:]
    reader.seek(700)
    reader.seek(20, io.SEEK_CUR)
    assert reader.read(LARGE) == content[720 : 720 + LARGE]
    with pytest.raises(ValueError, match="cannot seek to -1"):
        reader.seek(-1)
