"""Speaks to an engine's control routes."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx

from saltwall_platform.settings import Engine
from saltwall_tenants.wire import Attestation, EngineKeys, Policy, Refusal, WireError

# A busy engine answers between two steps, and a long prefill is one step.
TIMEOUT = httpx.Timeout(15, connect=3)
PUSH_TIMEOUT = httpx.Timeout(30, connect=3)
MAX_REASON_CHARS = 200
MAX_QUOTAS_CHARS = 1000
REFUSAL_HEADER = "x-saltwall-refusal"


class ControlError(Exception):
    """The engine answered, and refused; the message says what an operator can do."""


class PolicyStaleError(ControlError):
    """The engine holds a newer policy, or another one of the same epoch."""


@dataclass(frozen=True)
class Pushed:
    """An engine's answer to a policy that it took.

    `quotas_problem` says why it did not take the quota section, and is empty when it did;
    `quotas_stale`: because it holds a newer one.
    """

    quotas_problem: str = ""
    quotas_stale: bool = False


class EngineControl:
    """The control routes of one engine; transport errors are httpx's."""

    def __init__(self, client: httpx.AsyncClient, engine: Engine, keys: EngineKeys) -> None:
        self._client = client
        self._url = engine.url
        self._name = engine.name
        self._headers = {"authorization": f"Bearer {keys.control}"}

    async def attestation(self) -> Attestation:
        """What the engine says of itself.

        Raises:
            ControlError: it does not say.
        """
        response = await self._client.get(
            f"{self._url}/saltwall/v1/attestation", headers=self._headers, timeout=TIMEOUT
        )
        self._expect_ok(response)
        try:
            return Attestation.decode(response.content)
        except WireError:
            raise ControlError("its attestation is not one: is it a Saltwall engine?") from None

    async def push(self, policy: Policy) -> Pushed:
        """Gives the engine a policy and renews its lease; a refused quota section is no failure.

        Raises:
            PolicyStaleError: it knows better.
            ControlError: it refuses for another reason.
        """
        response = await self._client.put(
            f"{self._url}/saltwall/v1/policy",
            content=await asyncio.to_thread(policy.encode),  # of thousands of tenants
            headers={**self._headers, "content-type": "application/json"},
            timeout=PUSH_TIMEOUT,
        )
        if response.status_code == 409:
            raise PolicyStaleError(
                "it holds a newer policy than the database: was that restored from a backup? any"
                " change of a tenant moves it on"
            )
        self._expect_ok(response)
        return _pushed(response.content) if policy.quotas is not None else Pushed()

    async def usage(self) -> dict[str, Any]:
        """What the engine counts and enforces, per tenant.

        Raises:
            ControlError: it does not say.
        """
        response = await self._client.get(
            f"{self._url}/saltwall/v1/usage", headers=self._headers, timeout=TIMEOUT
        )
        self._expect_ok(response)
        try:
            document = response.json()
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or not isinstance(document.get("tenants"), dict):
            raise ControlError("its usage is not one: is it a Saltwall engine?")
        return document

    async def not_ready(self) -> str:
        """Why the engine takes no requests; empty when it does."""
        response = await self._client.get(f"{self._url}/health", timeout=TIMEOUT)
        if response.status_code == 200:
            return ""
        reason = response.headers.get(REFUSAL_HEADER) or _reason(response.content)
        return reason[:MAX_REASON_CHARS] or f"its /health answers {response.status_code}"

    def _expect_ok(self, response: httpx.Response) -> None:
        match response.status_code:
            case 200:
                return
            case 401 | 403:
                raise ControlError(
                    "it does not accept our control secret: start it with this gateway's"
                    f" engine key file for {self._name!r}"
                )
            case 404:
                raise ControlError("it has no Saltwall plugin: start it with `saltwall engine`")
            case status:
                raise ControlError(f"its control routes answer {status}")


def _pushed(body: bytes) -> Pushed:
    try:
        told = json.loads(body)["quotas"]
        refused, stale = told.get("refused", ""), told.get("reason") == Refusal.STALE_EPOCH
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Pushed("it says nothing of them")
    return Pushed(str(refused)[:MAX_QUOTAS_CHARS], stale)


def _reason(body: bytes) -> str:
    try:
        reason = json.loads(body)["reason"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return reason if isinstance(reason, str) else ""
