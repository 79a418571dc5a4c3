"""OpenTelemetry spans: one a request and one an attempt at an engine, exported when configured."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from opentelemetry import context, trace
from opentelemetry.trace import NoOpTracer, Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


class _Provider(Protocol):
    def shutdown(self) -> None: ...


class Tracing:
    """The tracer of this process; without an endpoint its spans go nowhere.

    Spans hold ids, names and counts that we choose: no exception texts, no headers, no bodies.

    Args:
        endpoint: an OTLP/HTTP collector's base URL, or nothing.
    """

    def __init__(self, endpoint: str) -> None:
        self._provider: _Provider | None = None
        self._tracer: Tracer = NoOpTracer()
        if endpoint:
            self._tracer, self._provider = _exporting(endpoint)

    @contextmanager
    def request(self, method: str, route: str, request_id: str) -> Iterator[Span]:
        """The span of a client's request, the root of its trace: a client's own is not trusted."""
        attributes = {
            "http.request.method": method,
            "http.route": route,
            "saltwall.request_id": request_id,
        }
        with self._tracer.start_as_current_span(
            f"{method} {route}",
            context=context.Context(),
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    @contextmanager
    def attempt(self, engine: str) -> Iterator[dict[str, str]]:
        """The span of one attempt; yields the headers that carry it to the engine."""
        with self._tracer.start_as_current_span(
            "engine",
            kind=SpanKind.CLIENT,
            attributes={"saltwall.engine": engine},
            record_exception=False,
            set_status_on_exception=False,
        ):
            headers: dict[str, str] = {}
            if self._provider is not None:
                TraceContextTextMapPropagator().inject(headers)
            yield headers

    def shutdown(self) -> None:
        """Exports what is left."""
        if self._provider is not None:
            self._provider.shutdown()


def mark_failed(span: Span) -> None:
    """Says that the service, not its client, was at fault."""
    span.set_status(trace.StatusCode.ERROR)


def _exporting(endpoint: str) -> tuple[Tracer, _Provider]:
    # The SDK costs a second to import, which only those pay who use it.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "saltwall-gateway"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider.get_tracer("saltwall.gateway"), provider
