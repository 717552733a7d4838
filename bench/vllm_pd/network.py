"""Where the servers live: two network namespaces, or loopback.

Two veth pairs join the namespaces: `kv0`, shaped and cut at will, carries the KV; `ctl0`, always
fast, carries HTTP between router and servers. A cut of the KV link thus leaves the control path
alive, which is the harder case for a connector.
"""

import json
import os
import shutil
import subprocess

from demo.link import LoopbackLink, NamespaceLink, run

SIDES = ("prefill", "decode")


class Namespaces(NamespaceLink):
    isolated = True
    device = "kv0"
    kv_hosts = {"prefill": "10.77.0.1", "decode": "10.77.0.2"}
    control_hosts = {"prefill": "10.77.1.1", "decode": "10.77.1.2"}

    def __init__(self):
        super().__init__()
        try:
            run("ip", "link", "add", "ctl0", "netns", self.names["prefill"], "type", "veth", "peer",
                "name", "ctl0", "netns", self.names["decode"])
            for side, address in self.control_hosts.items():
                run("ip", "-n", self.names[side], "address", "add", f"{address}/30", "dev", "ctl0")
                run("ip", "-n", self.names[side], "link", "set", "ctl0", "up")
        except BaseException:
            self.close()
            raise

    def set_cut(self, cut: bool) -> None:
        """Takes the KV link down, or up again; addresses stay."""
        run("ip", "-n", self.names["prefill"], "link", "set", "kv0", "down" if cut else "up")

    def received_bytes(self, side: str) -> int:
        """Of the KV link since it was made, headers of the packets included."""
        shown = run("ip", "-n", self.names[side], "-s", "-j", "link", "show", "kv0").stdout
        return json.loads(shown)[0]["stats64"]["rx"]["bytes"]


class Loopback(LoopbackLink):
    isolated = False
    device = "lo"
    kv_hosts = control_hosts = {"prefill": "127.0.0.1", "decode": "127.0.0.1"}
    describe = "loopback, unshaped (no right to make network namespaces here)"

    def received_bytes(self, side: str) -> None:
        """Not known: everything shares one device."""


def make_network(loopback: bool = False) -> Namespaces | Loopback:
    """Namespaces where this user may make them, else loopback; says which and why."""
    if loopback:
        return Loopback()
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("no root, or no ip and tc: loopback without shaping instead of network namespaces")
        return Loopback()
    try:
        return Namespaces()
    except subprocess.CalledProcessError as error:
        print(f"no network namespaces ({error.stderr.strip()}): loopback without shaping instead")
        return Loopback()
