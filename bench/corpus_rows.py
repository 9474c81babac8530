"""The rows of the group "corpus": corpora at rest, resumed, read in order, shuffled by blocks, and by number."""

from __future__ import annotations

import tempfile

from rows import Rounds, Row, in_turn, missing, power

PEERS = ("datasets-jsonl", "datasets-parquet", "grain-parquet", "mosaic", "litdata", "webdataset-tar", "json-jsonl")
NAMES = {
    "datasets-jsonl": "datasets, streaming",
    "datasets-parquet": "datasets, streaming",
    "datasets-arrow": "datasets, map-style",
    "grain-parquet": "grain",
    "mosaic": "mosaicml-streaming, MDS",
    "litdata": "litdata, own chunks",
    "webdataset-tar": "webdataset",
    "json-jsonl": "lines skipped",
    "pyarrow-parquet": "pyarrow alone",
    "pyarrow-arrow": "pyarrow alone",
    "pyarrow_same-arrow": "pyarrow, the same rows",
}
LIKE = {"jsonl": "jsonl", "parquet": "parquet", "webdataset-tar": "tar", "mosaic": "arrow", "litdata": "arrow"}


def like(side):
    """Which of our formats a peer is compared with: its own, or mapped Arrow for one that only it reads."""
    return LIKE.get(side) or side.rpartition("-")[2]


def corpora(run, setting):
    rows = setting.corpus_rows
    with tempfile.TemporaryDirectory(prefix="detdata-bench-corpus-") as folder:
        for form in ("jsonl", "parquet", "arrow", "tar", "mds", "lit", "disk"):
            run("corpus_write", form=form, folder=folder, rows=rows)
        yield from resumes(run, setting, folder, rows)
        yield from by_number(run, setting, folder, rows)
        yield from passes(run, setting, folder, rows)


def resumes(run, setting, folder, rows):
    at = rows * 9 // 10
    ours = ("ours-jsonl", "ours-arrow", "ours-parquet", "ours-tar")
    for side in PEERS:
        run("corpus_state", side=side, folder=folder, at=at)
    cases = [((side, 0), "corpus_first", {"side": side, "folder": folder, "at": 0}) for side in ours]
    cases += [((side, at), "corpus_first", {"side": side, "folder": folder, "at": at}) for side in (*ours, *PEERS)]
    found = in_turn(run, setting.repeat, cases)
    for side in ours:
        form, begin, late = side.partition("-")[2], found[side, 0], found[side, at]
        what = f"{form} of {power(rows)} rows: open, first row at 90 %"
        note = f"wall {late.median('wall_s') * 1e3:.2f} ms"
        yield Row(f"corpus/first/{form}", what, "ms", late.median("cpu_s") * 1e3, note=note)
        paired = late.against(begin, "cpu_s")
        what = f"{form}: first row at 90 % against row 0"
        spent = late.median("cpu_s") * 1e3, begin.median("cpu_s") * 1e3
        yield Row(f"corpus/seek/{form}", what, "ms", *spent, "row 0", paired=paired)
    for side in PEERS:
        mine = found[f"ours-{like(side)}", at]
        what = f"{like(side)}: open, first row at 90 %"
        yield compared(f"corpus/first/{side}", what, "ms", mine, found[side, at], side, "cpu_s", 1e3)


def by_number(run, setting, folder, rows):
    sides = ("ours-arrow", "datasets-arrow", "pyarrow-arrow")
    cases = [(side, "corpus_take", {"side": side, "folder": folder, "rows": rows, "repeat": 5}) for side in sides]
    found = in_turn(run, setting.repeat, cases)
    for side in sides[1:]:
        for kind, what, name in (
            ("take", "512 random rows of mapped Arrow, each", "us_per_row"),
            ("take/first", "mapped Arrow: open, the first 512 random rows, each", "first_us"),
        ):
            yield compared(f"corpus/{kind}/{side}", what, "µs", found["ours-arrow"], found[side], side, name, 1)
    index = in_turn(run, setting.repeat, [("index", "corpus_index", {"folder": folder})])["index"]
    yield Row("corpus/index", "index of JSON lines, one core, hashed too", "s/GB", index.median("s_per_gb"))


def passes(run, setting, folder, rows):
    groups = (
        ("parquet", ("pyarrow-parquet", "datasets-parquet")),
        ("jsonl", ("datasets-jsonl",)),
        ("arrow", ("pyarrow-arrow", "datasets-arrow", "mosaic", "litdata")),
        ("tar", ("webdataset-tar",)),
    )
    for shuffled in (False, True):
        for form, peers in groups:
            mine = f"ours-{form}"
            if shuffled and form == "arrow":
                peers = (*peers, "pyarrow_same-arrow")  # noqa: PLW2901
            answers = run(
                "corpus_pass",
                sides=[mine, *peers],
                folder=folder,
                rows=rows,
                shuffled=shuffled,
                workers=2,
                repeat=setting.repeat,
            )
            rounds = {}
            for side, given in answers.items():
                rounds[side] = Rounds()
                rounds[side].answers = given
            for side in peers:
                kind = "shuffled by blocks" if shuffled else "in order"
                what = f"{form}, 2 workers, {kind}: a row"
                row_id = f"corpus/{'blocks' if shuffled else 'order'}/{form}/{side}"
                yield compared(row_id, what, "µs", rounds[mine], rounds[side], side, "wall_us", 1)


def compared(row_id, what, unit, ours, theirs, side, name, scale):
    spent = ours.median(name) * scale
    if theirs.missing:
        return missing(row_id, what, unit, spent, theirs)
    base = theirs.median(name) * scale
    return Row(row_id, what, unit, spent, base, NAMES[side], paired=ours.against(theirs, name))


GROUPS = {"corpus": corpora}
