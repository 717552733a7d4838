"""Streaming completions: which tokens, and when they came."""

import dataclasses
import http.client
import json
import re
import time

REQUEST_SECONDS = 300


class RequestFailed(Exception):
    """How the request ended instead: what the server answered, or what became of the connection."""

    def __init__(self, what: str, status: int = 0):
        super().__init__(what)
        self.status = status


class Aborted(Exception):
    """The client hung up, as asked."""


@dataclasses.dataclass
class Answer:
    tokens: list[int]
    ttft_ms: float
    jct_ms: float
    finish_reason: str
    token_ms: list[float]  # when each event with tokens came, since the request
    report: dict = dataclasses.field(default_factory=dict)  # the connector's, of the transfer


class Client:
    """A server as seen from one side of the network."""

    def __init__(self, network, side: str, host: str, port: int):
        self.network, self.side, self.host, self.port = network, side, host, port

    def _open(self, method: str, path: str, body: dict | None, seconds: float):
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.sock = self.network.socket(self.side)
        try:
            connection.sock.settimeout(seconds)
            connection.sock.connect((self.host, self.port))
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} if data else {}
            connection.request(method, path, body=data, headers=headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def get(self, path: str, seconds: float = 5) -> tuple[int, str]:
        connection, response = self._open("GET", path, None, seconds)
        try:
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()

    def post(self, path: str, body: dict, seconds: float = REQUEST_SECONDS) -> tuple[int, dict]:
        connection, response = self._open("POST", path, body, seconds)
        try:
            text = response.read().decode(errors="replace")
            return response.status, json.loads(text) if text.startswith("{") else {"text": text}
        finally:
            connection.close()

    def healthy(self) -> bool:
        try:
            return self.get("/health", 2)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def metric(self, name: str) -> float:
        """Sum over the labels of a metric; KeyError where the server has none of that name."""
        text = self.get("/metrics", 30)[1]
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        if not values:
            raise KeyError(name)
        return sum(map(float, values))

    def complete(self, prompt: list[int], max_tokens: int, extra: dict | None = None,
                 abort_after_tokens: int | None = None,
                 seconds: float = REQUEST_SECONDS) -> Answer:
        """Greedy completion of a prompt given as token ids. Hangs up (Aborted) once that many
        tokens have come; 0: once the request is written. RequestFailed covers everything else."""
        body = {"model": "model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, "stream": True, **(extra or {})}
        try:
            return self._stream(body, abort_after_tokens, seconds)
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"{type(error).__name__}: {error}") from error

    def reported(self, prompt: list[int], max_tokens: int, extra: dict | None = None) -> Answer:
        """The same in one piece, which alone brings the connector's report."""
        body = {"model": "model", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, **(extra or {})}
        started = time.monotonic()
        try:
            status, said = self.post("/v1/completions", body)
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"{type(error).__name__}: {error}") from error
        if status != 200:
            raise RequestFailed(f"HTTP {status}: {json.dumps(said)[:400]}", status)
        took_ms, choice = (time.monotonic() - started) * 1e3, said["choices"][0]
        report = (said.get("kv_transfer_params") or {}).get("kvserve") or {}
        return Answer(choice["token_ids"], took_ms, took_ms, choice["finish_reason"], [], report)

    def next_token(self, prompt: list[int], extra: dict | None = None) -> dict[str, float]:
        """Log-probabilities of the 20 likeliest next tokens."""
        body = {"model": "model", "prompt": prompt, "max_tokens": 1, "temperature": 0,
                "logprobs": 20, "return_tokens_as_token_ids": True, **(extra or {})}
        status, said = self.post("/v1/completions", body)
        if status != 200:
            raise RequestFailed(f"HTTP {status}: {json.dumps(said)[:400]}", status)
        return said["choices"][0]["logprobs"]["top_logprobs"][0]

    def _stream(self, body: dict, abort_after_tokens: int | None, seconds: float) -> Answer:
        started = time.monotonic()
        if abort_after_tokens == 0:
            self._write_and_leave(body, seconds)
        connection, response = self._open("POST", "/v1/completions", body, seconds)
        answer = Answer([], 0.0, 0.0, "", [])
        try:
            if response.status != 200:
                said = response.read(400).decode(errors="replace")
                raise RequestFailed(f"HTTP {response.status}: {said}", response.status)
            for event in events(response):
                took_event(answer, event, (time.monotonic() - started) * 1e3)
                if abort_after_tokens is not None and len(answer.tokens) >= abort_after_tokens:
                    raise Aborted
        finally:
            connection.close()
        answer.jct_ms = (time.monotonic() - started) * 1e3
        if not answer.finish_reason:
            raise RequestFailed(f"the stream ended after {len(answer.tokens)} tokens")
        return answer

    def _write_and_leave(self, body: dict, seconds: float) -> None:
        connection = http.client.HTTPConnection(self.host, self.port)
        connection.sock = self.network.socket(self.side)
        try:
            connection.sock.settimeout(seconds)
            connection.sock.connect((self.host, self.port))
            connection.request("POST", "/v1/completions", body=json.dumps(body).encode(),
                               headers={"Content-Type": "application/json"})
            time.sleep(0.05)  # long enough for the request to be under way
        finally:
            connection.close()
        raise Aborted


def events(response):
    """The JSON documents of a stream of server-sent events."""
    for line in response:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[6:])


def took_event(answer: Answer, event: dict, now_ms: float) -> None:
    if "error" in event:
        raise RequestFailed(json.dumps(event["error"])[:400])
    for choice in event.get("choices", []):
        if choice.get("token_ids"):
            answer.ttft_ms = answer.ttft_ms or now_ms
            answer.tokens += choice["token_ids"]
            answer.token_ms.append(now_ms)
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
