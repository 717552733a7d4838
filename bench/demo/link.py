"""The network between the two nodes: namespaces shaped by tc where allowed, else loopback.

Both kinds offer: `prefill_host`, `describe`, `paced` (the prefill node itself must hold the rate),
`set_rate(mbps)` (0: unshaped), `command(side, argv)` (argv run on that side), `socket(side)` (a TCP
socket that lives there) and `close()`.
"""

import ctypes
import os
import re
import shutil
import socket
import subprocess

CLONE_NEWNET = 0x40000000
# tbf needs room for one segmentation-offload packet; 50 ms of queue is a common router's.
BURST, QUEUE = "64kb", "50ms"
PREFIX = "kvserve-demo-"


def run(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(argv, check=True, capture_output=True, text=True)


class NamespaceLink:
    """Two network namespaces of their own, joined by a veth pair shaped in both directions."""

    paced = False
    describe = f"network namespaces, veth shaped by tc tbf (burst {BURST}, queue {QUEUE}), both directions"
    prefill_host = "10.77.0.1"

    def __init__(self):
        remove_orphans()
        self.names = {side: f"{PREFIX}{os.getpid()}-{side}" for side in ("prefill", "decode")}
        self.shaped = False
        try:
            for name in self.names.values():
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            prefill, decode = self.names["prefill"], self.names["decode"]
            run("ip", "link", "add", "kv0", "netns", prefill, "type", "veth", "peer", "name", "kv0",
                "netns", decode)
            for name, address in ((prefill, self.prefill_host), (decode, "10.77.0.2")):
                run("ip", "-n", name, "address", "add", f"{address}/30", "dev", "kv0")
                run("ip", "-n", name, "link", "set", "kv0", "up")
        except BaseException:
            self.close()
            raise

    def set_rate(self, mbps: float) -> None:
        for name in self.names.values():
            tc = ("tc", "-n", name, "qdisc")
            if mbps:
                run(*tc, "replace", "dev", "kv0", "root", "tbf", "rate", f"{mbps:g}mbit", "burst",
                    BURST, "latency", QUEUE)
            elif self.shaped:
                run(*tc, "del", "dev", "kv0", "root")
        self.shaped = bool(mbps)

    def command(self, side: str, argv: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.names[side], *argv]

    def socket(self, side: str) -> socket.socket:
        # A socket belongs for life to the namespace of the thread that made it.
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.names[side]}", os.O_RDONLY)
        try:
            if libc.setns(there, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            finally:
                if libc.setns(home, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns back")
        finally:
            os.close(there)
            os.close(home)

    def close(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class LoopbackLink:
    """Loopback; the prefill node paces its sending (--pace-mbps)."""

    paced = True
    describe = "loopback, paced by the prefill node (no right to make network namespaces here)"
    prefill_host = "127.0.0.1"

    def set_rate(self, mbps: float) -> None:
        del mbps

    def command(self, side: str, argv: list[str]) -> list[str]:
        del side
        return argv

    def socket(self, side: str) -> socket.socket:
        del side
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def close(self) -> None:
        pass


def remove_orphans() -> None:
    """Namespaces of demos that were killed before they could tidy up."""
    for line in run("ip", "netns", "list").stdout.splitlines():
        found = re.match(rf"({PREFIX}(\d+)-\w+)", line)
        if found and not os.path.exists(f"/proc/{found.group(2)}"):
            subprocess.run(["ip", "netns", "del", found.group(1)], capture_output=True)


def make_link(loopback: bool):
    """The best link that this user may have, and says so when it is not the shaped one."""
    if not loopback and os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc"):
        try:
            return NamespaceLink()
        except subprocess.CalledProcessError as error:
            print(f"no network namespaces ({error.stderr.strip()}): loopback with pacing instead")
    return LoopbackLink()
