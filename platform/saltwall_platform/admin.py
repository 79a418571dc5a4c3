"""The operators' side: health, readiness and metrics, for this machine only."""

from collections.abc import Callable, Iterable

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.middleware.base import RequestResponseEndpoint

from saltwall_platform.freshness import MAX_STALENESS_S, Freshness
from saltwall_platform.metrics import Metrics
from saltwall_platform.replicas import Replica
from saltwall_platform.settings import is_loopback


def admin_app(
    freshness: Freshness,
    replicas: Iterable[Replica],
    metrics: Metrics,
    closing: Callable[[], bool],
) -> FastAPI:
    """Makes the application; `closing` says whether the gateway is about to end."""
    app = FastAPI(title="Saltwall admin", docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def refuse_other_hosts(request: Request, call_next: RequestResponseEndpoint) -> Response:
        # A web page in a browser here can reach loopback under a name of its own (DNS rebinding).
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if not is_loopback(name):
            return PlainTextResponse("Use a loopback address.\n", status_code=421)
        return await call_next(request)

    @app.get("/healthz")
    async def health() -> PlainTextResponse:
        """The process is alive."""
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def ready() -> JSONResponse:
        """Whether requests can be served, and if not why."""
        reasons = []
        if closing():
            reasons.append("shutting down")
        if freshness.age_s > MAX_STALENESS_S:
            reasons.append("the database does not answer: is it migrated (saltwall db upgrade)?")
        engines = [
            {
                "engine": r.label,
                "url": r.engine.url,
                "routable": r.routable,
                "problem": r.problem,
                "quotas_problem": r.quotas_problem,  # it serves all the same, with older quotas
            }
            for r in replicas
        ]
        if not any(r.routable for r in replicas):
            reasons.append("no engine is routable")
        document = {"ready": not reasons, "reasons": reasons, "engines": engines}
        return JSONResponse(document, status_code=503 if reasons else 200)

    @app.get("/metrics")
    async def prometheus() -> Response:
        """Prometheus' exposition format."""
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return app
