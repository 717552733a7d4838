"""A single server, or prefill and decode with a router in front; one interface for both."""

import time

from vllm_pd.policies import Connector
from vllm_pd.servers import Process, ServerFailed, router, vllm_server


class Cluster:
    """Serves from construction to `close()`. `client` is what users talk to."""

    def __init__(self, network, connector: Connector | None, dtype: str = "bfloat16",
                 options: tuple[str, ...] = (), name: str = ""):
        self.network = network
        self.servers: dict[str, Process] = {}
        self.router = None
        label = f"{name}-" if name else ""
        started = time.monotonic()
        try:
            if connector is None:
                self._add("decode", f"{label}single", None, dtype, options)
            else:
                self._add("prefill", f"{label}prefill", connector, dtype, options)
                self._add("decode", f"{label}decode", connector, dtype, options)
            for server in self.servers.values():
                server.wait_ready()
            if connector is not None:
                self.router = router(network, self.servers["prefill"], self.servers["decode"])
                self.router.start()
                self.router.wait_ready()
        except BaseException:
            self.close()
            raise
        self.client = (self.router or self.servers["decode"]).client
        self.ready_s = time.monotonic() - started

    def _add(self, side: str, name: str, connector, dtype: str, options) -> None:
        server = vllm_server(name, self.network, side, connector, dtype, options)
        self.servers[side] = server
        server.start()

    def check(self) -> None:
        """ServerFailed if one has died."""
        for process in [*self.servers.values(), *([self.router] if self.router else [])]:
            if not process.alive():
                raise ServerFailed(f"{process.name} has died; {process.last_words()}")

    def restart(self, side: str) -> float:
        """Kills that server and starts it anew on the same port; seconds until it is ready."""
        started = time.monotonic()
        self.servers[side].kill()
        self.servers[side].start()
        self.servers[side].wait_ready()
        return time.monotonic() - started

    def blocks_used(self) -> dict[str, float]:
        """Share of the KV blocks in use by running requests, per server."""
        return {side: server.client.metric("vllm:kv_cache_usage_perc")
                for side, server in self.servers.items()}

    def wait_idle(self, seconds: float) -> dict[str, float]:
        """The last `blocks_used`, all 0 if the blocks came back in time."""
        deadline = time.monotonic() + seconds
        while any((used := self.blocks_used()).values()) and time.monotonic() < deadline:
            time.sleep(0.5)
        return used

    def close(self) -> None:
        if self.router:
            self.router.stop(5)
        for server in self.servers.values():
            server.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
