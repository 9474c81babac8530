"""Trying a request again, where that can help: a few times, after pauses that grow and differ from process to process.

Tried again: time-outs, connections that break or cannot be made, replies that are short, and the statuses 408, 429 and
5xx, which say that the store is busy or ill. Not tried again: what is not there (404), what is forbidden (401, 403),
what was asked wrongly (416 and other 4xx), and what is no trouble of the store, such as a package that is missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from detdata.errors import DetdataError

TRIES = 4
PAUSE_S = 0.5  # after the first try; twice as long after each further one
LONGEST_PAUSE_S = 8.0

_BUSY = frozenset({408, 429})
_FINAL = (
    DetdataError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    MemoryError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    TypeError,
    ValueError,
)
_T = TypeVar("_T")


def retried(request: Callable[[], _T]) -> _T:
    """Return what `request` returns, calling it up to four times. Raises its last error, or one that stays.

    Waits for 0.5, 1 and 2 seconds between the tries, or down to half of that, at random.

    >>> left = [ConnectionResetError(), None]
    >>> def request():
    ...     error = left.pop(0)
    ...     if error:
    ...         raise error
    ...     return "data"
    >>> retried(request)
    'data'
    """
    pause = PAUSE_S
    for left in range(TRIES - 1, -1, -1):
        try:
            return request()
        except Exception as error:
            # Not only OSErrors: packages let those of their HTTP library through.
            if left == 0 or not passes(error):
                raise
        time.sleep(min(pause, LONGEST_PAUSE_S) * (1 + os.urandom(1)[0] / 255) / 2)  # many workers, not all at once
        pause *= 2
    raise NotImplementedError  # the last try has returned or raised


def passes(error: BaseException) -> bool:
    """Return whether the same request may well succeed a little later.

    >>> passes(ConnectionResetError()), passes(PermissionError()), passes(TimeoutError())
    (True, False, True)
    """
    if isinstance(error, (TimeoutError, ConnectionError)):  # S3 tells some of them by the status 400
        return True
    code = status(error)
    if code is not None:
        return code >= 500 or code in _BUSY
    return not isinstance(error, _FINAL)


def status(error: BaseException | None) -> int | None:
    """Return the HTTP status that an error comes from, as far as its package says; None if it does not.

    >>> print(status(OSError()))
    None
    """
    for _ in range(8):  # causes of causes: an HTTP library's error lies a few levels down
        if error is None:
            return None
        code = _own_status(error)
        if type(code) is int and 400 <= code < 600:
            return code
        error = error.__cause__
    return None


def _own_status(error: BaseException) -> object:
    reply = getattr(error, "response", None)
    if isinstance(reply, dict):  # botocore
        return reply.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if type(error).__module__.startswith("aiohttp."):  # which has a "code" 400 of its own for a reply that breaks off
        return getattr(error, "status", None) if hasattr(error, "request_info") else None
    return getattr(error, "status_code", None) or getattr(error, "code", None)  # azure, gcsfs
