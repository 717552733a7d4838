"""Refuses requests that ask KVServe for what cannot be with 400, before they reach the engine.

    vllm serve MODEL --middleware kvserve.vllm.request_check.RequestCheck ...

Without it such a request fails in the engine (kv_load_failure_policy "fail") or is served without
compression and told so ("recompute").
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from kvserve.vllm.decision import RequestError, parse_profile, requested

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PATHS = ("/v1/completions", "/v1/chat/completions")


def fault(body: bytes) -> str | None:
    """What a request's body asks wrongly of KVServe. Bodies that are no JSON object are the
    server's to refuse."""
    try:
        request = json.loads(body)
    except ValueError:
        return None
    if not isinstance(request, dict):
        return None
    params, xargs = (value if isinstance(value, dict) else {} for value in
                     (request.get("kv_transfer_params"), request.get("vllm_xargs")))
    if params.get("do_remote_prefill"):
        params = {}  # what a prefill engine says, not the client
    try:
        fields = requested(params, xargs)
        if "profile" in fields:
            parse_profile(fields["profile"])
    except RequestError as error:
        return str(error)
    return None


class RequestCheck:
    """ASGI middleware."""

    def __init__(self, app: Callable[..., Awaitable[None]]):
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("path") not in _PATHS \
                or scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return
        messages, body = [], b""
        while True:
            message = await receive()
            messages.append(message)
            body += message.get("body", b"")
            if message["type"] != "http.request" or not message.get("more_body"):
                break
        if (wrong := fault(body)) is not None:
            await _refuse(send, wrong)
            return

        async def again() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, again, send)


async def _refuse(send: Send, wrong: str) -> None:
    answer = json.dumps({"error": {"message": wrong, "type": "BadRequestError",
                                   "param": "kv_transfer_params.kvserve", "code": 400}}).encode()
    await send({"type": "http.response.start", "status": 400,
                "headers": [(b"content-type", b"application/json"),
                            (b"content-length", str(len(answer)).encode())]})
    await send({"type": "http.response.body", "body": answer})
