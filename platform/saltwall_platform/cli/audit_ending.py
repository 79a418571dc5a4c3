"""How an audit's commands end when something is wrong."""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from saltwall_platform.cli import session
from saltwall_platform.cli.errors import EXPECTED, explain

UNKNOWN: Final = 2
"""The exit code where nothing can be said, errors included: 1 would say that a guarantee failed."""


@contextmanager
def answerable() -> Iterator[None]:
    """Whatever goes wrong inside ends with exit code 2, in one line where it is expected."""
    from saltwall_security.errors import AuditError
    from saltwall_security.report.redaction import Redaction

    trace: list[str] = []
    try:
        yield
    except AuditError as error:
        said = f"saltwall: {error}"
    except EXPECTED as error:
        said = f"saltwall: {explain(error, session.schema_is_old)}"
    except (typer.Exit, typer.BadParameter):
        raise
    except Exception as error:
        trace = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
        said = f"{type(error).__name__}: {error}"
    else:
        return
    print("".join(trace) + Redaction(())(said), file=sys.stderr)
    raise typer.Exit(UNKNOWN)
