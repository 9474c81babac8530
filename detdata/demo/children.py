"""Runs as processes of their own: started, listened to, killed, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

from detdata.errors import DetdataError

Listener: TypeAlias = Callable[[str, int, float], None]  # arm, step, loss

_TAIL = 20  # lines of a failing child's stderr
# torch's variable for reproducible cuBLAS; one thread, because sums over threads may round differently.
_FIXED = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class ChildFailed(DetdataError, RuntimeError):
    """A run ended otherwise than it should have; the message ends with what it wrote to stderr."""


class Stopped(DetdataError, RuntimeError):
    """A run that was ended because another one failed or the user stopped the demonstration."""


@dataclass(frozen=True, slots=True)
class Kill:
    """How a run was killed: in which step, by which signal, with how many loader workers alive."""

    step: int
    signal: int
    workers: int


@final
@dataclass(slots=True)
class Children:
    """The processes that are running; `stop` ends them all, and none starts after it."""

    folder: Path
    listener: Listener
    _running: list[subprocess.Popen[str]] = field(default_factory=list)
    _stopped: bool = False

    def run(self, arm: str) -> Kill | None:
        """Run one arm to its end, or to the step in which it asks to be killed. Blocks; callable from threads.

        Raises ChildFailed with the end of its stderr.
        """
        own = self.folder / "runs" / arm
        own.mkdir(parents=True)
        command = [sys.executable, "-P", "-m", "detdata.demo.train", str(self.folder), arm]
        with (own / "stderr.txt").open("w", encoding="utf-8") as errors:
            if self._stopped:
                raise Stopped(f"{arm} was not started")
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=_environment(),
                start_new_session=True,  # its workers share its group, and go with it
            )
        self._running.append(process)
        try:
            if self._stopped:  # between the look above and the start
                raise Stopped(f"{arm} was stopped")
            kill = self._listen(arm, process)
            code = process.wait()
        finally:
            _end(process)
            if process.stdout is not None:
                process.stdout.close()
            self._running.remove(process)
        if self._stopped:
            raise Stopped(f"{arm} was stopped")
        killed = kill is not None and code == -kill.signal
        if code != 0 and not killed:
            raise ChildFailed(f"the run {arm!r} ended with {_how(code)}:\n{_tail(own / 'stderr.txt')}")
        return kill

    def _listen(self, arm: str, process: subprocess.Popen[str]) -> Kill | None:
        kill = None
        for line in process.stdout or ():
            record: dict[str, Any] = json.loads(line)
            if "kill" in record:
                process.kill()
                process.wait()
                _end(process)  # the orphaned workers hold the pipe open
                kill = Kill(record["kill"], -process.returncode, record["workers"])
            else:
                self.listener(arm, record["step"], record["loss"])
        return kill

    def stop(self) -> None:
        """End all running children with their workers."""
        self._stopped = True
        for process in list(self._running):
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a child's process group, then wait for the child."""
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all gone (macOS: PermissionError)
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _environment() -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **_FIXED, "PYTHONPATH": os.pathsep.join(paths)}


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _tail(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_TAIL:]) or "(nothing on its stderr)"
