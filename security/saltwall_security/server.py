"""Which server answers, as far as it says so itself."""

import asyncio
from urllib.parse import urlsplit

import httpx

from saltwall_security.answer_json import members
from saltwall_security.bounded_http import http_client
from saltwall_security.target import Target

TIMEOUT_S = 5.0


async def server_version(target: Target) -> str | None:
    """What is said on the target's own port or the engine's; None for silence.

    That it is vLLM is said by its list of models.
    """
    parts = urlsplit(target.url)
    origins = {f"{parts.scheme}://{parts.netloc}": target.tenants[0].key}
    if target.engine_url:
        # The secret is for the engine alone; without one a key opens its list, where it is ours.
        origins[target.engine_url] = target.control_secret or origins.get(target.engine_url)
    async with http_client(TIMEOUT_S) as http:
        for origin, secret in origins.items():
            headers = {"authorization": f"Bearer {secret}"} if secret else {}
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await http.get(f"{origin}/version", headers=headers)
                    found = members(answer.content) or {}
                    if isinstance(found.get("version"), str):
                        listed = await http.get(f"{origin}/v1/models", headers=headers)
                        name = "vLLM" if _is_vllm(listed.content) else "version"
                        return f"{name} {found['version']}"
            except (httpx.HTTPError, TimeoutError):
                continue
    return None


def _is_vllm(listed: bytes) -> bool:
    rows = (members(listed) or {}).get("data")
    return isinstance(rows, list) and any(
        isinstance(row, dict) and row.get("owned_by") == "vllm" for row in rows
    )
