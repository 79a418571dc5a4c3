"""What a gateway exports of requests: one more is started for it, with the auditor as collector."""

import gzip
from collections.abc import Sequence

from saltwall_security.client import Client
from saltwall_security.errors import AuditError
from saltwall_security.operator import CommandLine
from saltwall_security.recording import Recorded, Recorder
from saltwall_security.suites.secrecy.canaries import Canaries
from saltwall_security.suites.secrecy.places import Found
from saltwall_security.suites.secrecy.provoke import provoke
from saltwall_security.suites.ticket.spied import spied_gateway
from saltwall_security.target import Target

PLACE = "the spans of a gateway"
TAKEN = 200


async def spans(target: Target, canaries: Canaries) -> Sequence[Found]:
    """All that it has exported when it has ended; nothing where none can be started here."""
    operator = target.operator
    if not isinstance(operator, CommandLine) or not operator.local or target.engine_url is None:
        return []
    with Recorder("") as collector:
        collector.holds = TAKEN
        try:
            async with spied_gateway(
                target, operator, SALTWALL_OTLP_ENDPOINT=collector.url
            ) as spied:
                client = Client(spied.target, target.tenants[0])
                try:
                    await provoke(client, canaries)
                finally:
                    await client.close()
        except AuditError as error:
            return [Found(f"{PLACE} ({error})", None)]
        return [Found(PLACE, _content(each)) for each in collector.requests]


def _content(request: Recorded) -> bytes:
    packed = request.header("content-encoding") == "gzip"
    return gzip.decompress(request.body) if packed else request.body
