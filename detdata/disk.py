"""What it takes for names to be on the disk, for checkpoints and manifests alike."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_NO_SUCH_THING = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # some FUSE and SMB mounts, for folders


def sync_folder(path: Path) -> None:
    """Sync the names in folder `path` to disk, where system and file system can (not on Windows). Raises OSError."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SUCH_THING:
            raise
    finally:
        os.close(descriptor)
