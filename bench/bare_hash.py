"""The least that a program in plain Python does to hash the files of a folder of folders: python bare_hash.py FOLDER.

It lists and looks at each file, opens, reads and closes it, and looks at it again; nothing is checked, kept or written.
What detdata costs beyond this is its own; what this costs is Python's and the system's.
"""

# A path object for each file would be most of it.
# ruff: noqa: PTH208

import os
import sys

import xxhash


def main(root, size=1 << 16):
    """Hash every file of at most `size` bytes in the folders of the folder `root`."""
    top = os.open(root, os.O_RDONLY)
    paths, hexes = [], []
    for folder in sorted(os.listdir(top)):
        here = os.open(folder, os.O_RDONLY, dir_fd=top)
        for name in sorted(os.listdir(here)):
            os.lstat(name, dir_fd=here)
            paths.append(f"{folder}/{name}")
        os.close(here)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=top)
        hexes.append(xxhash.xxh3_128_hexdigest(os.read(descriptor, size + 1)))
        os.fstat(descriptor)
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1])
