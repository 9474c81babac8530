"""Damage to what was published is found, named and passed over."""

import json
import re
import warnings

import pytest
import torch

from detdata.checkpoint import Checkpointer, list_checkpoints, verify_checkpoint
from detdata.checkpoint.manifest import FORMAT, Manifest, ManifestError, parse_manifest
from detdata.errors import CheckpointBroken, UnknownFormat
from detdata.records import canonical_json, digest
from tests.checkpoint.fakes import FakeLoader, resumed_step, save_steps, stamped

MEMBERS = ["manifest.json", "model.pt", "rng_rank00000.pt", "progress.json", "data.json", "meta.json"]


def flip(path, place, bit=0):
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


DAMAGE = {
    "deleted": lambda path: path.unlink(),
    "0 bytes": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "last byte missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "one bit flipped": lambda path: flip(path, path.stat().st_size // 2),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_o_ci2_a_damaged_newest_is_passed_over_with_a_warning_that_says_why(tmp_path, damage):
    save_steps(tmp_path, [1, 2])
    for member in MEMBERS:
        [newest] = save_steps(tmp_path, [3])
        assert {path.name for path in newest.iterdir()} == set(MEMBERS)
        DAMAGE[damage](newest / member)

        with pytest.warns(UserWarning, match=f"ckpt_step_3: .*{re.escape(member)}"):
            assert resumed_step(tmp_path) == 2
        with pytest.raises(CheckpointBroken, match=re.escape(member)):
            resumed_step(tmp_path, strict=True)
        report = verify_checkpoint(newest)
        assert not report.ok
        assert any(member in problem for problem in report.problems)


def test_o_ci2_all_broken_is_one_error_that_lists_all(tmp_path):
    paths = save_steps(tmp_path, [1, 2, 3])
    for path in paths:
        (path / "model.pt").unlink()

    with pytest.raises(CheckpointBroken) as caught:
        resumed_step(tmp_path)

    assert set(caught.value.broken) == {str(path) for path in paths}
    assert all(whys == ["model.pt is missing"] for whys in caught.value.broken.values())


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path):
    [path] = save_steps(tmp_path, [1])
    good = (path / "manifest.json").read_bytes()
    for place in range(len(good)):
        for bit in range(8):
            data = bytearray(good)
            data[place] ^= 1 << bit
            with pytest.raises(ManifestError):
                parse_manifest(bytes(data))
    parse_manifest(good)


def test_extra_files_links_and_folders_are_problems(tmp_path):
    [path] = save_steps(tmp_path / "root", [1])
    (path / "stray").mkdir()
    assert verify_checkpoint(path).problems == ("stray is not part of the checkpoint",)

    (path / "stray").rmdir()
    (path / "model.pt").rename(tmp_path / "model.pt")
    (path / "model.pt").symlink_to(tmp_path / "model.pt")
    assert not verify_checkpoint(path).ok


def test_a_folder_named_for_another_step_is_a_problem(tmp_path):
    [path] = save_steps(tmp_path, [1])

    assert "named for step 9" in str(verify_checkpoint(path.rename(tmp_path / "ckpt_step_9")))


def rewrite(path, **changes):
    record = json.loads((path / "manifest.json").read_bytes())
    record.update(changes)
    record.pop("digest")
    record["digest"] = digest(canonical_json(record))
    (path / "manifest.json").write_bytes(canonical_json(record))


@pytest.mark.parametrize(
    "name", ["../model.pt", "a/b", "/etc/passwd", "..", "", "manifest.json", "a\\b", ".hidden", "x" * 200]
)
def test_a_manifest_that_names_a_file_outside_is_refused(tmp_path, name):
    [path] = save_steps(tmp_path, [1])
    rewrite(path, files={name: {"size": 0, "digest": digest(b"")}})

    assert "not a plain file name" in verify_checkpoint(path).problems[0]


