"""`saltwall db`: the database's schema."""

import typer

from saltwall_platform.cli import session
from saltwall_platform.cli.output import JsonOption, show_one

app = typer.Typer(no_args_is_help=True, help="Create or upgrade the database.")


@app.command()
def upgrade(as_json: JsonOption = False) -> None:
    """Create the database, or bring it to this release's schema.

    Example: SALTWALL_DATABASE_URL=postgresql://saltwall@db/saltwall saltwall db upgrade
    """
    from saltwall_migrations import upgrade as run

    show_one({"revision": run(session.settings().database_url)}, as_json=as_json)


@app.command()
def current(as_json: JsonOption = False) -> None:
    """Show the database's revision, and this release's."""
    from saltwall_migrations import current as revision
    from saltwall_migrations import head

    found = revision(session.settings().database_url)
    show_one(
        {"revision": found, "head": head(), "up_to_date": found == head()},
        as_json=as_json,
    )
