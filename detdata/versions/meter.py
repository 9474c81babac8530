"""How far hashing is, counted in whatever thread reads."""

from __future__ import annotations

import threading

from detdata.versions.means import HashProgress, Means


class Meter:
    """Counts files and bytes, and tells the user's function."""

    def __init__(self, means: Means, files: int, size: int, trusted: int) -> None:
        self.files, self.total_files, self.trusted = trusted, files, trusted
        self.bytes, self.total_bytes = 0, size
        self._tell = means.progress
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count bytes."""
        with self._lock:
            self.bytes += count
            if self._tell is not None:
                self._tell(HashProgress(self.files, self.total_files, self.bytes, self.total_bytes, self.trusted))
