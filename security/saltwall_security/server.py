"""Which server answers, as far as it says so itself."""

from urllib.parse import urlsplit

import httpx

from saltwall_security.target import Target
from saltwall_security.trust import system_trust

TIMEOUT_S = 5.0


async def server_version(target: Target) -> str | None:
    """What vLLM says of itself, on the target's own port or the engine's; None for silence."""
    parts = urlsplit(target.url)
    origins = [f"{parts.scheme}://{parts.netloc}"]
    origins += [target.engine_url] if target.engine_url else []
    headers = {}
    if target.control_secret:
        headers["authorization"] = f"Bearer {target.control_secret}"
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=system_trust()) as http:
        for origin in origins:
            # The secret is for the engine alone.
            sent = headers if origin == target.engine_url else {}
            try:
                found = (await http.get(f"{origin}/version", headers=sent)).json()
            except (httpx.HTTPError, ValueError):
                continue
            if isinstance(found, dict) and isinstance(found.get("version"), str):
                return f"vLLM {found['version']}"
    return None
