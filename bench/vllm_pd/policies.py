"""What is compared: a row per policy. Policies with one connector and settings share servers."""

import dataclasses
import json
from collections.abc import Iterable

from demo import plan


@dataclasses.dataclass(frozen=True)
class Connector:
    """A KV connector of vLLM and how its two sides are set up; `settings` may name {kv_host}, the
    address of its side on the KV link, and {token_file}, a secret that both sides know."""

    name: str
    module: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    roles: tuple[str, str] = ("kv_both", "kv_both")  # prefill, decode
    failure_policy: str = "fail"

    def config(self, side: str, kv_host: str, token_file: str) -> dict:
        """--kv-transfer-config of that side."""
        extra = {key: value.format(kv_host=kv_host, token_file=token_file)
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
    profile: str = ""  # what the connector must use, as anybody may spell it

    @property
    def reported_profile(self) -> str:
        """`profile` as the connector spells it, without options at their defaults."""
        import kvserve  # only where servers run: the rest of this package needs no build of it
        return kvserve.Profile(self.profile).name

    @property
    def request(self) -> dict:
        return json.loads(self.request_json)


NIXL = Connector("NixlConnector")


KVSERVE = Connector("KVServeConnector", "kvserve.vllm.connector",
                    (("host", "{kv_host}"), ("token_file", "{token_file}")),
                    roles=("kv_producer", "kv_consumer"))


def pinned(profile: str) -> Policy:
    """A profile by request. vllm-router passes vllm_xargs on, but writes kv_transfer_params."""
    return Policy(plan.policy(profile), KVSERVE,
                  json.dumps({"vllm_xargs": {"kvserve_profile": profile}}),
                  exact=profile in ("none", "lossless"), profile=profile)


SINGLE = Policy("single", None)
POLICIES = {policy.name: policy for policy in [
    SINGLE,
    Policy("nixl", NIXL),
    *map(pinned, plan.PROFILES),
]}

LOSSY = next(policy for policy in POLICIES.values() if not policy.exact)


def named(names: Iterable[str]) -> list[Policy]:
    """The policies of these names; a profile may stand for its policy. ValueError says what there
    is."""
    found = []
    for name in names:
        policy = POLICIES.get(name) or POLICIES.get(f"static:{name}")
        if policy is None:
            raise ValueError(f'no policy "{name}"; there are {", ".join(POLICIES)}')
        found.append(policy)
    return found
