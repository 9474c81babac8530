"""Dataset versions: what the data is, as a list of files with digests and one digest of it all."""

from detdata.versions.errors import DatasetError
from detdata.versions.hash_dataset import DatasetWarning, hash_dataset
from detdata.versions.manifest import FileEntry, Manifest
from detdata.versions.means import HashProgress
from detdata.versions.merge import merge as merge_manifests
from detdata.versions.report import Change, Report

__all__ = [
    "Change",
    "DatasetError",
    "DatasetWarning",
    "FileEntry",
    "HashProgress",
    "Manifest",
    "Report",
    "hash_dataset",
    "merge_manifests",
]
