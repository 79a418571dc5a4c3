"""HTTP with a bound on what one answer may hold: what is attacked may be hostile too."""

from collections.abc import AsyncIterator
from typing import Any

import httpx

from saltwall_security.trust import system_trust

MOST_BYTES = 2**24


def http_client(timeout_s: float, **options: Any) -> httpx.AsyncClient:
    """A client that trusts the system's certificates and goes through no proxy.

    Longer answers, and those that are packed although nobody asked for it (so that nobody knows
    how long they are), raise an `httpx.HTTPError` as those do that break off.

    Args:
        timeout_s: silence for longer counts as no answer.
        options: further ones of httpx.
    """
    http = httpx.AsyncClient(
        timeout=timeout_s,
        trust_env=False,
        verify=system_trust(),
        event_hooks={"response": [_bound]},
        **options,
    )
    http.headers["accept-encoding"] = "identity"
    return http


async def _bound(response: httpx.Response) -> None:
    packed = response.headers.get("content-encoding", "identity")
    if packed != "identity":
        raise httpx.DecodingError(f"packed with {packed}, which was not asked for")
    response.stream = _Bounded(response.stream)


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                raise httpx.ReadError(f"the answer has more than {MOST_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
