"""Start the training run by torchrun, and read what its processes have told."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("train.py")
SECONDS = 120  # for a job; it takes some 6 on a machine that does nothing else


class Job:
    """A torchrun with its ranks. out: the folder of the lines; text: what it printed, when it has ended."""

    def __init__(self, size, root, out, *arguments, restarts=0):
        self.out, self.text = Path(out), ""
        self.out.mkdir(parents=True)
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        command = [
            sys.executable,
            *torchrun,
            f"--max-restarts={restarts}",
            str(SCRIPT),
            str(root),
            str(out),
            *arguments,
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": str(SCRIPT.parents[3]),
            "OMP_NUM_THREADS": "1",
            # Without it the ranks that torchrun starts again find the addresses of the dead ones, and gloo gives up.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        with (self.out / "printed").open("wb") as printed:
            self.process = subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT)

    @staticmethod
    def read(out, rank):
        path = Path(out) / f"rank{rank}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]  # without one that is being written

    def lines(self, rank=0):
        return self.read(self.out, rank)

    def until(self, condition):
        """Wait until `condition(lines of rank 0)`."""
        end = time.monotonic() + SECONDS
        while not condition(self.lines()):
            assert self.process.poll() is None, self.printed()
            assert time.monotonic() < end, self.printed()
            time.sleep(0.01)

    def printed(self):
        return (self.out / "printed").read_text(errors="replace")

    def end(self):
        """Wait for torchrun; return its exit code. It has then ended its ranks, but where it was killed itself."""
        try:
            code = self.process.wait(SECONDS)
        finally:
            self.process.terminate()  # it gives its ranks 30 seconds, and kills them then
            self.process.wait()
        self.text = self.printed()
        return code


def attempts(lines):
    """Cut the lines of a rank into those of each of its processes."""
    found = []
    for line in lines:
        if "start" in line:
            found.append([])
        found[-1].append(line)
    return found


def steps(lines):
    """Return step -> line; of a step that was done again the last one."""
    return {line["step"]: line for line in lines if "step" in line}
