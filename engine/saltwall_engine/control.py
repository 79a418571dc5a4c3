"""The entry point `vllm.endpoint_plugins`: control routes, and the gate before every route."""

from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware import Middleware
from vllm.v1.engine.async_llm import AsyncLLM

from saltwall_engine import boot, fitting_llm
from saltwall_engine.api_state import ApiState
from saltwall_engine.discretion import withhold_messages
from saltwall_engine.errors import BootRefused
from saltwall_engine.middleware import CONTROL_PREFIX, Gate
from saltwall_engine.scheduler import read_keys
from saltwall_tenants.wire import Refusal, WireError

router = APIRouter(prefix=CONTROL_PREFIX.rstrip("/"), include_in_schema=False)


def _state(request: Request) -> ApiState:
    state: ApiState = request.app.state.saltwall
    return state


@router.put("/policy")
async def put_policy(request: Request) -> Response:
    """Takes a policy and renews the lease; says apart what became of the quotas."""
    state = _state(request)
    try:
        policy = await state.decode(await request.body())
        quotas = await state.apply(policy)
    except WireError as error:
        conflict = error.refusal in (Refusal.STALE_EPOCH, Refusal.EPOCH_CONFLICT)
        return _error(409 if conflict else 400, error)
    return JSONResponse(
        {
            "authorisation_epoch": policy.authorisation.epoch,
            "lease_seconds": policy.lease.seconds,
            "quotas": quotas,
        }
    )


@router.get("/attestation")
async def get_attestation(request: Request) -> Response:
    """Says what this engine hashes with, and its versions."""
    attestation = _state(request).attestation
    if attestation is None:
        return _error(503, WireError(Refusal.NOT_READY))
    return Response(attestation.encode(), media_type="application/json")


@router.get("/usage")
async def get_usage(request: Request) -> Response:
    """Says who runs, waits and holds cached blocks."""
    return JSONResponse(await _state(request).usage())


@router.get("/metrics")
async def get_metrics(request: Request) -> Response:
    """Says the same to Prometheus, of the tenants that hold most."""
    return Response(await _state(request).metrics(), media_type=CONTENT_TYPE_LATEST)


@router.post("/tenants/{tenant}/purge")
async def purge(request: Request, tenant: str) -> Response:
    """Makes everything that is cached for a tenant unreachable."""
    return JSONResponse({"blocks": await _state(request).purge_tenant(tenant)})


def _error(status: int, error: WireError) -> Response:
    body = {
        "message": str(error),
        "type": "invalid_request_error",
        "param": None,
        "code": error.refusal.value,
    }
    headers = {"x-saltwall-refusal": error.refusal.value}
    return JSONResponse({"error": body}, status, headers)


class Endpoint:
    """The plugin as vLLM knows it (plugins/endpoint_plugins/interface.py)."""

    name = "saltwall"
    required_tasks = None

    def __init__(self) -> None:
        self._app: FastAPI | None = None

    def attach_router(self, app: FastAPI) -> None:
        """Adds the control routes.

        Raises:
            BootRefused: a flag of the API server opens a way around the gate.
        """
        boot.refuse(boot.frontend_problems(app.state.args))
        self._app = app
        app.include_router(router)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Puts the gate outermost, once every other middleware is in place.

        Raises:
            BootRefused: there is no engine behind this server.
        """
        if self._app is None or not isinstance(engine_client, AsyncLLM):
            raise BootRefused(["a server without an engine has nothing to enforce"])
        state.saltwall = ApiState(read_keys(), engine_client.engine_core)
        await state.saltwall.attest()
        fitting_llm.upgrade(engine_client, state.saltwall)
        self._app.user_middleware.insert(0, Middleware(Gate, state=state.saltwall))
        self._app.middleware_stack = self._app.build_middleware_stack()
        withhold_messages()
