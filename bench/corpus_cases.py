"""Corpora beside their peers: the first row after a resume, whole passes through a loader, random rows, an index.

Each side reads rows {"id": int, "text": some 480 bytes}, and every answer is checked: a wrong row ends the case.
"""

from __future__ import annotations

import importlib.util
import io
import json
import resource
import tarfile
import time
from pathlib import Path
from statistics import median

FILES = 8
GROUP = 10_000  # rows of a row group
BATCH = 1000  # rows of a record batch
WARM = 12  # calls for 512 random rows, until nearly all batches have been seen once
LOADED = 64  # rows of a batch of a loader
WORDS = 4000
# side: (package, format it reads)
SIDES = {
    "ours-jsonl": (None, "jsonl"),
    "ours-parquet": (None, "parquet"),
    "ours-arrow": (None, "arrow"),
    "ours-tar": (None, "tar"),
    "pyarrow-parquet": (None, "parquet"),
    "pyarrow-arrow": (None, "arrow"),
    "pyarrow_same-arrow": (None, "arrow"),
    "json-jsonl": (None, "jsonl"),
    "datasets-jsonl": ("datasets", "jsonl"),
    "datasets-parquet": ("datasets", "parquet"),
    "datasets-arrow": ("datasets", "disk"),
    "grain-parquet": ("grain", "parquet"),
    "mosaic": ("streaming", "mds"),
    "litdata": ("litdata", "lit"),
    "webdataset-tar": ("webdataset", "tar"),
}


def lacking(side):
    package = SIDES[side][0]
    return {"missing": package} if package and importlib.util.find_spec(package) is None else None


def rows_of(first, last):
    """The rows first … last - 1: text whose words depend on the number."""
    words = [f"w{number * 2654435761 % 99991:x}" for number in range(WORDS)]
    for i in range(first, last):
        begin = i * 7919 % (WORDS - 90)
        yield {"id": i, "text": " ".join(words[begin : begin + 80 + i % 9])}


def files_in(folder, form):
    return sorted(str(path) for path in Path(folder, form).iterdir() if not path.name.endswith("-index"))


def corpus_write(form, folder, rows):
    """Write the rows in one format, 8 files; False where the package for it isn't there."""
    target = Path(folder, form)
    if form == "disk":
        if importlib.util.find_spec("datasets") is None:
            return {"missing": "datasets"}
        import datasets
        import pyarrow as pa

        parts = [pa.ipc.open_file(pa.memory_map(path)).read_all() for path in files_in(folder, "arrow")]
        datasets.Dataset(datasets.table.InMemoryTable(pa.concat_tables(parts))).save_to_disk(str(target))
        return {"written": True}
    if form in ("mds", "lit"):
        return write_peers(form, str(target), rows)
    target.mkdir()
    each = rows // FILES
    for number in range(FILES):
        part = rows_of(number * each, (number + 1) * each)
        WRITERS[form](target / f"{number:02d}.{form}", part)
    if form != "tar":  # as `detdata index` does; its headers are walked when it is opened otherwise
        from detdata import index_corpus

        index_corpus(str(target), index="beside")
    return {"written": True}


def write_jsonl(path, rows):
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_parquet(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=GROUP, compression="zstd")


def write_arrow(path, rows):
    import pyarrow as pa

    table = pa.Table.from_pylist(list(rows))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH)


def write_tar(path, rows):
    with tarfile.open(path, "w") as file:
        for row in rows:
            data = row["text"].encode()
            member = tarfile.TarInfo(f"{row['id']:08d}.txt")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


WRITERS = {"jsonl": write_jsonl, "parquet": write_parquet, "arrow": write_arrow, "tar": write_tar}


def write_peers(form, target, rows):
    package = {"mds": "streaming", "lit": "litdata"}[form]
    if importlib.util.find_spec(package) is None:
        return {"missing": package}
    if form == "mds":
        from streaming import MDSWriter

        with MDSWriter(out=target, columns={"id": "int", "text": "str"}, size_limit=1 << 26) as writer:
            for row in rows_of(0, rows):
                writer.write(row)
    else:
        from litdata.streaming.writer import BinaryWriter

        Path(target).mkdir()
        writer = BinaryWriter(target, chunk_bytes=1 << 26)
        for number, row in enumerate(rows_of(0, rows)):
            writer[number] = row
        writer.done()
        writer.merge()
    return {"written": True}


# --- the first row after a resume ---


def corpus_state(side, folder, at):
    """Read up to row `at` and keep the side's own state in a file, where it has one that must be earned so."""
    if lacking(side) or not side.startswith("datasets"):
        return lacking(side) or {}
    stream = hf_stream(side, folder)
    for number, _ in enumerate(stream, 1):
        if number == at:
            break
    Path(folder, f"{side}.state").write_text(json.dumps(stream.state_dict()), encoding="utf-8")
    return {}


def hf_stream(side, folder):
    import datasets

    datasets.disable_progress_bars()
    form = SIDES[side][1]
    if form == "disk":
        return datasets.Dataset.load_from_disk(str(Path(folder, "disk"))).to_iterable_dataset(num_shards=FILES)
    builder = {"jsonl": "json"}.get(form, form)
    cache = str(Path(folder, "hf-cache"))
    return datasets.load_dataset(
        builder, data_files=files_in(folder, form), split="train", streaming=True, cache_dir=cache
    )


