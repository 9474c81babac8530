"""Cases of dataset versions: files written for the purpose, commands timed on them, and digests of rows in memory.

Run by cases.py, each in a process of its own that has imported next to nothing, so that the peak memory of a command
is the command's. Times of commands are wall seconds, process start included; `cpu_s` counts all their processes.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 4 * 2**20  # bytes that are drawn; files are made of stretches of them
IN_FOLDER = 1000  # files
SIGNING = "import sys, model_signing.hashing as h; print(len(list(h.hash(sys.argv[1]).resource_descriptors())))"


# --- the data ---


def hash_write(folder, files, size):
    """Write `files` files of `size` bytes below folder/data, all different, and leave them in the page cache."""
    block = random.Random(7).randbytes(BLOCK) * 2
    for number in range(files):
        place = Path(folder, "data", f"{number // IN_FOLDER:03}")
        if number % IN_FOLDER == 0:
            place.mkdir(parents=True)
        start = number * 4099 % BLOCK
        with (place / f"{number:07}.bin").open("wb", buffering=0) as file:
            for done in range(0, size, BLOCK):
                file.write(memoryview(block)[start : start + min(BLOCK, size - done)])
    os.sync()  # what is still to be written would be written while others are timed
    time.sleep(2.5)  # younger files are not remembered
    return {"bytes": files * size}


def hash_manifests(folder):
    """Write folder/new.lock.json: folder/data.lock.json with one file in a thousand changed."""
    sys.path.insert(0, str(ROOT))
    from detdata import Manifest

    old = Manifest.load(Path(folder, "data.lock.json"))
    hexes = [hex[::-1] if number % 1000 == 1 else hex for number, hex in enumerate(old.hexes)]
    Manifest.build(old.paths, old.sizes, hexes, old.kinds).save(Path(folder, "new.lock.json"))
    return {"files": len(old)}


# --- commands ---


def each(program, jobs, at_once):
    """A shell command that gives all files to a program that takes names."""
    return ["sh", "-c", f"find data -type f -print0 | xargs -0 -P{jobs} -n{at_once} {program}"]


def ours(*arguments):
    return [sys.executable, "-m", "detdata", *arguments]


HASH = ("hash", "data", "-o", "data.lock.json")

# side: (program that must be there, command, command to run before, untimed)
COMMANDS = {
    "ours": (None, lambda _: ours(*HASH), None),
    "ours-sha256": (None, lambda _: ours(*HASH[:2], "-o", "sha256.lock.json", "-a", "sha256"), None),
    "ours-quick": (None, lambda _: ours("verify", "data.lock.json", "--quick", "--json"), None),
    "ours-diff": (None, lambda _: ours("diff", "data.lock.json", "new.lock.json", "-q"), None),
    "bare": (None, lambda _: [sys.executable, str(Path(__file__).with_name("bare_hash.py")), "data"], None),
    "xxhsum-1": ("xxhsum", lambda n: each("xxhsum -H2", 1, n), None),
    "xxhsum-2": ("xxhsum", lambda n: each("xxhsum -H2", 2, n), None),
    "sha256sum-2": ("sha256sum", lambda n: each("sha256sum", 2, n), None),
    "dirhash": ("dirhash", lambda _: ["dirhash", "data", "-a", "sha256", "-j", "2"], None),
    "checksumdir": ("checksumdir", lambda _: ["checksumdir", "-a", "sha256", "data"], None),
    "model_signing": ("model_signing", lambda _: ["python", "-c", SIGNING, "data"], None),
    "dvc": ("dvc", lambda _: ["dvc", "add", "-q", "--no-commit", "data"], "dvc init -q --no-scm"),
    "dvc-add": ("dvc", lambda _: ["dvc", "add", "-q", "data"], "dvc init -q --no-scm"),
    "dvc-status": ("dvc", lambda _: ["dvc", "status", "-q"], None),
}
ENDS = {"ours-diff": 1}  # exit codes other than 0


def hash_run(side, folder, at_once=1):
    """Run one side's command in `folder`. at_once: files that a program which takes names gets."""
    program, command, before = COMMANDS[side]
    peers = os.environ.get("DETDATA_PEERS", "")
    path = os.pathsep.join(filter(None, (peers, os.environ.get("PATH", os.defpath))))
    found = program and shutil.which(program, path=path)
    if program and not found:
        return {"missing": program}
    line = command(at_once)
    if program and line[0] != "sh":
        line = [str(Path(found).with_name(line[0])), *line[1:]]
    environment = {**os.environ, **_own(folder), "PATH": path}
    if program is None:  # as installed: compiled once, even where this process is told to keep nothing
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(Path(folder, "compiled"))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not Path(folder, "compiled").exists():
            subprocess.run(ours("verify", "none"), cwd=folder, env=environment, capture_output=True, check=False)
            subprocess.run(
                ours("hash", __file__, "-o", "-"), cwd=folder, env=environment, capture_output=True, check=True
            )
    if before:
        subprocess.run(shlex.split(before), cwd=folder, env=environment, capture_output=True, check=True)
    with Path(folder, "out").open("w+b") as out:
        start = time.perf_counter()
        process = subprocess.Popen(line, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode != ENDS.get(side, 0):
        raise SystemExit(f"{shlex.join(line)} ended with {process.returncode}:\n{text[-2000:]}")
    if side == "ours-quick":
        report = json.loads(text)
        if report["trusted"] != report["files"]:
            raise SystemExit(f"{report['trusted']} of {report['files']} files were taken from the cache")
    cpu, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    return {"wall_s": wall, "cpu_s": cpu, "rss_mib": memory, "version": _version(found)}


def hash_inside(folder):
    """Wall and CPU seconds of a call of hash_dataset, without a cache, in a process that has imported detdata."""
    sys.path.insert(0, str(ROOT))
    from detdata import hash_dataset

    hash_dataset(__file__)
    wall, cpu = time.perf_counter(), time.process_time()
    hash_dataset(Path(folder, "data"))
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def _own(folder):
    """Settings that keep every cache within the folder, so that no run meets what an earlier one left."""
    caches = {
        name: str(Path(folder, name.lower()))
        for name in ("XDG_CACHE_HOME", "DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR", "DVC_SYSTEM_CONFIG_DIR")
    }
    return {**caches, "DVC_NO_ANALYTICS": "1"}


def _version(found):
    """The release of a program: of its Python package where it lies in an environment, else what it says itself."""
    if not found:
        return ""
    path = Path(found)
    for info in path.parent.parent.glob(f"lib/python*/site-packages/{path.name}-*.dist-info"):
        return info.name.removesuffix(".dist-info").rpartition("-")[2]
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    words = (said.stdout + said.stderr).split()
    return next((word for word in words if word[:1].isdigit()), "")


def hash_compare(folder):
    """Wall seconds to load two manifests and compare them, in a process that has imported detdata."""
    sys.path.insert(0, str(ROOT))
    from detdata import Manifest

    start = time.perf_counter()
    old, new = (Manifest.load(Path(folder, name)) for name in ("data.lock.json", "new.lock.json"))
    changed = len(old.diff(new).changed)
    wall = time.perf_counter() - start
    if not changed:
        raise SystemExit("the two manifests do not differ")
    return {"wall_s": wall}


# --- rows ---


def rows_write(folder, rows):
    """Write a Parquet table of long texts, lists of int32, ids, floats with nulls and labels: 0.6 kB a row, decoded."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(7)
    letters = draw.integers(97, 123, BLOCK, dtype=np.uint8)
    letters[draw.random(BLOCK) < 0.2] = 32
    starts, lengths = draw.integers(0, BLOCK - 700, rows), draw.integers(30, 640, rows)
    whole = letters.tobytes().decode()
    texts = [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    counts = draw.integers(0, 120, rows)
    edges = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    tokens = pa.ListArray.from_arrays(edges, pa.array(draw.integers(0, 50_000, int(edges[-1]), dtype=np.int32)))
    table = pa.table(
        {
            "text": texts,
            "tokens": tokens,
            "id": np.arange(rows),
            "score": pa.array(draw.random(rows), mask=draw.random(rows) < 0.05),
            "label": draw.integers(0, 10, rows, dtype=np.int16),
            "language": np.array(["en", "de", "fr", "es"])[draw.integers(0, 4, rows)],
        }
    )
    pq.write_table(table, Path(folder, "table.parquet"), compression="zstd")
    return {"bytes": table.nbytes}


def rows_digest(side, folder):
    """CPU seconds a GB (1e9 bytes) of decoded data, one core: of a digest of rows in memory, of a file, of reading.

    The median of three, after one that isn't counted: it is the rate that matters, not the process's first pages.
    """
    import pyarrow as pa

    sys.path.insert(0, str(ROOT))
    from detdata.rows import RowsHasher, hash_rows
    from detdata.rows.reading import read_table

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    files = [("table.parquet", Path(folder, "table.parquet"))]
    schema, batches = read_table(files)
    held = list(batches) if side in {"ordered", "both"} else []
    size = sum(column.nbytes for batch in held or batches for column in batch.columns)
    works = {
        "read": lambda: sum(batch.rows for batch in read_table(files)[1]),
        "file-ordered": lambda: hash_rows(files, unordered=False),
        "file-both": lambda: hash_rows(files),
        "ordered": lambda: _feed(RowsHasher(schema, "xxh3-128", unordered=False), held),
        "both": lambda: _feed(RowsHasher(schema, "xxh3-128"), held),
    }
    spent = []
    for _ in range(4):
        start = time.process_time()
        works[side]()
        spent.append(time.process_time() - start)
    return {"s_per_gb": median(spent[1:]) / size * 1e9, "bytes": size}


def _feed(hasher, batches):
    for batch in batches:
        hasher.update(batch.columns, batch.rows)
    return hasher.version([("table.parquet", hasher.rows)])


CASES = {
    case.__name__: case
    for case in (hash_write, hash_manifests, hash_run, hash_inside, hash_compare, rows_write, rows_digest)
}
