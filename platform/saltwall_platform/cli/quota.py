"""`saltwall quota`: what each tenant may hold of every engine's KV cache."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncSession

from saltwall_platform.cli import session
from saltwall_platform.cli.errors import CliError
from saltwall_platform.cli.output import JsonOption, Row, show, show_one
from saltwall_platform.cli.quota_table import (
    NO_CEILING,
    amounts,
    differences,
    effective,
    enforced,
    listed,
    notes,
    problems,
    readable,
)
from saltwall_platform.cli.tenant import Name
from saltwall_platform.engine_reports import EngineReport, ask_engines
from saltwall_tenants import changes, quotas, tenants
from saltwall_tenants.quotas import TenantQuota
from saltwall_tenants.tenants import Tenant
from saltwall_tenants.wire import Amount, AmountError, Quota
from saltwall_tenants.wire.quota import parse_weight

app = typer.Typer(no_args_is_help=True, help="Set, clear and show tenants' KV cache quotas.")


def amount(text: str, option: str) -> Amount:
    """Reads an amount from the command line."""
    try:
        return Amount.parse(text)
    except AmountError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def weight_of(text: str) -> Decimal:
    """Reads a weight from the command line."""
    try:
        return parse_weight(text)
    except AmountError as error:
        raise typer.BadParameter(str(error), param_hint="--weight") from None


@app.command("set", short_help="Set a tenant's quota, on every engine.")
def set_quota(
    tenant: Name,
    reserve: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="What nobody can take from it; 0 for nothing.",
            show_default=False,
        ),
    ] = None,
    ceiling: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="The most it may hold; `none` for all there is.",
            show_default=False,
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Its share of compute where tenants compete, 0.01 to 1000.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help="Its ceiling is its reserve: others cannot influence its hits.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        bool | None,
        typer.Option(
            "--store/--no-store",
            help="Whether what it computes is cached for its later requests.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set a tenant's quota, on every engine; engines follow within a second.

    Options that are left out keep their stored values; a tenant begins with a reserve of 0, no
    ceiling, weight 1, not strict, and stored. An AMOUNT is 30%, 120 blocks (or 120), 4096 tokens
    (or 4096t), or 2.5GiB; each engine converts it to its own blocks, rounded down. All reserves
    together must fit: per cent always, the rest on each engine that can be asked now.

    \b
    Examples:
      saltwall quota set acme --reserve 30% --ceiling 50% --weight 2
      saltwall quota set acme --reserve 2.5GiB --strict
      saltwall quota set acme --ceiling none --no-strict
    """
    given: dict[str, Any] = {}
    if reserve is not None:
        given["reserve"] = amount(reserve, "--reserve")
    if ceiling is not None:
        given["ceiling"] = None if ceiling == NO_CEILING else amount(ceiling, "--ceiling")
    if weight is not None:
        given["weight"] = weight_of(weight)
    given |= {k: v for k, v in (("strict", strict), ("store", store)) if v is not None}
    if not given:
        raise CliError("say what to set: --reserve, --ceiling, --weight, --strict or --no-store")
    if strict and ceiling is None:
        given["ceiling"] = None  # a stored one gives way
    reports = ask()
    engines = {r.label: r.capacity for r in reports if r.capacity is not None}

    async def work(tx: AsyncSession) -> tuple[Tenant, Quota, dict[str, Quota]]:
        await changes.lock(tx)
        found = await tenants.get(tx, tenant)
        stored = await quotas.get_quota(tx, found) or quotas.DEFAULT
        try:
            wanted = replace(stored, **given)
        except AmountError as error:
            hint = " (it is strict: add --no-strict)" if stored.strict and ceiling else ""
            raise CliError(f"{error}{hint}") from None
        actor = session.actor()
        quota = await quotas.set_quota(tx, found, wanted, engines=engines, actor=actor)
        return found, quota, {each.tenant_name: each.quota for each in await quotas.list_all(tx)}

    found, quota, every = session.write(work)
    if as_json:
        typer.echo(json.dumps({**row(found, quota), "engines": amounts(quota, reports)}, indent=2))
    else:
        show_one(readable(row(found, quota)), as_json=False)
        lines = effective(quota, reports)
        if lines:
            typer.echo()
            show(lines, as_json=False, empty="")
    for line in notes(quota, every, reports):
        typer.echo(line, err=True)


@app.command(short_help="Give a tenant the default quota again.")
def clear(tenant: Name, as_json: JsonOption = False) -> None:
    """Give a tenant the default quota again: no reserve, no ceiling, weight 1, stored."""
    had = session.write(lambda tx: quotas.clear_quota(tx, tenant, actor=session.actor()))
    if as_json:
        typer.echo(json.dumps({"tenant": tenant, "cleared": had}))
        return
    typer.echo(f"cleared the quota of {tenant}" if had else f"{tenant} has the default quota")


@app.command("show", short_help="Show quotas as stored, and as engines enforce them.")
def show_quota(
    tenant: Annotated[
        str | None, typer.Argument(help="One tenant, by name or id.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is stored, what each engine enforces right now, and what is held there.

    Of one tenant in every unit, of all in blocks. An engine that cannot be asked is named with the
    reason.
    """

    async def work(tx: AsyncSession) -> tuple[list[Tenant], list[TenantQuota]]:
        some = [await tenants.get(tx, tenant)] if tenant else await tenants.list_all(tx)
        return some, await quotas.list_all(tx)

    wanted, every = session.read(work)
    stored = {each.tenant_id: each.quota for each in every}
    reports = ask(usage=True)
    rows = [
        {
            **row(each, stored.get(each.id, quotas.DEFAULT), stored=each.id in stored),
            "engines": enforced(each, stored.get(each.id, quotas.DEFAULT), reports),
        }
        for each in wanted
    ]
    if as_json:
        typer.echo(json.dumps(rows[0] if tenant else rows, indent=2))
        return
    if tenant:
        only = wanted[0]
        quota = stored.get(only.id, quotas.DEFAULT)
        show_one(readable(row(only, quota, stored=only.id in stored)), as_json=False)
    lines = listed(rows, every_unit=tenant is not None)
    if tenant and lines:
        typer.echo()
    if lines or not tenant:
        empty = "There is no tenant yet: saltwall tenant create NAME"
        show(lines, as_json=False, empty=empty)
    by_name = {each.tenant_name: each.quota for each in every}
    for line in problems(reports) + differences(rows, by_name, reports):
        typer.echo(line)


def row(tenant: Tenant, quota: Quota, **more: Any) -> Row:
    """A tenant's quota as it is stored."""
    return {"tenant": tenant.name, "id": str(tenant.id), **quota.document(), **more}


def ask(*, usage: bool = False) -> list[EngineReport]:
    """Asks the configured engines, with the keyring that belongs to the database."""
    root = session.read(session.keyring).ticket_root
    return asyncio.run(ask_engines(session.settings(), root, usage=usage))
