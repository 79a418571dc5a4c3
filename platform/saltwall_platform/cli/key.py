"""`saltwall key`: what tenants authenticate with."""

from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli import session
from saltwall_platform.cli.duration import moment
from saltwall_platform.cli.output import JsonOption, Row, show, show_one
from saltwall_platform.cli.tenant import Name
from saltwall_tenants import api_keys
from saltwall_tenants.api_keys import ApiKey, NewKey

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys.")


def row(key: ApiKey) -> Row:
    """A key as it is printed: never its secret."""
    return {
        "id": key.public_id,
        "label": key.label,
        "models": sorted(key.models) if key.models is not None else None,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }


@app.command()
def create(
    tenant: Name,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Allow this model only; may be repeated.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: 30d, 12h, or a date.", show_default=False)
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print the key alone, for $(...) in a shell.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it, this once.

    Example: saltwall key create acme --label ci --expires 30d
    """
    expires_at = moment(expires) if expires is not None else None

    async def work(tx: AsyncSession) -> NewKey:
        return await api_keys.create(
            tx,
            await session.keyring(tx),
            tenant,
            label=label,
            models=model or None,
            expires_at=expires_at,
            actor=session.actor(),
        )

    made = session.write(work)
    if plain:
        typer.echo(made.plaintext)
        return
    show_one({"key": made.plaintext, **row(made.record)}, as_json=as_json)
    if not as_json:
        typer.echo("\nKeep the key now: it is not shown again.", err=True)


@app.command("list")
def list_keys(tenant: Name, as_json: JsonOption = False) -> None:
    """List a tenant's keys, by their public ids."""
    found = session.read(lambda tx: api_keys.list_for(tx, tenant))
    show(
        [row(key) for key in found],
        as_json=as_json,
        empty=f"It has no key yet: saltwall key create {tenant}",
    )


@app.command()
def revoke(
    public_id: Annotated[
        str, typer.Argument(help="The key's public id; see `key list`.", show_default=False)
    ],
) -> None:
    """Revoke a key: it stops working within a second."""
    session.write(lambda tx: api_keys.revoke(tx, public_id, actor=session.actor()))
    typer.echo(f"revoked {public_id}")
