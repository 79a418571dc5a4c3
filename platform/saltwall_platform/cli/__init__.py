"""The `saltwall` command."""

import sys
from typing import Annotated

import typer

from saltwall_platform.cli import audit, db, key, log, quota, salt, session, tenant
from saltwall_platform.cli.doctor import doctor
from saltwall_platform.cli.engine import engine
from saltwall_platform.cli.errors import EXPECTED, explain
from saltwall_platform.cli.up import up
from saltwall_platform.cli.version import version, versions

app = typer.Typer(
    name="saltwall",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Share one vLLM between tenants that cannot see each other's KV cache.",
)


def print_version(wanted: bool) -> None:
    """`saltwall --version`."""
    if wanted:
        typer.echo(f"saltwall {versions()['saltwall']}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Share one vLLM between tenants that cannot see each other's KV cache.

    State lives in ./.saltwall, or SALTWALL_HOME; the database is SALTWALL_DATABASE_URL.
    """


@app.command(short_help="Run the gateway.")
def gateway() -> None:
    """Run the gateway: tenants on port 8080, health and metrics on 8081.

    Configured by SALTWALL_ variables (see the README). Needs a database that `saltwall db upgrade`
    has made, and its keyring; for a new database it makes one.
    """
    from saltwall_platform.gateway import run

    session.read(session.keyring)
    run(session.configured())


app.command(short_help="Run everything on this machine until Ctrl-C.")(up)
app.command(short_help="Run vLLM with tenants kept apart.")(engine)
app.command(short_help="Look over this installation; says what to do.")(doctor)
app.command(short_help="Print the versions of what is installed.")(version)
app.add_typer(db.app, name="db")
app.add_typer(tenant.app, name="tenant")
app.add_typer(key.app, name="key")
app.add_typer(salt.app, name="salt")
app.add_typer(quota.app, name="quota")
app.add_typer(log.app, name="log")
app.add_typer(audit.app, name="audit")


def main() -> None:
    """The entry point: what is wrong is said in one line, without a traceback."""
    try:
        app()
    except EXPECTED as error:
        print(f"saltwall: {explain(error, session.schema_is_old)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
