"""Defects of the gateway, and of the command line beside it."""

import asyncio
import hashlib
import hmac
import json
from typing import Any

from mutants import switch
from mutants.mutant import Mutant, Where

PER_CHARACTER_S = 0.002
"""An early exit's real cost is nanoseconds; this is one that a short test can see (seconds)."""
FOUND_S = 0.02

CONSTANT_SALT = Mutant(
    "salt-constant-across-tenants",
    "Every tenant's salt is derived from the same secret.",
    Where.GATEWAY,
    "isolation",
    "G1",
    taints=True,
)


@CONSTANT_SALT.replaces("saltwall_tenants.wire.salt:derive_kv_salt")
def _(original: Any, secret: bytes, name: str, scope: str = "") -> bytes:
    return bytes(original(bytes(32), name, scope))


SCOPE_UNFRAMED = Mutant(
    "scope-joined-without-framing",
    "A sub-scope is appended to the tenant's secret: HMAC pads keys, so `a` and `a\\0` are one.",
    Where.GATEWAY,
    "isolation",
    "G1",
)


@SCOPE_UNFRAMED.replaces("saltwall_tenants.wire.salt:derive_kv_salt")
def _(original: Any, secret: bytes, name: str, scope: str = "") -> bytes:
    return hmac.new(secret + scope.encode(), name.encode(), hashlib.sha256).digest()


SCOPE_IGNORED = Mutant(
    "scope-ignored-in-streams",
    "The sub-scope of a streamed request is dropped.",
    Where.GATEWAY,
    "isolation",
    "G1",
)


@SCOPE_IGNORED.replaces("saltwall_platform.call:read_call")
def _(original: Any, *args: Any, **kwargs: Any) -> Any:
    from dataclasses import replace

    call = original(*args, **kwargs)
    return replace(call, scope="") if call.stream else call


RETIRED_ACCEPTED = Mutant(
    "retired-generation-accepted",
    "Engines are told to accept every generation of a tenant's salt that there ever was.",
    Where.GATEWAY,
    "rotation",
    "G9",
)


@RETIRED_ACCEPTED.replaces("saltwall_tenants.policy:snapshot")
async def _(original: Any, tx: Any, name: str, *, earlier: Any = None, **kwargs: Any) -> Any:
    from dataclasses import replace

    made = await original(tx, name, earlier=earlier, **kwargs)
    if made is earlier:
        return made
    section = made.authorisation
    ever = {tenant: frozenset(range(1, max(now) + 1)) for tenant, now in section.tenants.items()}
    return replace(made, authorisation=replace(section, tenants=ever))


REVOCATION_CACHED = Mutant(
    "revocation-cached",
    "An answer about a key is kept for a minute, whatever changes.",
    Where.GATEWAY,
    "keys",
    "G7",
)


@REVOCATION_CACHED.replaces("saltwall_platform.auth:Authenticator._forget")
def _(original: Any, authenticator: Any, sections: Any) -> None:
    loop, first = asyncio.get_running_loop(), switch.scratch()
    if loop.time() - first.setdefault("began", loop.time()) > 60:
        first.clear()
        original(authenticator, sections)


REVOKED_KEY_RUNS_ON = Mutant(
    "revoked-key-runs-on",
    "Running requests of a revoked key are left alone.",
    Where.GATEWAY,
    "keys",
    "G7",
)


@REVOKED_KEY_RUNS_ON.replaces("saltwall_platform.inflight:InFlight._verdict")
async def _(original: Any, in_flight: Any, presented: str) -> Any:
    refusal = await original(in_flight, presented)
    return None if refusal is not None and refusal.status == 401 else refusal


REFUSALS_DIFFER = Mutant(
    "refusals-differ",
    "The answer to a malformed key says so, unlike the one to an unknown or revoked key.",
    Where.GATEWAY,
    "keys",
    "G7",
)


@REFUSALS_DIFFER.replaces("saltwall_platform.auth:Authenticator.check")
async def _(original: Any, authenticator: Any, presented: str) -> Any:
    from saltwall_platform.errors import ApiError
    from saltwall_tenants import key_format

    try:
        return await original(authenticator, presented)
    except ApiError as error:
        if error.status == 401 and key_format.read(presented) is None:
            error.message = "This API key is malformed. Ask your operator for a new one."
        raise


COMPARED_BY_CHARACTER = Mutant(
    "key-compared-by-character",
    "A key's secret is compared character by character, up to the first that differs.",
    Where.GATEWAY,
    "keys",
    "G7",
)
KEY_ID_FOUND = Mutant(
    "key-id-takes-longer",
    "A key whose public id exists is refused later than one whose id does not.",
    Where.GATEWAY,
    "keys",
    "G7",
)


