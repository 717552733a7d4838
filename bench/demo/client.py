"""A completions client: one request, what it cost, and what the decode node says about it."""

import dataclasses
import http.client
import json
import time

STAGES = ("prefill", "encode", "wire", "decode", "first_token", "rest")
REQUEST_SECONDS = 300


@dataclasses.dataclass
class Answer:
    tokens: list[int]
    jct_ms: float  # at the client: request written to response read
    ttft_ms: float
    profile: str
    reason: str
    compression_ratio: float
    wire_bytes: int
    raw_bytes: int
    link_bytes_per_s: float
    recomputed_tokens: int
    stages_ms: dict[str, float]


class RequestFailed(Exception):
    pass


class Client:
    def __init__(self, make_socket, port: int):
        self.make_socket = make_socket
        self.port = port

    def _call(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.sock = self.make_socket()
        connection.sock.settimeout(seconds)
        try:
            connection.sock.connect(("127.0.0.1", self.port))
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def healthy(self) -> bool:
        try:
            return self._call("GET", "/healthz", None, 2)[0] == 200
        except OSError:
            return False

    def models(self) -> dict:
        return json.loads(self._call("GET", "/v1/models", None, 10)[1])

    def complete(self, prompt: list[int], profile: str | None, max_tokens: int) -> Answer:
        """Greedy completion of a prompt given as token ids, with the profile pinned. RequestFailed
        says what the node answered instead, or how the connection ended."""
        request = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                   "ignore_eos": True, "return_token_ids": True}
        if profile is not None:
            request["kvserve"] = {"profile": profile}
        started = time.monotonic()
        try:
            status, body = self._call("POST", "/v1/completions", json.dumps(request).encode(),
                                      REQUEST_SECONDS)
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"{type(error).__name__}: {error}") from error
        jct_ms = (time.monotonic() - started) * 1e3
        if status != 200:
            raise RequestFailed(f"HTTP {status}: {body[:300].decode(errors='replace')}")
        return parse(json.loads(body), jct_ms)


def parse(document: dict, jct_ms: float) -> Answer:
    choice, facts = document["choices"][0], document.get("kvserve", {})
    stages = facts.get("stages_ms", {})
    return Answer(
        tokens=choice.get("token_ids", []),
        jct_ms=jct_ms,
        ttft_ms=facts.get("ttft_ms", 0.0),
        profile=facts.get("profile", ""),
        reason=facts.get("reason", ""),
        compression_ratio=facts.get("compression_ratio") or 1.0,
        wire_bytes=facts.get("wire_bytes", 0),
        raw_bytes=facts.get("raw_bytes", 0),
        link_bytes_per_s=facts.get("link_bytes_per_s") or 0.0,
        recomputed_tokens=facts.get("recomputed_tokens", 0),
        stages_ms={stage: stages.get(stage, 0.0) for stage in STAGES})
