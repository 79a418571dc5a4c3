"""The engine's port without a genuine ticket: all routes, made-up credentials, endless bodies."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from saltwall_security.raw_http import Wire
from saltwall_security.recording import Recorded
from saltwall_security.suites.ticket.shots import TIMEOUT_S, Shot
from saltwall_security.suites.ticket.spied import SEAL_HEADER
from saltwall_security.target import Target

DATA_ROUTES: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
)
"""Those that take a ticket; a wrong method there tells nothing."""
ROUTES: Final[Mapping[str, str]] = {
    "GET": (
        "/ /docs /docs/oauth2-redirect /fault_tolerance/status /get_world_size /is_paused "
        "/is_sleeping /kv_event_sources /load /metrics /openapi.json /ping /redoc /server_info "
        "/static/ /tokenizer_info /v1 /v1/models /v1/models/x /v1/responses/x /version "
        "/weight_info /saltwall/v1/attestation /saltwall/v1/metrics /saltwall/v1/usage"
    ),
    "POST": (
        "/ /classify /cohere/v2/chat /cohere/v2/chat/render /detokenize /generate "
        "/generative_scoring /inference/v1/generate /invocations /ping /pooling /rerank /score "
        "/tokenize /v1/audio/speech /v1/audio/transcriptions /v1/audio/translations "
        "/v1/chat/completions/batch /v1/chat/completions/derender /v1/chat/completions/render "
        "/v1/completions/derender /v1/completions/render /v1/load_lora_adapter "
        "/v1/messages/count_tokens /v1/messages/render /v1/rerank /v1/responses/render "
        "/v1/responses/x/cancel /v1/score /v1/systemone /v1/unload_lora_adapter /v2/embed "
        "/v2/rerank"
    ),
    "PUT": "/saltwall/v1/policy /v1/models",
    # Routes that would change or stop the engine are only asked whether they are there.
    "OPTIONS": (
        "/abort_requests /collective_rpc /fault_tolerance/apply /inference/v1/abort_requests "
        "/init_weight_transfer_engine /pause /release_kv_cache_memory /reset_encoder_cache "
        "/reset_mm_cache /reset_prefix_cache /resume /scale_elastic_ep "
        "/shutdown_weight_transfer_engine /sleep /start_profile /start_weight_update "
        "/stop_profile /update_weights /wake_up /weight_checker "
        "/saltwall/v1/tenants/00000000000000000000000000000000/purge"
    ),
}
"""What vLLM serves, by release 0.33, and Saltwall's own; with the method to ask by."""
SOCKETS: Final = ("/v1/realtime", "/v1/chat/completions", "/v1/completions", "/ws", "/")
MILD = frozenset({"GET", "HEAD", "OPTIONS"})
LARGE_BYTES, VAST_BYTES = 33_000_000, 10**12
PATIENCE_S = 15.0


def body(target: Target) -> bytes:
    """A completion as any client of vLLM would send it."""
    return json.dumps({"model": target.model, "prompt": "Salt.", "max_tokens": 1}).encode()


def strangers(target: Target, rng: random.Random) -> Sequence[Shot]:
    """Sound requests with no credentials, those of a tenant, and some made up."""
    plain = (("content-type", "application/json"),)
    key = target.tenants[0].key
    made_up = "".join(rng.choice("ABCDEFGHabcdefgh01234567") for _ in range(157))
    ticket, seal = f"sw1.{made_up[:114]}", made_up[114:]
    salted = json.dumps({"cache_salt": ticket, **json.loads(body(target))}).encode()
    compact = json.dumps(json.loads(salted), separators=(",", ":")).encode()
    shots = []
    for path in DATA_ROUTES[:2]:
        fields = json.loads(body(target))
        if path.endswith("chat/completions"):
            fields["messages"] = [{"role": "user", "content": fields.pop("prompt")}]
        sound = Recorded("POST", path, plain, json.dumps(fields).encode())
        salt = {"cache_salt": "mine"}
        shots += [
            Shot("no credentials", sound),
            Shot("a salt of its own", sound.with_body(json.dumps(fields | salt).encode())),
            Shot("a made-up seal", sound.with_header(SEAL_HEADER, seal)),
        ]
        if key:
            bearer = f"Bearer {key}"
            shots.append(Shot("a tenant's API key", sound.with_header("authorization", bearer)))
    sealed = Recorded("POST", DATA_ROUTES[1], (*plain, (SEAL_HEADER, seal)), compact)
    return [
        *shots,
        Shot("a made-up ticket", replace(sealed, headers=plain)),
        Shot("ticket and seal made up", sealed),
        Shot("ticket and seal made up, spaced", sealed.with_body(salted)),
    ]