@COMPARED_BY_CHARACTER.replaces("saltwall_platform.auth:Authenticator._lookup")
async def _(original: Any, authenticator: Any, presented: str, version: int) -> Any:
    from saltwall_tenants import key_format

    principal = await original(authenticator, presented, version)
    parts = key_format.read(presented)
    if parts is None:
        return principal
    genuine = switch.scratch()
    if principal is not None:
        genuine[parts.public_id] = parts.secret
        return principal
    pairs = zip(parts.secret, genuine.get(parts.public_id, ""), strict=False)
    same = next((at for at, (a, b) in enumerate(pairs) if a != b), 0)
    await asyncio.sleep(PER_CHARACTER_S * same)
    return principal


@KEY_ID_FOUND.replaces("saltwall_tenants.api_keys:authenticate")
async def _(original: Any, tx: Any, keyring: Any, plaintext: str, **kwargs: Any) -> Any:
    from sqlalchemy import select

    from saltwall_tenants import key_format
    from saltwall_tenants.models import ApiKeyRow

    principal = await original(tx, keyring, plaintext, **kwargs)
    parts = key_format.read(plaintext)
    if principal is None and parts is not None:
        known = select(ApiKeyRow.public_id).where(ApiKeyRow.public_id == parts.public_id)
        if (await tx.execute(known)).first() is not None:
            await asyncio.sleep(FOUND_S)
    return principal


PROMPT_LOGGED = Mutant(
    "prompt-logged-on-error",
    "A request that the engine refuses is logged with its body.",
    Where.GATEWAY,
    "secrecy",
    "G10",
    taints=True,
)


@PROMPT_LOGGED.replaces("saltwall_platform.engine_errors:client_error")
async def _(original: Any, upstream: Any, call: Any, replica: Any, metrics: Any) -> Any:
    from saltwall_platform import engine_errors

    engine_errors.log.error("engine refused a request", request=json.dumps(call.document))
    return await original(upstream, call, replica, metrics)


PROMPT_TRACED = Mutant(
    "prompt-in-span",
    "A request's body is an attribute of its span.",
    Where.GATEWAY,
    "secrecy",
    "G10",
)


@PROMPT_TRACED.replaces("saltwall_platform.call:read_call")
def _(original: Any, *args: Any, **kwargs: Any) -> Any:
    from opentelemetry import trace

    call = original(*args, **kwargs)
    trace.get_current_span().set_attribute("body", json.dumps(call.document))
    return call


ERROR_QUOTES = Mutant(
    "error-quotes-prompt",
    "The engine's error messages reach the client with what they quote of the prompt.",
    Where.GATEWAY,
    "secrecy",
    "G10",
)


@ERROR_QUOTES.replaces("saltwall_platform.echo:without_echo")
def _(original: Any, message: str, document: Any) -> str:
    return message


KEY_IN_AUDIT = Mutant(
    "key-in-database",
    "A new key's plaintext is kept in the audit log.",
    Where.COMMAND,
    "secrecy",
    "G10",
    taints=True,
)


@KEY_IN_AUDIT.replaces("saltwall_tenants.api_keys:create")
async def _(original: Any, tx: Any, *args: Any, actor: str, **kwargs: Any) -> Any:
    from saltwall_tenants import audit

    made = await original(tx, *args, actor=actor, **kwargs)
    await audit.record(
        tx,
        actor=actor,
        action="key.create",
        subject=f"key:{made.record.public_id}",
        detail={"key": made.plaintext},
    )
    return made


REQUEST_ID_PASSED = Mutant(
    "request-id-passed-through",
    "The client chooses the request id that the engine uses.",
    Where.GATEWAY,
    "ticket",
    "G7",
)


@REQUEST_ID_PASSED.replaces("saltwall_platform.call:read_call")
def _(original: Any, body: bytes, **kwargs: Any) -> Any:
    call = original(body, **kwargs)
    chosen = json.loads(body).get("request_id")
    if chosen is not None:
        call.document["request_id"] = chosen
    return call


@REQUEST_ID_PASSED.replaces("saltwall_platform.call:Call.encode")
def _(original: Any, call: Any, *, request_id: str, **kwargs: Any) -> bytes:
    chosen = call.document.get("request_id", request_id)
    return bytes(original(call, request_id=chosen, **kwargs))


LOAD_HEADER = Mutant(
    "load-in-a-header",
    "Each answer says in a header how many requests the engine has.",
    Where.GATEWAY,
    "ticket",
    "G7",
)


@LOAD_HEADER.replaces("saltwall_platform.generate:Generate._relay")
async def _(original: Any, generate: Any, exchange: Any, call: Any, replica: Any, up: Any) -> Any:
    up.headers["x-engine-requests"] = str(replica.requests)
    return await original(generate, exchange, call, replica, up)


@LOAD_HEADER.replaces("saltwall_platform.generate:_passed_on")
def _(original: Any, upstream: Any) -> dict[str, str]:
    return {
        **original(upstream),
        "x-engine-requests": upstream.headers.get("x-engine-requests", "0"),
    }
