"""`saltwall salt`: the secret that keeps a tenant's cache apart."""

import time
from datetime import timedelta
from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli import session
from saltwall_platform.cli.duration import duration
from saltwall_platform.cli.output import JsonOption, Row, show, show_one
from saltwall_platform.cli.tenant import Name
from saltwall_tenants import salts
from saltwall_tenants.salts import SaltGeneration

app = typer.Typer(no_args_is_help=True, help="Rotate and list salts.")

POLL_S = 0.25


def row(salt: SaltGeneration) -> Row:
    """A generation as it is printed."""
    return {
        "generation": salt.generation,
        "status": salt.status,
        "created_at": salt.created_at,
        "retire_at": salt.retire_at,
    }


@app.command(short_help="Give a tenant a new salt.")
def rotate(
    tenant: Name,
    grace: Annotated[
        str, typer.Option(help="How long running requests may go on under the old salt.")
    ] = "1h",
    wait: Annotated[bool, typer.Option(help="Wait until every engine has acknowledged it.")] = True,
    timeout: Annotated[str, typer.Option(help="How long to wait.")] = "15s",
    as_json: JsonOption = False,
) -> None:
    """Give a tenant a new salt: what was cached for it is never hit again.

    A gateway makes the new salt current once all engines know it; requests that run go on.
    """
    allowed, patience = duration(grace), duration(timeout)

    async def work(tx: AsyncSession) -> SaltGeneration:
        keys = await session.keyring(tx)
        return await salts.rotate(tx, keys, tenant, grace=allowed, actor=session.actor())

    made = session.write(work)
    if wait:
        made = promoted(tenant, made, patience)
    show_one(row(made), as_json=as_json)
    if made.status == "pending":
        typer.echo(
            "It takes effect when a gateway runs and its engines have acknowledged it "
            f"(saltwall salt list {tenant}).",
            err=True,
        )


def promoted(tenant: str, salt: SaltGeneration, patience: timedelta) -> SaltGeneration:
    """The generation once it is no longer pending, or as it is when patience ends."""
    deadline = time.monotonic() + patience.total_seconds()
    typer.echo("waiting for the engines to acknowledge it ...", err=True)
    while salt.status == "pending" and time.monotonic() < deadline:
        time.sleep(POLL_S)  # between looks into the database: engines tell the gateway, not us
        found = session.read(lambda tx: salts.list_for(tx, tenant))
        salt = next(each for each in found if each.generation == salt.generation)
    return salt


@app.command("list", short_help="List a tenant's salt generations.")
def list_salts(tenant: Name, as_json: JsonOption = False) -> None:
    """List a tenant's salt generations; the secrets themselves are never shown."""
    found = session.read(lambda tx: salts.list_for(tx, tenant))
    show([row(salt) for salt in found], as_json=as_json, empty="It has no salt.")
