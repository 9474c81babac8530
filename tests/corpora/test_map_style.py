"""Datasets that are objects pass through a corpus: the same rows, in the workers too."""

import pickle

import numpy as np
import pytest

from detdata import BlockShuffle, CorpusError, Loader, Plan, Shuffle, Topology, open_corpus


class Squares:
    """A dataset with rows by number and nothing else."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, id):
        if id == 13:
            raise RuntimeError("thirteen")
        return {"id": id, "square": id * id}


class Together(Squares):
    def __getitems__(self, ids):
        return [self[id] for id in ids]


@pytest.mark.parametrize("kind", [Squares, Together])
def test_rows_pass_through(kind):
    corpus = open_corpus(kind(12), rows_per_block=5)

    assert len(corpus) == 12
    assert corpus.block_sizes.tolist() == [5, 5, 2]
    assert corpus.take([11, 3, 3]) == [{"id": i, "square": i * i} for i in (11, 3, 3)]
    assert [row["id"] for row in corpus.read(4, 9)] == [4, 5, 6, 7, 8]
    assert corpus.locate(11) == (f"<{kind.__name__}>", 2, 1)
    assert pickle.loads(pickle.dumps(corpus))[7] == {"id": 7, "square": 49}
    assert corpus.take_columns([2, 1], "numpy")["square"].tolist() == [4, 1]


@pytest.mark.parametrize("kind", [Squares, Together])
def test_a_row_that_fails_is_named(kind):
    corpus = open_corpus(kind(20), rows_per_block=10)

    with pytest.raises(CorpusError, match=r"block 1.*row 13 of the dataset: RuntimeError: thirteen"):
        corpus[13]


def test_columns_are_chosen_and_missing_ones_named():
    assert open_corpus(Squares(5), columns=["square"])[3] == {"square": 9}
    with pytest.raises(CorpusError, match="cube"):
        open_corpus(Squares(5), columns=["cube"])[3]


def test_no_version_is_made_up():
    with pytest.raises(CorpusError, match="dataset_version"):
        open_corpus(Squares(5)).version()


def test_what_is_no_dataset_is_told():
    with pytest.raises(TypeError, match="'train'"):
        open_corpus({"train": Squares(5)})
    with pytest.raises(TypeError, match="format"):
        open_corpus(Squares(5), "jsonl")
    with pytest.raises(CorpusError, match="empty"):
        open_corpus(Squares(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_it(workers):
    corpus = open_corpus(Squares(12), rows_per_block=4)
    plan = Plan(BlockShuffle(corpus.block_sizes, seed=1, window=2), 4)
    loader = Loader(corpus, plan, Topology(), num_workers=workers, collate_fn=list)

    assert [[row["id"] for row in batch] for batch in loader] == [plan.batch(step).ids.tolist() for step in range(3)]


class TestHuggingFace:
    @pytest.fixture
    def dataset(self):
        datasets = pytest.importorskip("datasets")
        parts = [
            datasets.Dataset.from_dict({"i": list(range(a, b)), "t": [str(i) for i in range(a, b)]})
            for a, b in ((0, 7), (7, 10))
        ]
        return datasets.concatenate_datasets(parts)

    def test_its_rows_chunks_columns_and_fingerprint(self, dataset):
        corpus = open_corpus(dataset)

        assert corpus.block_sizes.tolist() == [7, 3]
        assert corpus.take([9, 0, 7]) == [dataset[9], dataset[0], dataset[7]]
        assert corpus.take_columns([9, 0]).to_pydict() == {"i": [9, 0], "t": ["9", "0"]}
        assert corpus.version() == f"fingerprint:{dataset._fingerprint}"
        assert open_corpus(dataset, columns=["t"])[8] == {"t": "8"}
        with pytest.raises(CorpusError, match="'x'"):
            open_corpus(dataset, columns=["x"])[0]

    def test_one_that_was_shuffled_keeps_its_own_order(self, dataset):
        shuffled = dataset.shuffle(seed=1)

        assert list(open_corpus(shuffled)) == list(shuffled)
        assert open_corpus(shuffled).block_sizes.tolist() == [10]

    def test_a_format_of_its_own_is_kept(self, dataset):
        row = open_corpus(dataset.with_format("numpy"))[3]

        assert isinstance(row["i"], np.integer)

    def test_a_dictionary_of_splits_is_told(self, dataset):
        datasets = pytest.importorskip("datasets")
        with pytest.raises(TypeError, match="'train'"):
            open_corpus(datasets.DatasetDict(train=dataset))

    @pytest.mark.parametrize("context", ["fork", "spawn"])
    def test_workers_read_it(self, dataset, context):
        corpus = open_corpus(dataset)
        plan = Plan(Shuffle(10, seed=1), 5)
        loader = Loader(corpus, plan, Topology(), num_workers=2, collate_fn=list, multiprocessing_context=context)

        assert [[row["i"] for row in batch] for batch in loader] == [plan.batch(step).ids.tolist() for step in range(2)]
