"""How a command ends when something is wrong: one line that says what to do, and exit code 1."""

import re
from collections.abc import Callable

from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from saltwall_platform.errors import StartError
from saltwall_platform.settings import PREFIX
from saltwall_platform.stack.errors import StackError
from saltwall_tenants.errors import DomainError
from saltwall_tenants.wire import KeyFileError


class CliError(Exception):
    """A command cannot do what was asked; the message says what to do."""


EXPECTED = (
    CliError,
    StackError,
    StartError,
    DomainError,
    KeyFileError,
    ValidationError,
    SQLAlchemyError,
    OSError,
)


def hint(field: str) -> str:
    """An example for the one setting that is hard to guess."""
    if field != "engines":
        return ""
    example = '[{"name": "chat", "url": "http://127.0.0.1:8100", "models": ["chat"]}]'
    return f"; an example: SALTWALL_ENGINES='{example}'"


def explain(error: Exception, schema_is_old: Callable[[], bool]) -> str:
    """The line for one of the EXPECTED errors.

    Args:
        schema_is_old: whether the database is behind this release; asked for database errors only.
    """
    match error:
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            message = first["msg"].removeprefix("Value error, ")
            unreadable = re.match(r'error parsing value for field "(\w+)"', message)
            if unreadable:  # not JSON, so pydantic has no place in it
                variable = unreadable[1]
                return f"{PREFIX}{variable.upper()} is not JSON{hint(variable)}"
            variable, *within = map(str, first["loc"])
            place = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in within)
            return f"{PREFIX}{variable.upper()}{place}: {message}{hint(variable)}"
        case DBAPIError():
            if schema_is_old():
                return "the database is not at this release's schema: run `saltwall db upgrade`"
            reason = str(error.orig).splitlines()[0] if str(error.orig) else type(error).__name__
            return f"the database refuses: {reason}; look at SALTWALL_DATABASE_URL"
        case SQLAlchemyError():
            return f"the database cannot be used ({type(error).__name__})"
        case OSError() if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        case OSError():
            return f"{error.strerror or error}; is the database server up (SALTWALL_DATABASE_URL)?"
        case _:
            return str(error)
