"""`saltwall log`: who changed what, and whether that is still what was written."""

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from saltwall_platform.cli import session
from saltwall_platform.cli.errors import EXPECTED, CliError, explain
from saltwall_platform.cli.output import JsonOption, Row, show, show_one
from saltwall_tenants import audit, audit_chain, audit_checkpoints
from saltwall_tenants.audit_chain import Report
from saltwall_tenants.audit_checkpoints import Checkpoint
from saltwall_tenants.wire import WireError
from saltwall_tenants.wire.encoding import b64decode, b64encode
from saltwall_tenants.wire.keys import KEY_BYTES

app = typer.Typer(no_args_is_help=True, help="List, verify and sign the audit log.")

EXIT_CODES = {"whole": 0, "tampered": 1, "unproven": 2}


@app.command("list")
def list_events(
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List administrative acts, newest first."""
    events = session.read(lambda tx: audit.list_events(tx, limit=limit))
    if as_json:
        rows = [{**vars(event), "at": event.at.isoformat()} for event in events]
        typer.echo(json.dumps(rows, indent=2))
        return
    show(
        [{**vars(event), "detail": json.dumps(event.detail)} for event in events],
        as_json=False,
        empty="Nothing has been changed yet.",
    )


@app.command(short_help="Verify that the log is as it was written.")
def verify(
    anchor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Signed checkpoints, from where nobody who can write to the database could.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The public key that has signed them, where the signing key is not at hand.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that no event was edited, removed, added or moved since it was written.

    Events up to the newest checkpoint in FILE are proven. Those after it, and all without one,
    only follow from one another: whoever can write to the database could have written them.
    Exit code 0: proven whole. 1: tampered with. 2: unproven, or not verified for the reason given.

    \b
    Example:
      saltwall log verify --anchor /mnt/elsewhere/audit-checkpoints.jsonl
    """
    with _unproven():
        given = [] if anchor is None else _read(anchor)
        public = _public(key) if given else b""
        report = session.read(lambda tx: audit_chain.verify(tx, given, public))
    if as_json:
        problems = [problem._asdict() for problem in report.problems]
        counted = {"events": report.events, "proven": report.proven}
        typer.echo(json.dumps({"verdict": report.verdict, **counted, "problems": problems}))
    else:
        typer.echo(_said(report, anchored=bool(given)))
    raise typer.Exit(EXIT_CODES[report.verdict])


@app.command(short_help="Sign the log as it is now.")
def checkpoint(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to add it, instead of SALTWALL_CHECKPOINTS.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sign the log as it is now, and add that to a file outside the database.

    Each command that changes something does so by itself. Keep copies where nobody who can write
    to the database reaches them. The signing key is audit.json, beside the keyring.
    """

    async def run() -> Checkpoint:
        database = session.open_database()
        try:
            return await session.checkpoint(database, out)
        finally:
            await database.dispose()

    made = asyncio.run(run())
    row: Row = {
        "position": made.position,
        "hash": made.hash.hex(),
        "at": made.at,
        "key": b64encode(made.key),
    }
    show_one(row, as_json=as_json)


@contextmanager
def _unproven() -> Iterator[None]:
    """What is wrong inside ends with exit code 2: nobody has tampered with what was not read."""
    try:
        yield
    except EXPECTED as error:
        print(f"saltwall: {explain(error, session.schema_is_old)}", file=sys.stderr)
        raise typer.Exit(EXIT_CODES["unproven"]) from None


def _read(path: Path) -> Sequence[Checkpoint]:
    found = audit_checkpoints.read(path)
    if not found:
        raise CliError(f"{path} has no checkpoint: make one with `saltwall log checkpoint`")
    return found


def _public(key: str | None) -> bytes:
    if key is None:
        return audit_checkpoints.SigningKey.load(session.settings().keys_dir).public
    try:
        return b64decode(key, KEY_BYTES)
    except WireError:
        wanted = "give a key as `saltwall log checkpoint` prints it"
        raise typer.BadParameter(wanted, param_hint="--key") from None


def _said(report: Report, *, anchored: bool) -> str:
    if report.problems:
        lines = [f"tampered: {kind} at {position}" for position, kind in report.problems]
        return "\n".join(lines)
    if report.verdict == "whole":
        return f"whole: {report.events} events, all proven by a signed checkpoint"
    proven = f"{report.proven} of {report.events} events are proven"
    if anchored:
        return f"unproven: {proven}; no checkpoint was made after them"
    written = session.settings().checkpoints
    return f"unproven: {proven}; give signed checkpoints: --anchor FILE, a copy of {written}"
