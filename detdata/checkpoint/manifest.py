"""The manifest: what a checkpoint consists of, in one canonical text, so that any flipped bit in it is found.

    {"digest": "xxh3-128:…", "files": {name: {"digest": …, "size": …}}, "format": "detdata.checkpoint/1",
     "kind": "latest" | "periodic", "saved_ns": …, "step": …}

In an object store it has the format "detdata.remote/1" and one key more, "place": where in the root the files lie.

`digest` is that of the canonical JSON of everything else, and the file is the canonical JSON of the whole, byte for
byte. Reading is safe for a file from anywhere: bounded size, and names that cannot leave the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detdata.checkpoint.files import FileRecord, is_of_this_process, read_bounded
from detdata.checkpoint.remote_path import AnyPath, StoreError
from detdata.errors import UnknownFormat
from detdata.records import canonical_json, own_digest

FORMAT = "detdata.checkpoint/1"
REMOTE_FORMAT = "detdata.remote/1"
MANIFEST = "manifest.json"
KINDS = ("latest", "periodic")
MAX_BYTES = 1 << 24  # two files of 60,000 ranks
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_DIGEST = re.compile(r"xxh3-128:[0-9a-f]{32}")
_PLACE = re.compile(r"data/(latest|periodic)-(0|[1-9][0-9]{0,18})-[0-9a-f]{8,16}-[0-9a-f]{16}")
_KEYS = {"digest", "files", "format", "kind", "saved_ns", "step"}


class ManifestError(Exception):
    """A manifest that cannot be relied on; the text says why. Never leaves the package.

    here: whether it is this process that may or can not read it, which says nothing of the manifest.
    """

    def __init__(self, problem: str, *, here: bool = False) -> None:
        super().__init__(problem)
        self.here = here


@dataclass(frozen=True, slots=True)
class Manifest:
    """step: its global step. kind: "latest" or "periodic". saved_ns: wall clock. files: name -> record.

    place: the folder in the root that the files lie in; None: they lie beside the manifest.
    """

    step: int
    kind: str
    saved_ns: int
    files: Mapping[str, FileRecord]
    place: str | None = None

    def members_in(self, folder: AnyPath) -> AnyPath:
        """Return where the files lie if the manifest lies in `folder`."""
        return folder if self.place is None else folder.parent / self.place

    def to_bytes(self) -> bytes:
        """Return the one text of this manifest."""
        record: dict[str, Any] = {
            "format": FORMAT if self.place is None else REMOTE_FORMAT,
            "step": self.step,
            "kind": self.kind,
            "saved_ns": self.saved_ns,
            "files": {name: file.to_dict() for name, file in self.files.items()},
        }
        if self.place is not None:
            record["place"] = self.place
        record["digest"] = own_digest(record)
        return canonical_json(record)


def is_member_name(name: object) -> bool:
    """Whether `name` is a plain file name that a manifest may list."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and name != MANIFEST


def read_manifest(folder: AnyPath) -> Manifest:
    """Read and check `folder/manifest.json`.

    Raises ManifestError saying what is wrong with it, UnknownFormat if it is sound but of another format, StoreError.
    """
    try:
        data = read_bounded(folder / MANIFEST, MAX_BYTES)
    except FileNotFoundError:
        raise ManifestError(f"{MANIFEST} is missing") from None
    except StoreError:
        raise
    except OSError as error:
        raise ManifestError(f"{MANIFEST} cannot be read: {error}", here=is_of_this_process(error)) from error
    return parse_manifest(data)


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest that `data` is the text of. Raises ManifestError, UnknownFormat."""
    if not data:
        raise ManifestError(f"{MANIFEST} is empty")
    try:
        record = json.loads(data)
        canonical = isinstance(record, dict) and canonical_json(record) == data
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{MANIFEST} is cut short or altered: {type(error).__name__}: {error}") from None
    if not canonical:
        raise ManifestError(f"{MANIFEST} is altered: not in its canonical form")
    expected = own_digest(record)
    if record.get("digest") != expected:
        raise ManifestError(f"{MANIFEST} is altered: its digest is {expected}, it says {record.get('digest')!r}")
    if record.get("format") not in {FORMAT, REMOTE_FORMAT}:
        raise UnknownFormat(
            f"{MANIFEST} has the format {record.get('format')!r}; this release reads {FORMAT!r} and {REMOTE_FORMAT!r}. "
            "If a newer release of detdata wrote it, read it with that release."
        )
    return _checked(record)


def _checked(record: dict[str, Any]) -> Manifest:
    keys = _KEYS if record["format"] == FORMAT else _KEYS | {"place"}
    if set(record) != keys:
        raise ManifestError(f"{MANIFEST} has the keys {sorted(record)}, expected {sorted(keys)}")
    for key in ("step", "saved_ns"):
        if type(record[key]) is not int or record[key] < 0:
            raise ManifestError(f"{MANIFEST}: {key} must be an integer from 0 on, found {record[key]!r}")
    if record["kind"] not in KINDS:
        raise ManifestError(f"{MANIFEST}: kind must be one of {KINDS}, found {record['kind']!r}")
    if not isinstance(record["files"], dict):
        raise ManifestError(f"{MANIFEST}: files must be an object")
    files = {}
    for name, entry in record["files"].items():
        if not is_member_name(name):
            raise ManifestError(f"{MANIFEST} lists {name!r}, which is not a plain file name inside the folder")
        if (
            not isinstance(entry, dict)
            or set(entry) != {"size", "digest"}
            or type(entry["size"]) is not int
            or entry["size"] < 0
            or not isinstance(entry["digest"], str)
            or not _DIGEST.fullmatch(entry["digest"])
        ):
            raise ManifestError(f"{MANIFEST}: the entry of {name!r} needs a size and an xxh3-128 digest")
        files[name] = FileRecord(entry["size"], entry["digest"])
    place = record.get("place")
    if record["format"] == REMOTE_FORMAT and place_of(place) != (record["kind"], record["step"]):
        raise ManifestError(f"{MANIFEST}: place is {place!r}, which is no folder for {record['kind']} {record['step']}")
    return Manifest(record["step"], record["kind"], record["saved_ns"], files, place)


def place_of(place: object) -> tuple[str, int] | None:
    """Return the kind and the step that a place is named for; None for what is no place inside the root.

    >>> place_of("data/latest-5-67000000-00112233445566aa"), place_of("data/../latest-5")
    (('latest', 5), None)
    """
    match = _PLACE.fullmatch(place) if isinstance(place, str) else None
    return None if match is None else (match[1], int(match[2]))
