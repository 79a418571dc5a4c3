"""One request and its response, and what is written down about them at the end."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from starlette.datastructures import Headers
from starlette.types import Receive

from saltwall_platform.auth import Caller
from saltwall_platform.reply import Reply
from saltwall_platform.usage import Meter
from saltwall_tenants.clock import utc_now
from saltwall_tenants.usage import UsageRecord

CLIENT_GONE = 499


@dataclass(eq=False)
class Exchange:
    """What the parts of the gateway that handle a request share.

    `route` is one of the fixed labels, `model` one of the configured names or empty: both are safe
    to log. `at_engine`: an engine has, or had, this request, so its usage is to be settled.
    `outcome` is the status to write down; it differs from the response's when that was cut short.
    """

    request_id: str
    method: str
    route: str
    headers: Headers
    receive: Receive
    reply: Reply
    caller: Caller | None = None
    model: str = ""
    stream: bool = False
    engine: str = ""
    at_engine: bool = False
    outcome: int | None = None
    first_byte_s: float | None = None
    meter: Meter = field(default_factory=Meter)
    started_at: datetime = field(default_factory=utc_now)
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def age_s(self) -> float:
        """Since the request came (seconds)."""
        return asyncio.get_running_loop().time() - self.started

    @property
    def status(self) -> int:
        """How it ended."""
        return self.outcome or self.reply.status or CLIENT_GONE

    def usage_record(self) -> UsageRecord | None:
        """The ledger's line; None if no engine has had this request."""
        if self.caller is None or not self.at_engine:
            return None
        usage = self.meter.total()
        return UsageRecord(
            request_id=self.request_id,
            tenant_id=self.caller.principal.tenant_id,
            key_id=self.caller.principal.key_id,
            model=self.model,
            route=self.route,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            status=self.status,
            started_at=self.started_at,
            duration_s=self.age_s,
        )
