"""`saltwall doctor`."""

import json
from dataclasses import asdict

import typer

from saltwall_platform.cli import session
from saltwall_platform.cli.output import JsonOption
from saltwall_platform.stack.doctor import examine


def doctor(as_json: JsonOption = False) -> None:
    """Look over this installation: Python, vLLM, model, database, keys, ports, memory, disk.

    Each line is ok, warn or fail, and says what to do. Exit code 1 if something fails.
    """
    found = []
    for finding in examine(session.settings(), revisions):
        found.append(finding)
        if not as_json:
            typer.echo(f"{finding.level.ljust(5)} {finding.subject.ljust(11)} {finding.message}")
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=2))
    if any(finding.level == "fail" for finding in found):
        raise typer.Exit(1)


def revisions(url: str) -> tuple[str | None, str]:
    """The revision of a database, and this release's."""
    from saltwall_migrations import current, head

    return current(url), head()
