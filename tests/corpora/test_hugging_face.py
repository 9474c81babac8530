"""Folders of save_to_disk: rows are those that `datasets` gives; only files that state.json lists are data."""

import datetime as dt
import json

import fsspec
import pyarrow as pa
import pytest

from detdata import CorpusError, open_corpus


def save(folder, parts, names=None, **state):
    """Write a folder as save_to_disk does, by hand. parts: rows of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    names = names or [f"data-{number:05d}-of-{len(parts):05d}.arrow" for number in range(len(parts))]
    schema = pa.schema([("i", pa.int64()), ("t", pa.string())])
    for name, rows in zip(names, parts, strict=True):
        with pa.ipc.new_stream(str(folder / name), schema) as writer:
            for start in range(0, len(rows), 8):
                writer.write_batch(pa.RecordBatch.from_pylist(rows[start : start + 8], schema))
    state = {"_data_files": [{"filename": name} for name in names], "_split": None, "_format_type": None, **state}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def rows(first, stop):
    return [{"i": i, "t": f"text {i}"} for i in range(first, stop)]


def test_rows_come_in_the_order_of_the_list_and_of_no_other_file(tmp_path):
    folder = save(tmp_path / "saved", [rows(0, 10), rows(10, 13)], ["b.arrow", "a.arrow"])
    (folder / "cache-0123456789abcdef.arrow").write_bytes((folder / "a.arrow").read_bytes())
    (folder / "notes.jsonl").write_text("{}\n")

    assert list(open_corpus(folder)) == list(open_corpus(folder, format="arrow")) == rows(0, 13)
    assert list(open_corpus([folder, folder])) == rows(0, 13) * 2
    assert list(open_corpus(folder, format="jsonl")) == [{}]
    assert list(open_corpus(f"file://{folder}")) == rows(0, 13)


def test_a_folder_behind_a_url(tmp_path):
    folder = save(tmp_path / "saved", [rows(0, 10), rows(10, 13)], ["b.arrow", "a.arrow"])
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/saved-to-disk", recursive=True)
    store.pipe("/saved-to-disk/cache-1.arrow", (folder / "a.arrow").read_bytes())
    try:
        assert list(open_corpus("memory://saved-to-disk")) == rows(0, 13)
    finally:
        store.rm("/saved-to-disk", recursive=True)


@pytest.mark.parametrize(
    "name", ["../a.arrow", "/etc/a.arrow", "..", "", "sub/a.arrow", "C:a.arrow", "..\\a.arrow", "a\0", 7, None]
)
def test_names_stay_in_the_folder(tmp_path, name):
    folder = save(tmp_path / "saved", [rows(0, 3)])
    save(tmp_path, [rows(0, 3)], ["a.arrow"])
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))

    with pytest.raises(CorpusError, match=r"state\.json: lists .* no name of a file in its folder"):
        open_corpus(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"_data_files": [{"filename": "gone.arrow"}]}', "'gone.arrow', and there is no such file"),
        (b'{"_data_files": []}', "lists no data file"),
        (b'{"_data_files": {"a": 1}}', "must have a list"),
        (b'{"_data_files": ["a.arrow"]}', "no name of a file"),
        (b'{"_data_files": [', "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b" " * ((16 << 20) + 1), "16777216 are read"),
    ],
)
def test_a_list_that_is_broken_is_an_error(tmp_path, content, reason):
    folder = save(tmp_path / "saved", [rows(0, 3)])
    (folder / "state.json").write_bytes(content)

    with pytest.raises(CorpusError, match=r"state\.json: .*" + reason):
        open_corpus(folder)


def test_rows_in_another_order_and_several_datasets_are_told(tmp_path):
    folder = save(tmp_path / "saved", [rows(0, 3)], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(CorpusError, match="flatten_indices"):
        open_corpus(folder)

    for split in ("train", "test"):
        save(tmp_path / "both" / split, [rows(0, 3)])
    (tmp_path / "both/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(CorpusError, match=r"splits \('train', 'test'\)"):
        open_corpus(tmp_path / "both")
    assert list(open_corpus(tmp_path / "both/train")) == rows(0, 3)


def test_another_state_json_is_none_of_ours(tmp_path):
    (tmp_path / "state.json").write_text('{"step": 3}')
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')

    assert list(open_corpus(tmp_path)) == [{"x": 1}]


def test_rows_are_those_of_datasets(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = {
        "i": list(range(250)),
        "t": [f"text {i}" if i % 7 else None for i in range(250)],
        "l": [[i, None, 3] for i in range(250)],
        "d": [{"a": i / 2, "b": [f"{i}"]} for i in range(250)],
        "when": [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(250)],
        "label": [i % 2 for i in range(250)],
    }
    made = datasets.Dataset.from_dict(table).cast_column("label", datasets.ClassLabel(names=["no", "yes"]))
    made.save_to_disk(str(tmp_path / "three"), num_shards=3)
    made.select([5, 3, 9]).save_to_disk(str(tmp_path / "chosen"))
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "splits"))
    grid = datasets.Features({"m": datasets.Array2D((2, 2), "int32")})
    datasets.Dataset.from_dict({"m": [[[1, 2], [3, 4]]]}, features=grid).save_to_disk(str(tmp_path / "grid"))

    corpus = open_corpus(tmp_path / "three")
    assert len(corpus.files) == 3
    assert list(corpus) == list(made)
    assert corpus.take([249, 0, 100]) == [made[249], made[0], made[100]]
    assert list(open_corpus(tmp_path / "chosen")) == [made[5], made[3], made[9]]
    assert list(open_corpus(tmp_path / "grid")) == [{"m": [[1, 2], [3, 4]]}]
    with pytest.raises(CorpusError, match="train"):
        open_corpus(tmp_path / "splits")