def unlisted(
    target: Target, found: Iterable[tuple[str, str]], genuine: Recorded | None
) -> Sequence[Shot]:
    """Every route that the engine might have, without credentials and with a tenant's.

    Args:
        found: (method, path) of its OpenAPI document.
        genuine: a recorded request, whose ticket and seal are tried on all of them.
    """
    routes = {(m, path) for m, paths in ROUTES.items() for path in paths.split()} | set(found)
    plain = (("content-type", "application/json"),)
    shots = []
    for method, path in sorted(routes):
        if path in DATA_ROUTES or path == "/health":
            continue
        kind = f"{method} {path}"
        content = b"" if method in MILD else body(target)
        headers = plain if content else ()
        shots.append(Shot(kind, Recorded(method, path, headers, content)))
        if target.tenants[0].key:
            bearer = ("authorization", f"Bearer {target.tenants[0].key}")
            shots.append(Shot(kind, Recorded(method, path, (*headers, bearer), content)))
        if genuine is not None:
            content = b"" if method in MILD else genuine.body
            shots.append(Shot(kind, Recorded(method, path, genuine.headers, content)))
    return shots


def described(target: Target) -> Iterator[tuple[str, str]]:
    """The routes of the engine's OpenAPI document, if it shows one."""
    secret = target.control_secret
    headers = [("authorization", f"Bearer {secret}")] if secret else []
    with Wire(target.engine_url or "", TIMEOUT_S) as wire:
        reply = wire.send("GET", "/openapi.json", headers)
    try:
        paths: Mapping[str, Mapping[str, Any]] = json.loads(reply.body)["paths"]
        known = ROUTES["OPTIONS"].split()
        for path, methods in paths.items():
            for method in methods:
                filled = "/".join("x" if "{" in part else part for part in path.split("/"))
                # What is not known to be harmless is only asked for.
                harmless = method.upper() in MILD or filled in ROUTES["POST"].split()
                asked = method.upper() if harmless and filled not in known else "OPTIONS"
                yield asked, filled
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def sockets(genuine: Recorded | None) -> Sequence[Shot]:
    """WebSocket handshakes, which middleware for HTTP alone would let through."""
    handshake = (
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "c2FsdHdhbGwtYXVkaXQtMQ=="),
    )
    sealed = ((SEAL_HEADER, genuine.header(SEAL_HEADER)),) if genuine else ()
    return [
        Shot(f"websocket {path}", Recorded("GET", path, (*handshake, *sealed), b""))
        for path in SOCKETS
    ]


def secrets_cut(secret: str) -> Sequence[Shot]:
    """The control secret cut, lengthened, misspelled or presented otherwise."""
    presented = (
        f"Bearer {secret[:-1]}",
        f"Bearer {secret[: len(secret) // 2]}",
        f"Bearer {secret[:8]}",
        f"Bearer {secret}A",
        f"Bearer {secret.swapcase()}",
        f"Bearer {secret[::-1]}",
        "Bearer ",
        "Bearer",
        "",
        f"Basic {secret}",
        f"Bearer {'A' * len(secret)}",
    )
    shots = []
    for path in ("/saltwall/v1/usage", "/metrics", "/v1/models"):
        for value in presented:
            headers = (("authorization", value),)
            shots.append(Shot("a wrong control secret", Recorded("GET", path, headers, b"")))
        whole = ("authorization", f"Bearer {secret}")
        other = ("authorization", "Bearer x")
        for both in ((whole, other), (other, whole)):
            shots.append(Shot("two control secrets", Recorded("GET", path, both, b"")))
    return shots


def endless(genuine: Recorded | None) -> Sequence[Shot]:
    """Bodies that are announced and never sent, and one that is too large."""
    plain = (("content-type", "application/json"),)
    bare = Recorded("POST", DATA_ROUTES[1], plain, b"")
    shots = [
        Shot("10^12 bytes announced, no seal", bare, declared=VAST_BYTES),
        Shot("a megabyte announced and not sent, no seal", bare, declared=2**20),
        Shot("a body without an end, no seal", bare.with_header("transfer-encoding", "chunked")),
    ]
    if genuine is not None:
        sealed = genuine.with_body(b"")
        shots += [
            Shot("10^12 bytes announced, a genuine seal", sealed, declared=VAST_BYTES),
            Shot("33 MB sent, a genuine seal", genuine.with_body(b"x" * LARGE_BYTES)),
        ]
    return shots
