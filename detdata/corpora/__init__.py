"""Corpora: rows of files at rest by number, whatever the format, resumed at any of them.

Read from `opening` (which files, of which format), `corpus` (rows by number) and `protocol` (what a format is).
"""

from __future__ import annotations

from detdata.corpora.build import Indexed, IndexProgress, index_corpus
from detdata.corpora.convert import Converted, convert_corpus
from detdata.corpora.corpus import Corpus
from detdata.corpora.errors import CorpusError, CorpusUnreadable, CorpusWarning
from detdata.corpora.formats import register_corpus_format
from detdata.corpora.layout import Place
from detdata.corpora.opening import open_corpus

__all__ = [
    "Converted",
    "Corpus",
    "CorpusError",
    "CorpusUnreadable",
    "CorpusWarning",
    "IndexProgress",
    "Indexed",
    "Place",
    "convert_corpus",
    "index_corpus",
    "open_corpus",
    "register_corpus_format",
]
