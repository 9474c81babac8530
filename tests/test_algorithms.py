"""Algorithms: golden digests, texts of digests, and what is said when one isn't there."""

import hashlib
import pickle
import sys

import pytest
import xxhash

from detdata.algorithms import (
    ALGORITHMS,
    check_algorithm,
    digest_size,
    hex_function,
    join_digest,
    new_hasher,
    split_digest,
)
from detdata.errors import ArgumentTypeError, ArgumentValueError, DetdataError, MissingExtra, UnknownFormat
from detdata.versions.errors import DatasetError

# Published: the empty input's and, for sha256 (FIPS 180-2) and blake3 (its test vectors), those of known texts.
GOLDEN = {
    ("xxh3-128", b""): "99aa06d3014798d86001c324468d497f",
    ("sha256", b""): "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ("sha256", b"abc"): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ("blake3", b""): "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
}


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    if request.param == "blake3":
        pytest.importorskip("blake3")
    return request.param


@pytest.mark.parametrize(("name", "data"), GOLDEN)
def test_golden_digests(name, data):
    if name == "blake3":
        pytest.importorskip("blake3")
    assert hex_function(name)(data) == GOLDEN[name, data]


def test_a_digest_is_that_of_all_bytes_however_they_come(algorithm):
    data = bytes(range(256)) * 1000
    hasher = new_hasher(algorithm)
    for start in range(0, len(data), 4097):
        hasher.update(memoryview(data)[start : start + 4097])
    assert hasher.digest().hex() == hex_function(algorithm)(data)
    assert len(hasher.digest()) == digest_size(algorithm)


def test_digests_are_those_of_the_libraries_themselves():
    data = b"detdata" * 999
    assert hex_function("xxh3-128")(data) == f"{xxhash.xxh3_128_intdigest(data):032x}"  # big-endian, as xxhsum prints
    assert hex_function("sha256")(data) == hashlib.sha256(data).hexdigest()


def test_the_text_of_a_digest_says_its_algorithm(algorithm):
    digits = hex_function(algorithm)(b"x")
    assert check_algorithm(algorithm) == algorithm
    assert split_digest(join_digest(algorithm, digits)) == (algorithm, digits)


@pytest.mark.parametrize(
    "text",
    ["", "xxh3-128", "xxh3-128:", "md5:" + 32 * "0", "xxh3-128:" + 31 * "0", "xxh3-128:" + 32 * "A", ":" + 32 * "0",
     "sha256:" + 32 * "0", "xxh3-128:" + 32 * "0" + "\n", "xxh3-128:" + 31 * "0" + "٣", None, b"xxh3-128:" + 32 * b"0"],
)  # fmt: skip
def test_what_is_no_digest_is_refused(text):
    with pytest.raises(UnknownFormat):
        split_digest(text)


@pytest.mark.parametrize("call", [check_algorithm, new_hasher, hex_function, digest_size])
def test_an_unknown_algorithm_is_refused_with_the_known_ones(call):
    with pytest.raises(ArgumentValueError, match="xxh3-128, sha256, blake3"):
        call("md5")
    with pytest.raises(ArgumentTypeError):
        check_algorithm(None)


def test_without_its_package_blake3_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "blake3", None)
    for call in (check_algorithm, new_hasher, hex_function):
        with pytest.raises(ImportError, match=r"pip install 'detdata\[blake3\]'") as caught:
            call("blake3")
        assert isinstance(caught.value, DetdataError)
    assert split_digest("blake3:" + GOLDEN["blake3", b""])[0] == "blake3"  # reading a manifest needs no hashing


def test_errors_name_the_file_on_one_line_and_travel_between_processes():
    error = DatasetError("a\nb", "is a pipe", others=2)
    assert str(error) == "a\\nb: is a pipe (and 2 more with trouble of their own)"
    assert isinstance(error, OSError)
    for one in (error, MissingExtra("this needs that", "extra")):
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), str(again), vars(again)) == (type(one), str(one), vars(one))
