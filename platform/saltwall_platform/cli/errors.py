"""How a command ends when something is wrong: one line that says what to do, and exit code 1."""

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


def explain(error: Exception, schema_is_old: Callable[[], bool]) -> str:
    """The line for one of the EXPECTED errors.

    Args:
        schema_is_old: whether the database is behind this release; asked for database errors only.
    """
    match error:
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            variable = PREFIX + "_".join(str(part) for part in first["loc"][:1]).upper()
            return f"{variable}: {first['msg'].removeprefix('Value error, ')}"
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
