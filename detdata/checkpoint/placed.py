"""What is read like a file and has a known size: where in it the reader stands."""

from __future__ import annotations

import io
import os


class Placed(io.RawIOBase):
    """A readable, seekable stream of `size` bytes; a subclass says in `readinto` what they are."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}")
        self._at = base + offset
        return self._at
