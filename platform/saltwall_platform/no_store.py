"""`Cache-Control: no-store`: what a request computes is not cached, not even for its own tenant.

The header becomes one of vLLM's extra sampling arguments, which reach the block pool with each
sequence of the request. All names that begin as ours do are the gateway's to set: one from a client
is refused, so that nobody believes to have switched off what they have not.
"""

from typing import Any

from starlette.datastructures import Headers

from saltwall_platform.errors import bad_request

PREFIX = "saltwall_"
ARGUMENT = "saltwall_no_store"
FIELD = "vllm_xargs"


def wants_no_store(headers: Headers) -> bool:
    """Whether a request's Cache-Control headers, if any, say no-store (RFC 9111, 5.2.1.5)."""
    directives = ",".join(headers.getlist("cache-control")).split(",")
    return any(directive.strip().lower() == "no-store" for directive in directives)


def settle_no_store(document: dict[str, Any], no_store: bool) -> None:
    """Writes into a request whether it may be cached.

    Raises:
        ApiError: 400; it says so itself, or says no-store where the engine cannot keep it.
    """
    extra = document.get(FIELD)
    if isinstance(extra, dict):
        for name in extra:
            if name.lower().startswith(PREFIX):
                raise bad_request(
                    f"{FIELD} that begin with {PREFIX} are the gateway's own; for a request that"
                    " is not cached send the header Cache-Control: no-store.",
                    FIELD,
                )
    if not no_store:
        return
    if document.get("use_beam_search"):
        # vLLM makes each beam's parameters anew, without the extra arguments.
        raise bad_request(
            "Cache-Control: no-store cannot be kept with use_beam_search.", "use_beam_search"
        )
    if not isinstance(extra, dict | None):
        raise bad_request(f"{FIELD} must be an object.", FIELD)
    document[FIELD] = {**(extra or {}), ARGUMENT: 1}
