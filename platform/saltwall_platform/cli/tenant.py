"""`saltwall tenant`: who shares the GPUs."""

from typing import Annotated

import typer
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli import session
from saltwall_platform.cli.output import JsonOption, Row, show, show_one
from saltwall_tenants import api_keys, salts, tenants, usage
from saltwall_tenants.tenants import Tenant

app = typer.Typer(no_args_is_help=True, help="Create, suspend and delete tenants.")

Name = Annotated[str, typer.Argument(help="The tenant's name or id.", show_default=False)]


def row(tenant: Tenant) -> Row:
    """A tenant as it is printed."""
    return {
        "name": tenant.name,
        "status": tenant.status,
        "id": tenant.id,
        "created_at": tenant.created_at,
    }


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="1 to 63 of a-z, 0-9 and '-'.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Create a tenant, with its first salt.

    Example: saltwall tenant create acme && saltwall key create acme
    """

    async def work(tx: AsyncSession) -> Tenant:
        keys = await session.keyring(tx)
        return await tenants.create(tx, keys, name, actor=session.actor())

    show_one(row(session.write(work)), as_json=as_json)


@app.command("list")
def list_tenants(
    deleted: Annotated[bool, typer.Option("--deleted", help="The deleted ones too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List tenants."""
    found = session.read(lambda tx: tenants.list_all(tx, deleted=deleted))
    show(
        [row(tenant) for tenant in found],
        as_json=as_json,
        empty="There is no tenant yet: saltwall tenant create NAME",
    )


@app.command("show", short_help="Show a tenant, with its keys and what it has used.")
def show_tenant(name: Name, as_json: JsonOption = False) -> None:
    """Show a tenant with its keys, its salt's generation and what it has used."""

    async def work(tx: AsyncSession) -> Row:
        tenant = await tenants.get(tx, name)
        keys = await api_keys.list_for(tx, tenant)
        generations = await salts.list_for(tx, tenant)
        current = [salt.generation for salt in generations if salt.status == "current"]
        used = await usage.totals(tx, tenant.id)
        return {
            **row(tenant),
            "active_keys": sum(key.revoked_at is None for key in keys),
            "salt_generation": current[0] if current else None,
            "requests": used.requests,
            "prompt_tokens": used.prompt_tokens,
            "cached_tokens": used.cached_tokens,
            "completion_tokens": used.completion_tokens,
        }

    show_one(session.read(work), as_json=as_json)


@app.command()
def suspend(name: Name, as_json: JsonOption = False) -> None:
    """Stop a tenant within a second, its running requests included."""
    found = session.write(lambda tx: tenants.suspend(tx, name, actor=session.actor()))
    show_one(row(found), as_json=as_json)


@app.command()
def resume(name: Name, as_json: JsonOption = False) -> None:
    """Let a suspended tenant go on, with the same keys."""
    found = session.write(lambda tx: tenants.resume(tx, name, actor=session.actor()))
    show_one(row(found), as_json=as_json)


@app.command(short_help="Delete a tenant for good, with its keys and salts.")
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a tenant for good: keys revoked, salts destroyed, its cache unreachable.

    Its usage and audit records stay. There is no way back.
    """
    if not yes:
        typer.confirm(f"Delete tenant {name!r} for good?", abort=True, err=True)
    found = session.write(lambda tx: tenants.delete(tx, name, actor=session.actor()))
    show_one(row(found), as_json=as_json)
