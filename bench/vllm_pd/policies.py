"""What is compared: a row per policy. Policies with one connector and settings share servers."""

import dataclasses
import json

from demo import plan


@dataclasses.dataclass(frozen=True)
class Connector:
    """A KV connector of vLLM and how its two sides are set up; `settings` may name {kv_host} and
    {kv_peer}, the addresses of this and of the other side on the KV link."""

    name: str
    module: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    roles: tuple[str, str] = ("kv_both", "kv_both")  # prefill, decode
    failure_policy: str = "fail"

    def config(self, side: str, hosts: dict[str, str]) -> dict:
        """--kv-transfer-config of that side."""
        peer = hosts["decode" if side == "prefill" else "prefill"]
        extra = {key: value.format(kv_host=hosts[side], kv_peer=peer)
                 for key, value in self.settings}
        config = {"kv_connector": self.name, "kv_role": self.roles[side == "decode"],
                  "kv_load_failure_policy": self.failure_policy}
        if self.module:
            config["kv_connector_module_path"] = self.module
        if extra:
            config["kv_connector_extra_config"] = extra
        return config


@dataclasses.dataclass(frozen=True)
class Policy:
    name: str  # as in out/vllm.json
    connector: Connector | None  # none: one server does all
    request_json: str = "{}"  # added to every request
    exact: bool = True  # the tokens must be those of a single server

    @property
    def request(self) -> dict:
        return json.loads(self.request_json)


NIXL = Connector("NixlConnector")


def kvserve(profile: str, failure_policy: str = "fail") -> Connector:
    return Connector("KVServeConnector", "kvserve.vllm.connector", (("profile", profile),),
                     failure_policy=failure_policy)


SINGLE = Policy("single", None)
POLICIES = {policy.name: policy for policy in [
    SINGLE,
    Policy("nixl", NIXL),
    *(Policy(plan.policy(profile), kvserve(profile), exact=profile in ("none", "lossless"))
      for profile in plan.PROFILES),
]}

CHECKED = ["nixl"]  # by tests/vllm unless told otherwise


def named(names: list[str]) -> list[Policy]:
    """The policies of these names; a profile may stand for its policy. ValueError says what there
    is."""
    found = []
    for name in names:
        policy = POLICIES.get(name) or POLICIES.get(f"static:{name}")
        if policy is None:
            raise ValueError(f'no policy "{name}"; there are {", ".join(POLICIES)}')
        found.append(policy)
    return found
