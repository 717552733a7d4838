"""The middleware: wrong requests get 400 in words, all others pass byte for byte."""

import asyncio
import json
import unittest

from kvserve.vllm.request_check import RequestCheck


def call(body: bytes, path: str = "/v1/completions", pieces: int = 3) -> tuple[int, bytes, bytes]:
    """Status, answer and what the application received."""
    received, sent = bytearray(), []

    async def app(scope, receive, send):
        while True:
            message = await receive()
            received.extend(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})

    size = max(1, -(-len(body) // pieces))
    parts = [body[at:at + size] for at in range(0, len(body), size)] or [b""]
    messages = [{"type": "http.request", "body": part, "more_body": part is not parts[-1]}
                for part in parts]

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(RequestCheck(app)({"type": "http", "path": path, "method": "POST"}, receive, send))
    return sent[0]["status"], sent[1]["body"], bytes(received)


class Check(unittest.TestCase):
    def test_wrong_requests_are_refused_in_words(self):
        for extra, word in (({"kv_transfer_params": {"kvserve": {"level": 1}}}, "level"),
                            ({"vllm_xargs": {"kvserve_profile": "ultra"}}, "ultra"),
                            ({"vllm_xargs": {"kvserve_slo_ms": 3}}, "not supported yet")):
            body = json.dumps({"model": "m", "prompt": "x", **extra}).encode()
            for path in ("/v1/completions", "/v1/chat/completions"):
                status, answer, received = call(body, path)
                self.assertEqual(status, 400)
                self.assertIn(word, json.loads(answer)["error"]["message"])
                self.assertEqual(received, b"")

    def test_all_others_pass_as_they_are(self):
        for body in (b"", b"no json", b"[1]", json.dumps({"prompt": "x"}).encode(),
                     json.dumps({"kv_transfer_params": {"kvserve": {"profile": "none"}}}).encode(),
                     json.dumps({"kv_transfer_params": {"do_remote_prefill": True, "kvserve": {
                         "version": 1, "ticket": "t"}}}).encode(),
                     json.dumps({"kv_transfer_params": 7, "vllm_xargs": "x"}).encode()):
            self.assertEqual(call(body), (200, b"served", body))

    def test_other_paths_are_not_read(self):
        body = json.dumps({"vllm_xargs": {"kvserve_profile": "ultra"}}).encode()
        self.assertEqual(call(body, "/v1/embeddings")[0], 200)


if __name__ == "__main__":
    unittest.main()
