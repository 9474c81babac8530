"""Single requests to the stores behind URLs of fsspec: what an object is now, and some bytes of it as it was.

S3 is asked for bytes on condition that the object still has the ETag that it had (If-Match), so one request gives bytes
of that very object or none. Other stores are asked after each read what the object is now, which is a second request;
an object that is replaced and put back between the two is not noticed there.

What is connected belongs to a process: fsspec gives new connections after a fork.
"""

from __future__ import annotations

import json
from typing import Any

from detdata.corpora.errors import CorpusUnreadable
from detdata.corpora.files import Identity
from detdata.corpora.retrying import status
from detdata.versions.remote import connect, size_of, tag_of

UNTAGGED = "{}"  # the tag of an object of which the store tells neither content nor time

# Kept for good: collecting connections that were inherited by a fork waits for threads that are not there.
_kept: dict[int, Any] = {}


class ShortReply(OSError):
    """Fewer bytes came than were asked for."""


def locate(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, connected in this process, and the path in it.

    Raises MissingExtra (an ImportError), ValueError for a protocol that nobody knows.

    >>> locate("memory://bucket/a")[1]
    '/bucket/a'
    """
    system, path = connect(url)  # fsspec has one for each process and way of connecting
    if getattr(system, "async_impl", False):
        _kept[id(system)] = system
    return system, path


def look(url: str, timeout: float) -> tuple[str, Identity]:
    """Return the kind of what is at a URL, "file" or "directory", and what it is now, by one request (HEAD).

    Raises whatever the package of the store raises.
    """
    system, path = locate(url)
    system.invalidate_cache(path)  # what was listed some time ago is no witness
    info = system.info(path, **_limits(system, timeout))
    found = Identity(size_of(info), tag_of(info))
    return str(info.get("type", "file")), _by_etag(found) if _is_s3(system) else found


def identity_listed(url: str, size: int, tag: str) -> Identity | None:
    """Return what a listing says that an object is, just as `look` would; None if a listing need not say the same.

    url: of anything in that store. S3 tells the same ETag either way, but with some servers not the same time.
    """
    found = _by_etag(Identity(size, tag)) if _is_s3(locate(url)[0]) else None
    return None if found is None or found.tag == tag else found


def _by_etag(found: Identity) -> Identity:
    etag = json.loads(found.tag).get("ETag")
    return Identity(found.size, json.dumps({"ETag": etag})) if etag else found


def get(url: str, expected: Identity, start: int, length: int, timeout: float) -> bytes:
    """Return exactly these bytes of the object that `expected` says.

    Raises CorpusUnreadable if it is another one by now, or if the store cannot give a part; ShortReply; else whatever
    the package of the store raises. Cost: one request to S3, two to other stores.
    """
    system, path = locate(url)
    tag = json.loads(expected.tag).get("ETag") if _is_s3(system) else None
    if tag:
        data = _get_from_s3(url, system, path, (tag, expected.size), start, length, timeout)
    else:
        data = system.cat_file(path, start=start, end=start + length, **_limits(system, timeout))
        _, found = look(url, timeout)
        if found != expected:
            raise changed(url, expected, found)
    if len(data) > length:
        raise _no_parts(url, len(data), length)
    if len(data) < length:
        raise ShortReply(f"{len(data)} bytes came of {length} from byte {start} on")
    return bytes(data)


def put(url: str, data: bytes, timeout: float) -> None:
    """Make `data` the content of the object at a URL. Raises whatever the package of the store raises."""
    system, path = locate(url)
    system.pipe_file(path, data, **_limits(system, timeout))


def changed(url: str, expected: Identity, found: Identity | None = None) -> CorpusUnreadable:
    """Return the error of an object that is another one now."""
    size = "" if found is None or found.size == expected.size else f" ({expected.size} bytes then, {found.size} now)"
    return CorpusUnreadable(
        url,
        f"has changed since the corpus was opened{size}; nothing was read from it. Open the corpus anew, and check its "
        "version() against that of the run",
    )


def _no_parts(url: str, came: int | None, length: int) -> CorpusUnreadable:
    size = "all of it" if came is None else f"{came} bytes"
    return CorpusUnreadable(
        url,
        f"was asked for {length} bytes, and the store answered with {size}: it gives no parts of objects; copy the "
        "data to this machine, or to a store that does",
    )


def _is_s3(system: Any) -> bool:
    return type(system).__module__.partition(".")[0] == "s3fs"


def _limits(system: Any, timeout: float) -> dict[str, float]:
    return {"timeout": timeout} if getattr(system, "async_impl", False) else {}


def _get_from_s3(
    url: str, system: Any, path: str, expected: tuple[str, int], start: int, length: int, timeout: float
) -> bytes:
    from fsspec.asyn import sync  # type: ignore[import-untyped]  # ships no annotations

    tag, size = expected
    try:
        data: bytes | None = sync(system.loop, _get_object, system, path, tag, start, length, timeout=timeout)
    except OSError as error:
        if status(error) == 412:
            raise changed(url, Identity(size, tag)) from error
        raise
    if data is None:
        raise changed(url, Identity(size, tag))
    return data


async def _get_object(system: Any, path: str, tag: str, start: int, length: int) -> bytes | None:
    """Return bytes of an S3 object; None if it is another one."""
    bucket, key, version = system.split_path(path)
    asked = {"Bucket": bucket, "Key": key, "IfMatch": tag, "Range": f"bytes={start}-{start + length - 1}"}
    reply = await system._call_s3("get_object", **asked, **({"VersionId": version} if version else {}))
    body = reply["Body"]
    try:
        if reply.get("ETag") != tag:  # a store that knows no conditions
            return None
        place = reply.get("ContentRange", "")
        if not place.startswith(f"bytes {start}-") and not (start == 0 and reply.get("ContentLength") == length):
            raise _no_parts(f"s3://{path}", None, length)
        data: bytes = await body.read()
        return data
    finally:
        body.close()
