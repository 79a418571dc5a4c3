"""Sends one sealed request to one engine, and reads what comes back."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from saltwall_platform.call import Call
from saltwall_platform.errors import engine_failed, engine_timeout, engine_unavailable
from saltwall_platform.kv_salts import KvSalt
from saltwall_platform.replicas import Replica
from saltwall_tenants.api_keys import Principal
from saltwall_tenants.wire import SEAL_HEADER, Ticket, make_seal, make_ticket

CONNECT_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 60.0
# Below vLLM's own 5 s, or a request could be sent on a connection that is being closed.
KEEP_ALIVE_S = 2.0


class Unreachable(Exception):
    """The engine cannot have seen the request, so another may be tried."""


def new_client() -> httpx.AsyncClient:
    """The client for all engines: no proxy, no redirects, no compression, no cookies."""
    return httpx.AsyncClient(
        trust_env=False,
        verify=_system_trust(),
        follow_redirects=False,
        headers={"accept-encoding": "identity", "user-agent": "saltwall"},
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S),
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=100, keepalive_expiry=KEEP_ALIVE_S
        ),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


@cache
def _system_trust() -> ssl.SSLContext:
    """The system's certificates; reading them takes a while."""
    return ssl.create_default_context()


def seal(
    call: Call, replica: Replica, principal: Principal, salt: KvSalt, *, path: str, request_id: str
) -> tuple[bytes, dict[str, str]]:
    """Makes the body with a ticket issued now, and the header that binds the two."""
    key_id = max(replica.keys.tickets)
    ticket = make_ticket(
        key_id,
        replica.keys.tickets[key_id],
        replica.engine.name,
        Ticket(principal.tenant_id, salt.generation, salt.salt, int(time.time())),
    )
    body = call.encode(
        request_id=request_id, ticket=ticket, running_usage=not replica.recounts_reasoning
    )
    return body, {SEAL_HEADER: make_seal(replica.keys.seals[key_id], ticket, "POST", path, body)}


class Upstream:
    """An engine's answer as it arrives; how long it may be silent is bounded."""

    def __init__(self, response: httpx.Response, deadline: float, idle_s: float) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.first_byte_at: float | None = None
        self._chunks = response.aiter_raw()
        self._deadline = deadline
        self._idle_s = idle_s

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            ApiError: 504 after silence; 503, or once it has begun 502, after a broken connection.
        """
        loop = asyncio.get_running_loop()
        while True:
            begun = self.first_byte_at is not None
            with _translated(begun=begun):
                async with asyncio.timeout_at(
                    loop.time() + self._idle_s if begun else self._deadline
                ):
                    chunk = await anext(self._chunks, None)
            if chunk is None:
                return
            if not begun:
                self.first_byte_at = loop.time()
            yield chunk

    async def read(self, limit: int) -> bytes:
        """The whole body; raises as `chunks` does, and 502 over `limit` bytes."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > limit:
                raise engine_failed()
        return bytes(body)


@asynccontextmanager
async def post(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    headers: dict[str, str],
    *,
    first_byte_s: float,
    idle_s: float,
) -> AsyncIterator[Upstream]:
    """Sends a request; leaving the context closes the connection unless the answer was read.

    Raises:
        Unreachable: no connection could be made.
        ApiError: 504, no answer in time; 503, the connection broke.
    """
    deadline = asyncio.get_running_loop().time() + first_byte_s
    request = client.build_request("POST", url, content=body, headers=headers)
    with _translated(begun=False):
        async with asyncio.timeout_at(deadline):
            response = await client.send(request, stream=True)
    try:
        yield Upstream(response, deadline, idle_s)
    finally:
        await response.aclose()


@contextmanager
def _translated(*, begun: bool) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
        raise Unreachable from None
    except (TimeoutError, httpx.TimeoutException):
        raise engine_timeout() from None
    except httpx.HTTPError:
        raise (engine_failed() if begun else engine_unavailable()) from None
