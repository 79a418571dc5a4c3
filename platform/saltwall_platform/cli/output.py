"""How commands print data: a table for people, JSON for programs."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, TextIO
from uuid import UUID

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Value = str | int | bool | datetime | UUID | None | Sequence[str]
Row = Mapping[str, Value]


def tell(stream: TextIO, text: str) -> None:
    """Writes what the stream can hold, as long as somebody reads it: a run, and its exit code, must
    not depend on a closed pipe or terminal."""
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # what is left in the buffer is flushed at exit
        os.close(nowhere)


def show(rows: Sequence[Row], *, as_json: bool, empty: str) -> None:
    """Prints rows with the same fields; `empty` is said to people when there are none."""
    if as_json:
        typer.echo(json.dumps([{k: plain(v) for k, v in row.items()} for row in rows], indent=2))
        return
    if not rows:
        typer.echo(empty)
        return
    lines = [[name.upper().replace("_", " ") for name in rows[0]]]
    lines += [[text(value) for value in row.values()] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def show_one(row: Row, *, as_json: bool) -> None:
    """Prints one thing, a field a line."""
    if as_json:
        typer.echo(json.dumps({k: plain(v) for k, v in row.items()}, indent=2))
        return
    width = max(len(name) for name in row)
    for name, value in row.items():
        typer.echo(f"{name.replace('_', ' ').ljust(width)}  {text(value)}")


def plain(value: Value) -> object:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def text(value: Value) -> str:
    """A value as people read it."""
    match value:
        case None:
            return "-"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(value)
        case _:
            return str(value)
