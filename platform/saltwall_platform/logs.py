"""Logging: structlog for our own and for the libraries' lines, one JSON object each, on stderr."""

import logging
import sys
import traceback
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from saltwall_platform.redaction import redact

# Libraries whose lower levels show headers, URLs or statements.
_AT_WARNING = ("httpx", "httpcore", "uvicorn", "sqlalchemy", "aiosqlite", "asyncio", "urllib3")


def configure_logging(*, level: str, as_json: bool) -> None:
    """Sends every log line of this process through one chain, which strikes out secrets."""
    chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _describe_exception,
        _redact_all,
    ]
    renderer: Processor = (
        structlog.processors.JSONRenderer(default=repr)
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *chain,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.PositionalArgumentsFormatter(), *chain],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _AT_WARNING:
        logging.getLogger(name).setLevel(logging.WARNING)


def _describe_exception(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Shows where an exception came from, never its text: that may quote a request."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)
        event["exception"] = type(error).__name__
        event["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return event


def _redact_all(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {
        name: redact(value) if isinstance(value, str) else value for name, value in event.items()
    }
