"""No syncing to disk here: a test can't cut the power, and a shared disk is slow. test_sync.py looks at the calls."""

import os

import pytest


@pytest.fixture(autouse=True)
def synced(monkeypatch):
    """The inodes synced so far."""
    inodes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: inodes.append(os.fstat(descriptor).st_ino))
    return inodes
