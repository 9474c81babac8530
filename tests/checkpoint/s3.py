"""An S3 server on loopback, and a bucket for each test: fixtures for the tests that import them."""

import pytest
import s3fs

from tests.checkpoint.stores import s3_environment, s3_server


@pytest.fixture(scope="module", autouse=True)
def server():
    with s3_server() as address, pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(address).items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield address
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def system(server):
    return s3fs.S3FileSystem()


@pytest.fixture
def root(system, request):
    bucket = f"b{abs(hash(request.node.name)):x}"
    system.mkdir(bucket)
    return f"s3://{bucket}/runs/a"
