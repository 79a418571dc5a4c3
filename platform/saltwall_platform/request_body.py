"""Reads a request's body: bounded in bytes and in time."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive

from saltwall_platform.errors import (
    ApiError,
    ClientGone,
    body_timeout,
    body_too_large,
    unsupported_media,
)

BODY_TIMEOUT_S = 60.0
# A client that is cut off while it sends may never read why, so some of the rest is read too.
DRAIN_BYTES = 64_000_000
DRAIN_S = 2.0


def check_media(headers: Headers) -> None:
    """Raises:
    ApiError: 415; the body is compressed, or not declared as JSON.
    """
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise unsupported_media("Send the body without Content-Encoding.")
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise unsupported_media("Send the body as Content-Type: application/json.")


async def read_body(headers: Headers, receive: Receive, limit: int) -> bytes:
    """Reads at most `limit` bytes, whatever Content-Length says.

    Raises:
        ApiError: 413 over the limit, 408 when it does not arrive in a minute.
        ClientGone: the client closed the connection first.
    """
    declared = headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        if headers.get("expect", "").lower() != "100-continue":
            await _drain(receive)
        raise body_too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            more = True
            while more:
                chunk, more = await _next(receive)
                body += chunk
                if len(body) > limit:
                    raise body_too_large(limit)
    except TimeoutError:
        raise body_timeout() from None
    except ApiError:
        body.clear()
        if more:
            await _drain(receive)
        raise
    return bytes(body)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: Receive) -> None:
    left = DRAIN_BYTES
    try:
        async with asyncio.timeout(DRAIN_S):
            more = True
            while more and left > 0:
                chunk, more = await _next(receive)
                left -= len(chunk)
    except TimeoutError:
        pass
