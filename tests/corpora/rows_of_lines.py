"""JSON lines for tests: the rows, and files of them."""

import json


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return path


def numbered(count, first=0):
    return [{"id": number, "text": "x" * (number % 7)} for number in range(first, first + count)]
