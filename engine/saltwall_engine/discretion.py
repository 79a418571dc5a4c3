"""Errors in vLLM's log without their messages, which can quote a tenant's request.

The exception's type and the lines of code it came through stay: enough to find a fault.
"""

import logging
from collections.abc import Callable
from typing import Any

_make_record: Callable[..., logging.LogRecord] = logging.LogRecord
"""What makes a record when messages are withheld: the factory that was set by then."""


class Withheld(Exception):
    """Stands in the log for an exception; its type's name is the message."""


def withhold_messages() -> None:
    """From now on, in this process, exceptions are logged without their messages.

    Called when the engine begins to serve: until then messages are the operator's own. What vLLM
    has put on every record by its own factory stays.
    """
    global _make_record
    before = logging.getLogRecordFactory()
    if before is not discreet_record:
        _make_record = before
        logging.setLogRecordFactory(discreet_record)


def discreet_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Makes a log record whose exception, and exceptions among its arguments, say their type."""
    record = _make_record(*args, **kwargs)
    if record.exc_info and record.exc_info[1] is not None:
        _, error, trace = record.exc_info
        record.exc_info = (Withheld, _withheld(error), trace)
    if isinstance(record.args, tuple):
        record.args = tuple(
            _withheld(arg) if isinstance(arg, BaseException) else arg for arg in record.args
        )
    return record


def _withheld(error: BaseException) -> Withheld:
    return Withheld(f"{type(error).__name__} (its message may hold tenants' data)")