def corpus_first(side, folder, at):
    """CPU seconds from nothing but imports to row `at`."""
    if lacking(side):
        return lacking(side)
    prepare(side)
    begin = time.process_time(), time.perf_counter()
    row = FIRST[side.partition("-")[0]](side, folder, at)
    spent = time.process_time() - begin[0], time.perf_counter() - begin[1]
    if int(row.get("id", row.get("__key__"))) != at:
        raise SystemExit(f"{side}: row {row['id']} came, {at} was asked for")
    return {"cpu_s": spent[0], "wall_s": spent[1]}


def prepare(side):
    package = SIDES[side][0]
    if package:
        __import__(package)
    if side.startswith("ours"):
        import detdata

        detdata.open_corpus  # noqa: B018  loads it
        from detdata.corpora.formats import format_named

        format_named(SIDES[side][1])
        if SIDES[side][1] in ("arrow", "parquet"):
            importlib.import_module("pyarrow.parquet")


def first_ours(side, folder, at):
    from detdata import open_corpus

    return next(open_corpus(files_in(folder, SIDES[side][1])).read(at))


def first_datasets(side, folder, at):
    stream = hf_stream(side, folder)
    state = Path(folder, f"{side}.state")
    if at and state.exists():
        stream.load_state_dict(json.loads(state.read_text(encoding="utf-8")))
    return next(iter(stream))


def first_mosaic(side, folder, at):
    import streaming

    dataset = streaming.StreamingDataset(
        local=str(Path(folder, "mds")), shuffle=False, batch_size=1, num_canonical_nodes=1
    )
    dataset.load_state_dict(
        {
            "epoch": 0,
            "sample_in_epoch": at,
            "num_canonical_nodes": 1,
            "shuffle_seed": 9176,
            "initial_physical_nodes": 1,
        }
    )
    return next(iter(dataset))


def first_grain(side, folder, at):
    """grain's readers of Parquet keep a position in the file, which is reached by reading."""
    return next(iter(grain_rows(folder, at)))


def grain_rows(folder, at=0):
    import grain.experimental

    each = None
    for number, path in enumerate(files_in(folder, "parquet")):
        if each is None:
            import pyarrow.parquet as pq

            each = pq.ParquetFile(path).metadata.num_rows
        if (number + 1) * each > at:
            rows = iter(grain.experimental.ParquetIterDataset(path))
            for _ in range(max(0, at - number * each)):
                next(rows)
            yield from rows


def first_litdata(side, folder, at):
    import litdata

    return litdata.StreamingDataset(str(Path(folder, "lit")), shuffle=False)[at]


def first_webdataset(side, folder, at):
    import webdataset

    dataset = webdataset.WebDataset(files_in(folder, "tar"), shardshuffle=False)
    for number, row in enumerate(dataset):
        if number == at:
            return {"id": row["__key__"]}
    raise SystemExit("webdataset ended before")


def first_json(side, folder, at):
    """What a user writes: skip lines."""
    for path in files_in(folder, "jsonl"):
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            for line in file:
                if at == 0:
                    return json.loads(line)
                at -= 1
    raise SystemExit("lines ended before")


FIRST = {
    "ours": first_ours,
    "datasets": first_datasets,
    "mosaic": first_mosaic,
    "litdata": first_litdata,
    "grain": first_grain,
    "webdataset": first_webdataset,
    "json": first_json,
}


# --- rows by number, and the index ---


def corpus_take(side, folder, rows, repeat):
    """CPU seconds from an open library to 512 random rows of mapped Arrow, and of each such call after WARM others."""
    import numpy as np

    if lacking(side):
        return lacking(side)
    prepare(side)
    importlib.import_module("pyarrow.parquet")
    paths, spent = files_in(folder, "arrow"), []
    begin = time.process_time()
    if side == "ours-arrow":
        from detdata import open_corpus

        take = open_corpus(paths).take
    elif side == "datasets-arrow":
        import datasets

        take = datasets.Dataset.load_from_disk(str(Path(folder, "disk"))).__getitems__
    else:
        import pyarrow as pa

        table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(path)).read_all() for path in paths])

        def take(ids):
            return table.take(pa.array(ids)).to_pylist()

    chance = np.random.default_rng(1)
    for _ in range(1 + WARM + repeat):
        ids = chance.integers(0, rows, 512).tolist()
        found = take(ids)
        spent.append(time.process_time() - begin)
        if [row["id"] for row in found] != ids:
            raise SystemExit(f"{side}: other rows than asked for")
        begin = time.process_time()
    return {"first_us": spent[0] / 512 * 1e6, "us_per_row": median(spent[1 + WARM :]) / 512 * 1e6}


def corpus_index(folder):
    """CPU seconds of making the indexes of all files anew, in one process, without storing them."""
    from detdata import open_corpus

    paths = files_in(folder, "jsonl")
    size = sum(Path(path).stat().st_size for path in paths)
    begin = time.process_time()
    open_corpus(paths, index="no")
    return {"s_per_gb": (time.process_time() - begin) / size * 1e9}


def cpu_of_all():
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
