"""Which server answers, as far as it says so itself."""

import asyncio
from urllib.parse import urlsplit

import httpx

from saltwall_security.answer_json import members
from saltwall_security.bounded_http import http_client
from saltwall_security.target import Target

TIMEOUT_S = 5.0


async def server_version(target: Target) -> str | None:
    """What vLLM says of itself, on the target's own port or the engine's; None for silence."""
    parts = urlsplit(target.url)
    origins = [f"{parts.scheme}://{parts.netloc}"]
    origins += [target.engine_url] if target.engine_url else []
    headers = {}
    if target.control_secret:
        headers["authorization"] = f"Bearer {target.control_secret}"
    async with http_client(TIMEOUT_S) as http:
        for origin in origins:
            # The secret is for the engine alone.
            sent = headers if origin == target.engine_url else {}
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await http.get(f"{origin}/version", headers=sent)
            except (httpx.HTTPError, TimeoutError):
                continue
            found = members(answer.content) or {}
            if isinstance(found.get("version"), str):
                return f"vLLM {found['version']}"
    return None
