"""An engine's error answers: whose fault each is, and what of it the client may read."""

import json
from typing import Any

import structlog

from saltwall_platform.call import Call
from saltwall_platform.control import REFUSAL_HEADER
from saltwall_platform.echo import without_echo
from saltwall_platform.errors import ApiError, engine_failed, engine_unavailable
from saltwall_platform.metrics import Metrics
from saltwall_platform.redaction import redact
from saltwall_platform.replicas import Replica
from saltwall_platform.upstream import Upstream

MAX_ERROR_BYTES = 2**20
# Only these can be the client's doing; for any other 4xx it sent nothing that explains it.
_CLIENTS_FAULT = frozenset({400, 404, 413, 422, 429})

log = structlog.get_logger(__name__)


def refusal(upstream: Upstream) -> str | None:
    """Why the engine refused the ticket, if that is what it did."""
    reason: str | None = upstream.headers.get(REFUSAL_HEADER)
    return reason if upstream.status in {403, 503} else None


async def client_error(
    upstream: Upstream, call: Call, replica: Replica, metrics: Metrics
) -> ApiError:
    """What the client is told about an answer that is not 200."""
    status = upstream.status
    if status in _CLIENTS_FAULT:
        return _passed_on(status, await upstream.read(MAX_ERROR_BYTES), upstream, call.document)
    log.error("engine failed on a request", engine=replica.label, status=status)
    if 400 <= status < 500:
        metrics.alarm("engine_denied")
        return engine_unavailable()
    return engine_unavailable() if status in {502, 503, 504} else engine_failed()


def _passed_on(status: int, body: bytes, upstream: Upstream, document: dict[str, Any]) -> ApiError:
    """The engine's own error object, without our ticket and without what it quotes."""
    try:
        error = json.loads(body)["error"]
        message, kind, param, code = (error.get(k) for k in ("message", "type", "param", "code"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message, kind, param, code = None, None, None, None
    retry_after = upstream.headers.get("retry-after")
    return ApiError(
        status,
        _text(message, document) or "The model server refused this request.",
        kind=_text(kind, document) or "invalid_request_error",
        param=_text(param, document),
        code=code if type(code) is int else _text(code, document),
        headers={"retry-after": retry_after} if retry_after else None,
    )


def _text(value: Any, document: dict[str, Any]) -> str | None:
    return without_echo(redact(value), document) if isinstance(value, str) else None
