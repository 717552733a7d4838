"""The two serve processes: started on their side of the link, stopped with the demo."""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo.client import Client

PR_SET_PDEATHSIG = 1
READY_SECONDS = 60


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port(link, side: str) -> int:
    with link.socket(side) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Pair:
    """`kvserve serve prefill` and `kvserve serve decode`; without a link to a prefill node
    (`local=True`) one decode node that does everything itself."""

    def __init__(self, kvserve: Path, model: Path, link, logs: Path, pace_mbps: float = 0,
                 local: bool = False, artefact: Path | None = None):
        self.link = link
        self.calibration = ["--calib", str(artefact)] if artefact else []
        self.logs = logs
        self.processes: dict[str, subprocess.Popen] = {}
        self.scratch = tempfile.TemporaryDirectory(prefix="kvserve-demo-")
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        try:
            self._start(kvserve, model, pace_mbps, local)
        except BaseException:
            self.close()
            raise

    def _start(self, kvserve: Path, model: Path, pace_mbps: float, local: bool) -> None:
        token = Path(self.scratch.name) / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(16) + "\n")
        decode = [str(kvserve), "serve", "decode", "--model", str(model), *self.calibration]
        if not local:
            address = f"{self.link.prefill_host}:{free_port(self.link, 'prefill')}"
            prefill = [str(kvserve), "serve", "prefill", "--model", str(model), "--listen", address,
                       "--token-file", str(token), *self.calibration]
            if pace_mbps:
                prefill += ["--pace-mbps", f"{pace_mbps:g}"]
            self._spawn("prefill", prefill)
            decode += ["--prefill", address, "--token-file", str(token)]
        port = free_port(self.link, "decode")
        self._spawn("decode", [*decode, "--http", f"127.0.0.1:{port}"])
        self.client = Client(lambda: self.link.socket("decode"), port)
        self._wait_ready()

    def _spawn(self, side: str, argv: list[str]) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(self.logs / f"{side}.log", "w") as log:
            # A session of its own: Ctrl-C reaches the demo, which then stops the nodes in order.
            self.processes[side] = subprocess.Popen(
                self.link.command(side, argv), stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env=self.environment, start_new_session=True,
                preexec_fn=die_with_parent)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self.client.healthy():
            self.check()
            if time.monotonic() > deadline:
                self._fail("decode", f"was not ready within {READY_SECONDS} s")
            time.sleep(0.1)

    def check(self) -> None:
        """Ends the demo with the node's last words if one has died."""
        for side, process in self.processes.items():
            if process.poll() is not None:
                self._fail(side, f"ended with status {process.returncode}")

    def _fail(self, side: str, why: str) -> None:
        log = self.logs / f"{side}.log"
        tail = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:])
        sys.exit(f"the {side} node {why}; its log {log} ends:\n{tail}")

    def close(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        self.scratch.cleanup()
