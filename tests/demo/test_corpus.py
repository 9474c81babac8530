"""The passages as files of every format: the same bytes, and the same run to the last bit."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from detdata.demo.corpus import KINDS, open_passages, write_corpus
from detdata.demo.evidence import read_evidence
from detdata.demo.passages import Passages
from detdata.demo.settings import CORPORA, SMALL
from detdata.demo.text import cut, read_text, split
from tests.sources import ROOT, run_python

ODD = {
    "every byte": np.arange(256, dtype=np.uint8).reshape(4, 64),
    "ends of lines": np.frombuffer(b'\r\n\n\r\\n"\n",\n\n\n\r\r\xc2\x85\x00', np.uint8).reshape(3, 6),
    "numbers": np.frombuffer(b"00700812 3  true", np.uint8).reshape(4, 4),
}


def test_there_is_a_writer_for_each_format_of_files():
    known = run_python("from detdata.corpora.formats import names; print(*names())").stdout.split()

    assert sorted([*known, "save_to_disk"]) == list(CORPORA)
    assert sorted(KINDS) == list(CORPORA)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", CORPORA)
def test_odd_bytes_come_back(tmp_path, name, odd):
    passages = ODD[odd]
    write_corpus(tmp_path / "new", name, passages)

    assert [row.tolist() for row in open_passages(tmp_path / "new", name, passages.shape[1])] == passages.tolist()


@pytest.mark.parametrize("name", CORPORA)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    passages=arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=9)),
    order=st.randoms(use_true_random=False),
)
def test_passages_come_back_in_any_order(tmp_path_factory, name, passages, order):
    folder = tmp_path_factory.mktemp("corpus") / "new"
    write_corpus(folder, name, passages)
    corpus = open_passages(folder, name, passages.shape[1])
    ids = order.sample(range(len(passages)), len(passages))

    assert len(corpus) == len(passages)
    assert [row.tolist() for row in corpus.take(ids)] == passages[ids].tolist()
    assert {row.dtype for row in corpus} == {np.dtype(np.uint8)}


def test_a_corpus_is_written_into_a_new_folder_only(tmp_path):
    with pytest.raises(FileExistsError):
        write_corpus(tmp_path, "jsonl", ODD["numbers"])

    assert list(tmp_path.iterdir()) == []


def test_passages_of_an_array_have_no_blocks_and_no_future():
    passages = Passages(ODD["every byte"], context=8)

    with pytest.raises(TypeError, match="no blocks"):
        passages.blocks_of([0])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The straight run from memory and from each format, all by one process: importing torch takes most of the time."""
    top = tmp_path_factory.mktemp("runs")
    for name in ("memory", *CORPORA):
        (top / name / "runs" / "straight").mkdir(parents=True)
        replace(SMALL, seed=3, kill_step=20, corpus=None if name == "memory" else name).save(
            top / name / "settings.json"
        )
    done = run_python(
        "from pathlib import Path\n"
        "from detdata.demo.corpus import write_corpus\n"
        "from detdata.demo.settings import CORPORA, SMALL\n"
        "from detdata.demo.text import cut, read_text, split\n"
        "from detdata.demo.train import main\n"
        f"top = Path({str(top)!r})\n"
        "for name in CORPORA:\n"
        "    write_corpus(top / name / 'corpus', name, cut(split(read_text())[0], SMALL.samples))\n"
        "for name in ('memory', *CORPORA):\n"
        "    main(str(top / name), 'straight')\n"
    )
    assert done.returncode == 0, done.stderr
    return top


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_a_run_from_files_has_the_bits_of_the_run_from_memory(runs, name):
    base, run = (read_evidence(runs / which / "runs" / "straight") for which in ("memory", name))

    assert len(run.steps) == SMALL.steps
    assert run.steps == base.steps  # losses, rates and samples
    assert (run.digest, run.held_out_loss) == (base.digest, base.held_out_loss)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", *CORPORA])
def test_the_version_of_the_data_is_that_of_the_corpus(runs, name):
    version = json.loads((runs / name / "runs" / "straight" / "result.json").read_text())["dataset_version"]

    if name == "memory":
        assert version is None
    else:
        length = cut(split(read_text())[0], SMALL.samples).shape[1]
        assert version == open_passages(runs / name / "corpus", name, length).version()


def test_hugging_face_opens_the_folder_that_is_like_its_own(tmp_path):
    datasets = pytest.importorskip("datasets")
    passages = ODD["every byte"]
    write_corpus(tmp_path / "new", "save_to_disk", passages)

    found = datasets.load_from_disk(str(tmp_path / "new"))

    assert found[:] == {"id": [0, 1, 2, 3], "text": [row.tobytes() for row in passages]}


def test_the_script_writes_all_says_how_each_is_opened_and_overwrites_nothing(tmp_path):
    def run():
        command = [sys.executable, str(ROOT / "tools" / "write_corpora.py"), str(tmp_path / "all")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first, again = run(), run()

    assert (first.returncode, first.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(CORPORA)
    assert len(first.stdout.splitlines()) == len(CORPORA)
    [length] = {open_passages(tmp_path / "all" / name, name, 1)[0].size for name in CORPORA if name != "tokens"}
    assert f"open_corpus({str(tmp_path / 'all' / 'tokens')!r}, dtype='uint8', seq_len={length})" in first.stdout
    assert (again.returncode, again.stdout) == (2, "")
    assert "is there already; name a new folder" in again.stderr
