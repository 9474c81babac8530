"""Files of tensors: written without torch's CRC, and that option is as the user left it, whoever writes beside whom."""

import io
import threading
import zipfile

import pytest
import torch
from torch.utils.serialization import config

from detdata.checkpoint.tensors import tree_writer


class Gate(io.BytesIO):
    """A file whose first write waits until it is let go."""

    def __init__(self):
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def write(self, data):
        self.begun.set()
        assert self.go.wait(30)
        return super().write(data)


@pytest.mark.parametrize("before", [True, False])
def test_two_writers_side_by_side_leave_the_option_as_it_was(before):
    with config.patch("save.compute_crc32", before):
        gates = [Gate(), Gate()]
        threads = [threading.Thread(target=tree_writer(torch.ones(3)), args=(gate,)) for gate in gates]
        for thread, gate in zip(threads, gates, strict=True):
            thread.start()
            assert gate.begun.wait(30)
        for thread, gate in zip(threads, gates, strict=True):  # the one that began first ends first
            gate.go.set()
            thread.join()

        assert config.save.compute_crc32 is before


def test_another_threads_option_is_its_own():
    gate = Gate()
    thread = threading.Thread(target=tree_writer(torch.ones(3)), args=(gate,))
    thread.start()
    assert gate.begun.wait(30)
    mine = io.BytesIO()
    torch.save(torch.arange(1000), mine)
    gate.go.set()
    thread.join()

    with zipfile.ZipFile(mine) as archive:
        assert 0 not in {member.CRC for member in archive.infolist()}


def test_a_write_that_fails_leaves_the_option_as_it_was():
    with pytest.raises(AttributeError):
        tree_writer(torch.ones(3))(object())

    assert config.save.compute_crc32 is True


def test_no_crc_is_computed():
    file = io.BytesIO()
    tree_writer({"a": torch.arange(1000)})(file)

    with zipfile.ZipFile(file) as archive:
        assert {member.CRC for member in archive.infolist()} == {0}