def test_a_huge_or_deep_manifest_is_refused_without_reading_it_all(tmp_path):
    [path] = save_steps(tmp_path, [1])
    (path / "manifest.json").write_bytes(b" " * (1 << 25))
    assert "more than" in verify_checkpoint(path).problems[0]

    (path / "manifest.json").write_bytes(b"[" * 100_000)
    assert not verify_checkpoint(path).ok


def test_an_unknown_format_is_named_and_never_passed_over(tmp_path):
    *_, path = save_steps(tmp_path, [1, 2])
    rewrite(path, format="detdata.checkpoint/2")

    assert "detdata.checkpoint/2" in list_checkpoints(tmp_path)[0].problems[0]
    with pytest.raises(UnknownFormat, match=r"detdata\.checkpoint/2.*reads 'detdata.checkpoint/1'"):
        resumed_step(tmp_path)


def test_a_manifest_is_read_back_as_it_was_written():
    manifest = Manifest(3, "latest", 5, {})

    assert parse_manifest(manifest.to_bytes()) == manifest
    assert json.loads(manifest.to_bytes())["format"] == FORMAT


class Planted:
    ran = False

    def __reduce__(self):
        return (_run, ())


def _run():
    Planted.ran = True


def test_planted_code_is_refused_even_with_valid_checksums_and_not_run(tmp_path):
    from detdata.checkpoint.files import hash_file

    *_, path = save_steps(tmp_path, [1, 2])
    torch.save({"weight": Planted()}, path / "model.pt")
    files = json.loads((path / "manifest.json").read_bytes())["files"]
    rewrite(path, files={**files, "model.pt": hash_file(path / "model.pt").to_dict()})
    assert verify_checkpoint(path).ok

    with pytest.warns(UserWarning, match=r"model.pt holds objects that only running code could rebuild"):
        assert resumed_step(tmp_path) == 1
    assert not Planted.ran


def test_nothing_published_is_none_and_a_given_step_never_falls_back(tmp_path):
    assert resumed_step(tmp_path / "absent") is None
    assert resumed_step(tmp_path) is None
    first, _ = save_steps(tmp_path, [1, 2])
    checkpointer = Checkpointer(tmp_path, model=stamped(0), loader=FakeLoader(batch_size=1))

    with pytest.raises(FileNotFoundError, match=r"step 7 .*\[1, 2\]"):
        checkpointer.resume(step=7)
    assert checkpointer.resume(step=1).global_step == 1
    (first / "data.json").unlink()
    with pytest.raises(CheckpointBroken, match=r"data\.json"):
        checkpointer.resume(step=1)


def test_listing_is_newest_first_and_says_what_is_wrong(tmp_path):
    save_steps(tmp_path, [9, 10, 100])
    (tmp_path / "ckpt_step_10" / "model.pt").unlink()
    (tmp_path / "ckpt_step_010").mkdir()
    (tmp_path / "notes").mkdir()

    entries = list_checkpoints(tmp_path)

    assert [(entry.step, entry.kind, entry.ok) for entry in entries] == [
        (100, "periodic", True),
        (10, "periodic", False),
        (9, "periodic", True),
    ]
    assert entries[1].problems == ("model.pt is missing",)
    assert list_checkpoints(tmp_path / "absent") == []


def test_a_report_speaks_to_people_and_machines(tmp_path):
    [path] = save_steps(tmp_path, [1])
    report = verify_checkpoint(path)
    assert str(report).endswith("whole")
    assert json.loads(json.dumps(report.to_dict()))["ok"] is True

    (path / "meta.json").unlink()
    report = verify_checkpoint(path)
    assert "meta.json is missing" in str(report)
    assert report.to_dict()["problems"] == ["meta.json is missing"]
    with pytest.raises(FileNotFoundError):
        verify_checkpoint(tmp_path / "absent")


def test_a_whole_checkpoint_resumes_without_a_warning(tmp_path):
    save_steps(tmp_path, [1])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resumed_step(tmp_path) == 1
