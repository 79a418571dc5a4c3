"""A client that sends exactly the bytes a test wants: what a well-behaved library never would."""

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """A response, its headers in order of arrival."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


async def send(port: int, data: bytes, *, then_close: bool = False) -> Answer:
    """Sends bytes, perhaps stops sending, and reads one response until its length or the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if then_close:
            writer.write_eof()
        return await read_answer(reader)
    finally:
        writer.transport.abort()


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Reads one response that has a Content-Length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.split("\r\n")[:-2]
    headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    size = int(dict(headers).get("content-length", "0"))
    return Answer(int(status.split(" ")[1]), headers, await reader.readexactly(size))


def request(method: str, target: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A request as bytes; with a Content-Length unless the headers say how the body is framed."""
    framed = {name.lower() for name in headers} & {"content-length", "transfer-encoding"}
    headers = headers if framed else {**headers, "Content-Length": str(len(body))}
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
