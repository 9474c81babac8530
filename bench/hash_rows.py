"""The rows of the groups "hash" (versions of files) and "rows" (versions of tables)."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager

from rows import Row, in_turn, missing

GB = 1e9
BY_SHA256 = ("sha256sum-2", "dirhash", "checksumdir", "model_signing")  # what these are asked for
MD5 = ("dvc",)  # it has no other


@contextmanager
def folder_for(name):
    with tempfile.TemporaryDirectory(prefix=f"detdata-bench-{name}-") as folder:
        yield folder


def call(folder, side, at_once=1):
    return side, "hash_run", {"side": side, "folder": folder, "at_once": at_once}


def against(row_id, what, ours, side, answer):
    """A row of two commands; paired where both ran in the same rounds."""
    spent, cpu = ours.median("wall_s"), ours.median("cpu_s")
    if answer.missing:
        return missing(row_id, what, "s", spent, answer)
    note = f"CPU {cpu:.1f} and {answer.median('cpu_s'):.1f} s"
    if answer.answers[0]["version"]:
        note += f"; {side.partition('-')[0]} {answer.answers[0]['version']}"
    same = len(answer.answers) == len(ours.answers)
    paired = ours.against(answer, "wall_s") if same else None
    note += "" if same else ", one round"
    return Row(row_id, what, "s", spent, answer.median("wall_s"), side, note.strip(), paired=paired)


def trees(run, setting):
    """Hash a few large files, and many small ones; then what costs little once that is done."""
    large, small = setting.hash_large, setting.hash_small
    for name, (files, size), at_once in (("large", large, 1), ("small", small, 2000)):
        what = f"hash {files:,} files of {plain(size)}"
        with folder_for(name) as folder:
            total = run("hash_write", folder=folder, files=files, size=size)["bytes"]
            sides = ("ours", "xxhsum-1", "xxhsum-2", *(("bare",) if name == "small" else ()))
            quick = [call(folder, side, at_once) for side in sides]
            found = in_turn(run, setting.repeat, [*quick, ("inside", "hash_inside", {"folder": folder})])
            slow = [call(folder, side, at_once) for side in ("ours-sha256", *BY_SHA256, *MD5)]
            found |= in_turn(run, 1, slow)
            for side in (*sides[1:], *MD5):
                yield against(f"hash/{name}/{side}", what, found["ours"], side, found[side])
            for side in ("xxhsum-1", "xxhsum-2"):
                inside = f"{what}: a call of hash_dataset"
                yield against(f"hash/{name}/call/{side}", inside, found["inside"], side, found[side])
            for side in BY_SHA256:
                yield against(f"hash/{name}/{side}", f"{what}, sha256", found["ours-sha256"], side, found[side])
            rate = total / GB / found["ours"].median("wall_s")
            memory = max(answer["rss_mib"] for answer in found["ours"].answers)
            yield Row(f"hash/{name}/memory", f"{what}: peak memory", "MiB", memory, note=f"at {rate:.2f} GB/s")
            if name == "small":
                yield from after(run, setting, folder, files)


def after(run, setting, folder, files):
    """Of a tree that is hashed: verify it where nothing changed, and compare its manifest with another."""
    ours = in_turn(run, setting.repeat, [call(folder, "ours-quick")])["ours-quick"]
    what = f"verify --quick of {files:,} unchanged files"
    yield Row("hash/quick", what, "s", ours.median("wall_s"), note=f"CPU {ours.median('cpu_s'):.1f} s")
    run("hash_manifests", folder=folder)
    cases = [("inside", "hash_compare", {"folder": folder}), call(folder, "ours-diff")]
    found = in_turn(run, setting.repeat, cases)
    what = f"load two manifests of {files:,} files and compare them"
    yield Row("hash/compare", what, "s", found["inside"].median("wall_s"))
    yield Row("hash/compare/command", f"{what}: detdata diff", "s", found["ours-diff"].median("wall_s"))
    with folder_for("tenth") as tenth:  # adding all to dvc takes a minute
        run("hash_write", folder=tenth, files=files // 10, size=8192)
        run("hash_run", side="dvc-add", folder=tenth)
        time.sleep(2.5)  # it may have put its own copies there
        run("hash_run", side="ours", folder=tenth)
        found = in_turn(run, setting.repeat, [call(tenth, side) for side in ("ours-quick", "dvc-status")])
        what = f"verify --quick of {files // 10:,} unchanged files"
        yield against("hash/quick/dvc", what, found["ours-quick"], "dvc-status", found["dvc-status"])
    with folder_for("one") as one:
        run("hash_write", folder=one, files=1, size=8192)
        for command in ("ours", "ours-quick"):
            spent = in_turn(run, setting.repeat, [call(one, command)])[command].median("wall_s")
            name = {"ours": "hash", "ours-quick": "verify"}[command]
            yield Row(f"hash/start/{name}", f"detdata {name} of one file: the process's start", "s", spent)


def tables(run, setting):
    """Digests of the rows of a table, in CPU seconds a GB of decoded values."""
    with folder_for("rows") as folder:
        total = run("rows_write", folder=folder, rows=setting.hash_rows)["bytes"]
        sides = ("read", "ordered", "both", "file-ordered", "file-both")
        cases = [(side, "rows_digest", {"side": side, "folder": folder}) for side in sides]
        found = in_turn(run, setting.repeat, cases)
    unit, size = "s a GB", f"{plain(total)} of rows"
    free = found["both"].against(found["ordered"], "s_per_gb", lambda both, ordered: both - ordered)
    free = max(free, 1e-9)  # noise, in a tiny run
    for name, what, spent in (
        ("ordered", "the digest in their order", found["ordered"].median("s_per_gb")),
        ("unordered", "the digest in any order", free),
    ):
        yield Row(f"rows/{name}", f"{size} in memory: {what}", unit, spent, note=f"{1 / spent:.2f} GB/s a core")
    for side, what in (("file-ordered", "the digest in their order"), ("file-both", "both digests")):
        ours, read = found[side], found["read"]
        paired = ours.against(read, "s_per_gb")
        spent, base = ours.median("s_per_gb"), read.median("s_per_gb")
        yield Row(f"rows/{side}", f"{size} in Parquet: {what}", unit, spent, base, "only reading", paired=paired)


def plain(size):
    """1 GiB, 8 KiB; a total in MB."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size % 2**power == 0:
            return f"{size >> power} {unit}"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size} bytes"


GROUPS = {"hash": trees, "rows": tables}
