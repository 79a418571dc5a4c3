"""`saltwall audit`: attack a deployment, and prove or disprove each guarantee."""

import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from saltwall_platform.cli import audit_signals
from saltwall_platform.cli.audit_ending import UNKNOWN, answerable
from saltwall_platform.cli.duration import duration
from saltwall_platform.cli.errors import CliError
from saltwall_platform.cli.output import JsonOption, show, tell

app = typer.Typer(
    no_args_is_help=True, help="Attack a deployment, and prove or disprove each guarantee."
)

NEEDED: Final = ("scipy", "matplotlib", "jinja2")


class Form(StrEnum):
    """How a saved report can be printed."""

    SUMMARY = "summary"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    JSON = "json"


def check_installed() -> None:
    """Raises:
    CliError: the extra is not installed.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CliError(
            f"the auditor needs {', '.join(missing)}: pip install '.[audit]' in a checkout, where "
            "`make up` does it too"
        )


@app.command(short_help="Attack a deployment; exit code 0 held, 1 failed, 2 could not tell.")
def run(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Run this suite only; may be repeated. See `saltwall audit list`."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="What to attack: the base of its OpenAI routes, ending in /v1; `stock` starts "
            "stock vLLM here. Unset: the Saltwall that runs here.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The engine's own port, http://HOST:PORT.", show_default=False
        ),
    ] = None,
    engine_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The engine's key file, to read what the engine counts.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|NAME=KEY",
            help="Whom to speak as, two tenants at least, of whom most suites attack the first "
            "two: a JSON file {name: key} or {name: {key, cache_salt}}, NAME=@FILE, "
            "NAME=env:VARIABLE or NAME=KEY; `none` for a server without keys, `salts` for one "
            "where each caller sends a cache_salt. May be repeated.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model to ask for. Unset: the first one listed.", show_default=False),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The data directory of the Saltwall that runs here. Unset: SALTWALL_HOME or "
            "./.saltwall, unless --target is given.",
            show_default=False,
        ),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="How to run `saltwall` for that deployment, to create tenants, set quotas and "
            "rotate salts: 'ssh gateway saltwall'.",
            show_default=False,
        ),
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            exists=True,
            help="Logs and databases to search for secrets; may be repeated.",
            show_default=False,
        ),
    ] = None,
    engine_pid: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The engine's process on this machine, to look into its memory.",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="vLLM's scheduler class to examine, installed here.",
            show_default=False,
        ),
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="How to restart the engine, 'systemctl restart saltwall-engine', to see whether "
            "quotas outlast it. Ends what runs there.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time to share out among the suites: 90s, 15m, 1h. Each takes at least what tells "
            "something, all together eight minutes or so.",
        ),
    ] = "2m",
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="stock|URL",
            help="Attack this one the same way afterwards, for as long again, and show it beside: "
            "`stock` starts stock vLLM here.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Repeat the run with this seed.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="What to call the target.", show_default=False)
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where report.json, .html, .xml and .sarif go.")
    ] = Path("saltwall-audit"),
    as_json: JsonOption = False,
) -> None:
    """Attack a deployment from outside, and report which guarantees hold.

    Exit code 0: all that was tested held. 1: a guarantee failed. 2: it could not tell (too little
    time, a control that saw nothing, a suite that was asked for and not tested, an error).
    It loads the target as a busy tenant would; tenants that it creates it deletes.

    \b
    Examples:
      saltwall audit run                                  # what runs here
      saltwall audit run --budget 15m --baseline stock    # beside stock vLLM
      saltwall audit run --target https://llm.example/v1 --keys keys.json
      saltwall audit run --target http://127.0.0.1:8000/v1 --keys none
    """
    with answerable():
        check_installed()
        from saltwall_platform.cli import audit_run
        from saltwall_platform.cli.audit_target import Given
        from saltwall_security import registry
        from saltwall_security.report import writers
        from saltwall_security.run import new_seed

        given = Given(
            target=target,
            engine=engine,
            engine_keys=engine_keys,
            keys=keys or (),
            model=model,
            home=home,
            operator=operator,
            files=files or (),
            engine_pid=engine_pid,
            scheduler=scheduler,
            restart=restart,
            label=label,
        )
        seconds = duration(budget).total_seconds()
        if seconds <= 0:
            raise CliError("--budget must be more than nothing")
        if seed is not None and not seed.isprintable():
            raise CliError("--seed: give letters and digits")
        plan = audit_run.Plan(
            given=given,
            suites=registry.load(suite or ()),
            asked=suite or (),
            budget_s=seconds,
            seed=seed or new_seed(),
            baseline=baseline,
        )
        directory = audit_run.prepared(out)
        kept = audit_run.audit(plan, lambda report: writers.write(report, directory))
        with audit_signals.undisturbed():
            report, (written, problems) = kept
            tell(sys.stdout, report.json_text() if as_json else writers.FORMS["summary"](report))
            for problem in problems:
                tell(sys.stderr, f"saltwall: cannot be written: {problem}\n")
            tell(sys.stderr, f"Written: {', '.join(map(str, written))}\n")
        raise typer.Exit(report.conclusion.exit_code or (UNKNOWN if problems else 0))


@app.command("list", short_help="List the suites, and what they need.")
def list_suites(as_json: JsonOption = False) -> None:
    """List the suites: what they are about, what they need, and their part of the time."""
    with answerable():
        check_installed()
        from saltwall_security import registry

        suites = registry.load()
        whole = sum(suite.share for suite in suites)
        rows = [
            {
                "suite": suite.name,
                "guarantees": list(suite.guarantees),
                "needs": sorted(suite.needs) or ["no requests" if suite.offline else "two tenants"],
                "share": f"{suite.share / whole:.0%}",
                "what": suite.title,
            }
            for suite in suites
        ]
        show(rows, as_json=as_json, empty="There is no suite.")


@app.command("report")
def show_report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.json", help="A saved report.", show_default=False)
    ],
    form: Annotated[
        Form, typer.Option("--format", help="What to make of it.", show_default=True)
    ] = Form.SUMMARY,
    html: Annotated[bool, typer.Option("--html", help="The same as --format html.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="The same as --format junit.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="The same as --format sarif.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it there instead.", show_default=False),
    ] = None,
) -> None:
    """Print a saved report: its summary, or another form of it.

    Exit code 0 whatever the report says: it is in its `conclusion`.

    Example: saltwall audit report saltwall-audit/report.json --html --out report.html
    """
    with answerable():
        check_installed()
        from saltwall_security.report import writers
        from saltwall_security.report.document import read

        short = {Form.HTML: html, Form.JUNIT: junit, Form.SARIF: sarif}
        if sum(short.values()) > 1:
            raise CliError("one form at a time: --html, --junit or --sarif")
        chosen = next((name for name, wanted in short.items() if wanted), form)
        text = writers.FORMS[chosen](read(file))
        if out is None:
            tell(sys.stdout, text)
        else:
            out.write_text(text, encoding="utf-8")
