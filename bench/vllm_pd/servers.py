"""vLLM servers and the router as processes: started, watched, stopped, killed by their own ids."""

import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from demo.nodes import die_with_parent, free_port
from vllm_pd.client import Client
from vllm_pd.policies import Connector

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "build" / "models" / "smollm2-hf"
LOGS = ROOT / "out" / "log" / "vllm"
READY_SECONDS = 240  # 30 s on an idle machine
NIXL_PORT = 5600


class ServerFailed(Exception):
    """A server that died or never became ready, with the end of its log."""


def base_environment() -> dict[str, str]:
    """One thread per server: two servers with two threads each on two cores wait for each other."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {**kept, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1",
            "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


class Process:
    """One server on its side of the network. It leads a process group of its own, so that what it
    starts ends with it."""

    def __init__(self, name: str, network, side: str, argv: list[str], environment: dict[str, str],
                 client: Client):
        self.name, self.network, self.side = name, network, side
        self.argv, self.environment, self.client = argv, environment, client
        self.log = LOGS / f"{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        self.process = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.network.command(self.side, self.argv), stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env=self.environment, start_new_session=True,
                preexec_fn=die_with_parent)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self.client.healthy():
            if not self.alive():
                raise ServerFailed(f"{self.name} ended while it started; {self.last_words()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} not ready within {READY_SECONDS} s; "
                                   f"{self.last_words()}")
            time.sleep(0.2)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def last_words(self, lines: int = 15) -> str:
        tail = self.log.read_text(errors="replace").splitlines()[-lines:]
        return f"{self.log} ends:\n" + "\n".join(tail)

    def kill(self) -> None:
        """At once and with its children, as a crash of the machine would."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def stop(self, seconds: float = 20) -> None:
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                print(f"    {self.name} did not end within {seconds:g} s of SIGTERM: killed")
        self.kill()


@functools.cache
def token_file() -> Path:
    """A secret for this run; beyond loopback the connector asks for one."""
    target = ROOT / "build" / "vllm" / "token"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(mode=0o600)
    target.write_text(secrets.token_hex(16) + "\n")
    return target


def serve_command(port: int, host: str, dtype: str, options: tuple[str, ...]) -> list[str]:
    return [str(Path(sys.executable).with_name("vllm")), "serve", str(MODEL), "--host", host,
            "--port", str(port), "--served-model-name", "model", "--dtype", dtype,
            "--max-model-len", "2048", "--enforce-eager", "--no-enable-log-requests", *options]


def vllm_server(name: str, network, side: str, connector: Connector | None, dtype: str,
                options: tuple[str, ...] = ()) -> Process:
    host = network.control_hosts[side]
    port = free_port(network, side)
    argv = serve_command(port, host, dtype, options)
    environment = base_environment()
    if connector is not None:
        config = connector.config(side, network.kv_hosts[side], str(token_file()))
        argv += ["--kv-transfer-config", json.dumps(config)]
        environment |= {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": network.kv_hosts[side],
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(NIXL_PORT + (side == "decode")),
            "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": network.device}
        if package := os.environ.get("KVSERVE_PACKAGE"):  # of a build tree; else the installed one
            environment["PYTHONPATH"] = package
    return Process(name, network, side, argv, environment, Client(network, side, host, port))


def router(network, prefill: Process, decode: Process) -> Process:
    """On decode's side. It neither retries nor shuns a server: what is tested is the connector."""
    port = free_port(network, "decode")
    argv = [str(Path(sys.executable).with_name("vllm-router")), "--vllm-pd-disaggregation",
            "--prefill", f"http://{prefill.client.host}:{prefill.client.port}",
            "--decode", f"http://{decode.client.host}:{decode.client.port}",
            "--host", "127.0.0.1", "--port", str(port), "--policy", "random",
            "--prometheus-host", "127.0.0.1",
            "--prometheus-port", str(free_port(network, "decode")),
            "--disable-retries", "--disable-circuit-breaker", "--request-timeout-secs", "300"]
    return Process("router", network, "decode", argv, base_environment(),
                   Client(network, "decode", "127.0.0.1", port))
