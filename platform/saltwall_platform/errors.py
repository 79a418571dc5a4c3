"""What a client is told when it is not served: OpenAI error objects, and nothing secret."""

import json
from collections.abc import Mapping

RETRY_AFTER_S = 2


class StartError(Exception):
    """The gateway cannot start; the message says what to do."""


class ApiError(Exception):
    """Ends a request with an OpenAI error object.

    Args:
        status: the HTTP status.
        message: for the client; says what to do and holds no secret.
        kind: the object's `type`.
        code: the object's `code`, stable for programs.
        param: the field of the request that is wrong.
        headers: further response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | int | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The error object, as JSON."""
        fields = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": fields}, separators=(",", ":")).encode()

    def event(self) -> bytes:
        """The same as an SSE event, for a stream that has begun."""
        return b"data: " + self.body() + b"\n\n"


class ClientGone(Exception):
    """The client closed its connection."""


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The body is not one we accept."""
    return ApiError(400, message, param=param)


def missing_key() -> ApiError:
    """No API key was sent."""
    return ApiError(
        401,
        "Send your API key in an Authorization header: Authorization: Bearer sw_live_...",
        code="missing_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def invalid_key() -> ApiError:
    """The same answer, byte for byte, for an unknown, malformed, revoked and expired key."""
    return ApiError(
        401,
        "This API key is not valid. Ask your operator for a new one.",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def suspended() -> ApiError:
    """The key is good, its tenant may not use the service now."""
    return ApiError(
        403,
        "Your account is suspended. Ask your operator.",
        kind="permission_error",
        code="tenant_suspended",
    )


def not_found() -> ApiError:
    """No such route."""
    return ApiError(404, "There is nothing at this URL.", code="not_found")


def method_not_allowed(allowed: str) -> ApiError:
    """The route exists, for another method."""
    return ApiError(
        405, f"Use {allowed} here.", code="method_not_allowed", headers={"allow": allowed}
    )


def model_not_found() -> ApiError:
    """The same answer for a model that is not there and one that this key may not use."""
    return ApiError(
        404,
        "This model does not exist, or your key may not use it. GET /v1/models lists those it may.",
        code="model_not_found",
        param="model",
    )


def body_too_large(limit: int) -> ApiError:
    """The body is over the configured bound (bytes)."""
    return ApiError(413, f"The body is over {limit} bytes.", code="body_too_large")


def body_timeout() -> ApiError:
    """The body did not arrive in time."""
    return ApiError(408, "The body did not arrive in time.", code="body_timeout")


def unsupported_media(message: str) -> ApiError:
    """The body is of a kind that we do not read."""
    return ApiError(415, message, code="unsupported_media_type")


def unavailable(message: str, code: str) -> ApiError:
    """Nothing wrong with the request; it may succeed later."""
    return ApiError(
        503,
        f"{message} Try again in a moment.",
        kind="server_error",
        code=code,
        headers={"retry-after": str(RETRY_AFTER_S)},
    )


def engine_unavailable() -> ApiError:
    """No engine can take the request."""
    return unavailable("The model is not available.", "engine_unavailable")


def engine_failed() -> ApiError:
    """The engine took the request and did not answer it properly."""
    return ApiError(
        502, "The model server failed on this request.", kind="server_error", code="engine_failed"
    )


def engine_timeout() -> ApiError:
    """The engine took the request and fell silent."""
    return ApiError(
        504, "The model server did not answer in time.", kind="server_error", code="engine_timeout"
    )


def internal() -> ApiError:
    """A fault of the gateway itself; the log has it."""
    return ApiError(
        500, "The gateway failed on this request.", kind="server_error", code="internal_error"
    )
