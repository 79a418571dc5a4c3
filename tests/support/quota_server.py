"""A `BlockServer` with ceilings, salts and suspension, and the one defect that a test asks for."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from block_server import BLOCK, Account, BlockOperator, BlockPool, BlockServer
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from saltwall_security.errors import AuditError
from saltwall_security.target import Target, Tenant


@dataclass
class QuotaServer(BlockServer):
    """As `BlockServer`; answers one-word tokens, and ends them with a reason.

    Args:
        defect: "" for none, else one of those that the methods below look for.
    """

    blocks: int = 160
    keys: dict[str, str] | None = field(
        default_factory=lambda: {"key-one": "one", "key-two": "two"}
    )
    defect: str = ""
    suspended: set[str] = field(default_factory=set)
    grace: dict[str, bool] = field(default_factory=dict)
    """By tenant, whether what runs under an older salt may run on."""
    told: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By tenant, the reserve and ceiling that usage tells."""
    refusals: int = 0
    oversold: bool = False

    def target(self, operated: bool = True, told: bool = True) -> Target:
        from dataclasses import replace

        target = super().target(False, told)
        return replace(target, operator=QuotaOperator(self)) if operated else target

    def restart(self) -> None:
        """Forgets what is cached, and takes up the quotas that are stored."""
        if self.defect == "restarts do nothing":
            return
        before, self.pool = self.pool.accounts, BlockPool(self.blocks, self.keeps)
        if self.defect == "restarts forget quotas":
            self.told.clear()
            return
        for owner, account in before.items():
            now = self.pool.account(owner)
            now.reserve, now.ceiling = account.reserve, account.ceiling
            if self.defect == "restarts report what they do not enforce":
                now.ceiling = math.inf
            if self.defect == "restarts bring back what was deleted" and now.ceiling == math.inf:
                now.ceiling = 4
                self.report(owner)

    def report(self, owner: str) -> None:
        """Usage tells a tenant's quota as it is now."""
        account = self.pool.account(owner)
        self.told[owner] = account.reserve, account.ceiling

    def _more(self) -> dict[str, Any]:
        return {"alarms": {"quotas": self.refusals}}

    async def _purge(self, request: Request) -> Response:
        if self.defect == "purges do nothing":
            return JSONResponse({})
        return await super()._purge(request)

    def _row(self, name: str, account: Account) -> dict[str, Any]:
        reserve, ceiling = self.told.get(name, (0, math.inf))
        return {
            "pinned": account.pinned,
            "idle": account.idle,
            "reserve": reserve,
            "ceiling": None if ceiling == math.inf else ceiling,
            "running": account.requests,
            "waiting": 0,
            "evictions_suffered": 0,
        }

    async def _generate(self, request: Request) -> Response:
        owner = self._owner(request)
        if owner is None or owner in self.suspended:
            return JSONResponse({"error": {"message": "who are you?"}}, status_code=401)
        try:
            body = json.loads(await request.body())
        except ClientDisconnect:
            return Response()
        except ValueError:
            return JSONResponse({"error": {"message": "no JSON"}}, status_code=400)
        ceiling = min(self.pool.account(owner).ceiling, self.blocks)
        needs = math.ceil((len(body["prompt"].split()) + body["max_tokens"]) / BLOCK)
        if body["max_tokens"] < 1 or (needs > ceiling and self.defect != "misfits wait"):
            said = f"it needs {needs} blocks of {ceiling}"
            return JSONResponse({"error": {"message": said}}, status_code=400)
        return StreamingResponse(self._stream(owner, body))

    async def _stream(self, owner: str, body: dict[str, Any]) -> AsyncIterator[str]:
        words, account = body["prompt"].split(), self.pool.account(owner)
        generation = account.generation
        salt = 0 if self.defect == "one salt for ever" else generation
        keys = [
            (owner, str(salt), hash(tuple(words[:end])))
            for end in range(BLOCK, len(words) + 1, BLOCK)
        ]
        more = math.ceil((len(words) + body["max_tokens"]) / BLOCK) - len(keys)
        account.requests += 1
        pinned = ended = False
        try:
            cached = await self._pinned(owner, keys, more)
            pinned = True
            cached = min(cached * BLOCK, (len(words) - 1) // BLOCK * BLOCK)
            for at in range(body["max_tokens"]):
                await asyncio.sleep(self.token_s)
                if account.generation != generation and not self.grace.get(owner, True):
                    break
                last = "length" if at + 1 == body["max_tokens"] else None
                choice = {"text": "x", "finish_reason": last}
                yield f"data: {json.dumps({'choices': [choice]})}\n\n"
            ended = True
        finally:
            if pinned and (ended or self.defect != "aborts keep their blocks"):
                self.pool.unpin(owner, keys, more)
                if account.generation != generation and salt:
                    self.pool.drop(owner)
            account.requests -= 1
            async with self._freed:
                self._freed.notify_all()
        usage: dict[str, Any] = {"prompt_tokens": len(words)}
        if self.shown:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"


class Unbounded(BlockPool):
    """Charges nothing for what is cached and idle."""

    def _take(self, owner: str) -> None:
        mine = self.account(owner)
        ceiling, mine.ceiling = mine.ceiling, math.inf
        super()._take(owner)
        mine.ceiling = ceiling


@dataclass
class QuotaOperator(BlockOperator):
    """Whoever operates a `QuotaServer`; amounts are in blocks."""

    server: QuotaServer

    def set_quota(self, tenant: Tenant, **options: str | bool) -> None:
        pool = self.server.pool
        account = pool.account(tenant.name)
        if "reserve" in options:
            reserve = int(str(options["reserve"]))
            if self.server.defect == "commands fail" and reserve > pool.total / 2:
                raise AuditError("`saltwall quota set`: the database is locked")
            others = sum(a.reserve for n, a in pool.accounts.items() if n != tenant.name)
            if others + reserve > pool.total and self.server.defect != "promises too much":
                raise AuditError(f"reserves add up to {others + reserve} of {pool.total} blocks")
            account.reserve = reserve
        if "ceiling" in options:
            ceiling = options["ceiling"]
            account.ceiling = math.inf if ceiling == "none" else int(str(ceiling))
        if options.get("strict"):
            account.ceiling = account.reserve
        if self.server.defect != "lowered ceilings evict nothing":
            self._trim(tenant.name)
        if self.server.defect != "reports stand still":
            self.server.report(tenant.name)

    def oversell(self, tenant: Tenant, blocks: int) -> None:
        if self.server.defect == "asks engines always":
            self.set_quota(tenant, reserve=str(blocks))
        self.server.oversold = True
        self.server.refusals += 1

    def clear_quota(self, tenant: Tenant) -> None:
        self.server.oversold = False
        ceiling = self.server.pool.account(tenant.name).ceiling
        super().clear_quota(tenant)
        self.server.report(tenant.name)
        if self.server.defect == "deleted ceilings stay":
            self.server.pool.account(tenant.name).ceiling = ceiling

    def rotate(self, tenant: Tenant, grace_s: float | None = None) -> None:
        self.server.grace[tenant.name] = (
            bool(grace_s) or self.server.defect == "no grace is ignored"
        ) and self.server.defect != "grace is ignored"
        account = self.server.pool.account(tenant.name)
        account.generation += 1
        if self.server.defect != "one salt for ever":
            self.server.pool.drop(tenant.name)

    def suspend(self, tenant: Tenant) -> None:
        self.server.suspended.add(tenant.name)
        late = self.server.oversold and self.server.defect == "refused quotas delay revocations"
        if not late and self.server.defect != "suspension keeps the cache":
            self.server.pool.drop(tenant.name)

    def resume(self, tenant: Tenant) -> None:
        self.server.suspended.discard(tenant.name)

    def delete_tenant(self, tenant: Tenant) -> None:
        super().delete_tenant(tenant)
        if self.server.defect != "deletion keeps the cache":
            self.server.pool.drop(tenant.name)

    def _trim(self, owner: str) -> None:
        pool = self.server.pool
        account = pool.account(owner)
        for key in [key for key in pool.lru if key[0] == owner]:
            if account.held > account.ceiling:
                pool._evict(key)
