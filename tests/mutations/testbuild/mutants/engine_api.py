"""Defects of the API server's process: the gate and what is in force behind it."""

from typing import Any

from mutants.mutant import Mutant, Where

CHECK_OFF = Mutant(
    "ticket-check-off-api",
    "The API process passes every request on, sealed or not; EngineCore alone looks at the ticket.",
    Where.API,
    "ticket",
    "G7",
)


@CHECK_OFF.replaces("saltwall_engine.middleware:Gate._admit_data")
async def _(original: Any, gate: Any, scope: Any, receive: Any) -> Any:
    gate._check_ready()
    return receive


HEADERS_PASSED = Mutant(
    "headers-passed-on",
    "The gate passes a sealed request's other headers on: `X-Request-Id` names it inside vLLM.",
    Where.API,
    "ticket",
    "G7",
)


@HEADERS_PASSED.replaces("saltwall_engine.middleware:Gate._admit_data")
async def _(original: Any, gate: Any, scope: Any, receive: Any) -> Any:
    headers = scope["headers"]
    replay = await original(gate, scope, receive)
    scope["headers"] = headers
    return replay


METRICS_OPEN = Mutant(
    "metrics-without-secret",
    "The engine's metrics, with every tenant's load, need no control secret.",
    Where.API,
    "ticket",
    "G7",
)


@METRICS_OPEN.replaces("saltwall_engine.middleware:Gate._check_control")
def _(original: Any, gate: Any, scope: Any) -> None:
    if not scope["path"].rstrip("/").endswith("metrics"):
        original(gate, scope)


DEFAULT_ALLOW = Mutant(
    "unlisted-routes-served",
    "Routes of vLLM's that are on no list are served to whoever asks.",
    Where.API,
    "ticket",
    "G7",
)


@DEFAULT_ALLOW.replaces("saltwall_engine.middleware:Gate._admit")
async def _(original: Any, gate: Any, scope: Any, receive: Any) -> Any:
    from saltwall_engine.middleware import Refused

    try:
        return await original(gate, scope, receive)
    except Refused as refused:
        if refused.status != 404:
            raise
        return receive


QUOTA_FIRST = Mutant(
    "quota-delays-revocation",
    "A policy whose quota section is refused is refused whole: its revocations wait.",
    Where.API,
    "quota",
    "G7",
)


@QUOTA_FIRST.replaces("saltwall_engine.api_state:ApiState.apply")
async def _(original: Any, state: Any, policy: Any) -> Any:
    told = await state.quotas.apply(policy.quotas)
    return told if "refused" in told else await original(state, policy)


OVERRIDE_STAYS = Mutant(
    "cleared-quota-stays",
    "A tenant whose quota is cleared keeps the old one.",
    Where.API,
    "quota",
    "G4",
    taints=True,
)


@OVERRIDE_STAYS.replaces("saltwall_engine.enforced_quotas:EnforcedQuotas._changes")
def _(original: Any, quotas: Any, wanted: Any) -> Any:
    return [change for change in original(quotas, wanted) if change[0] in wanted]
