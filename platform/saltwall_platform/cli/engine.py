"""`saltwall engine`: vLLM with Saltwall in it, from the start command you have."""

import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer

from saltwall_platform.cli import session
from saltwall_platform.cli.errors import CliError
from saltwall_platform.stack import engine_command, engine_keys


def engine(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- VLLM FLAGS",
            help="vLLM's own flags, or a whole `vllm serve MODEL ...` as you have it.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The deployment that tickets are for; replicas share it. "
            "Unset: the first --served-model-name, else the model.",
            show_default=False,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            help="The engine's key file. Unset: engine-NAME.json in the keys directory.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--print", help="Print the exact command and do not run it.")
    ] = False,
    write_keys: Annotated[
        bool,
        typer.Option(
            "--write-keys",
            help="Write the key file of engine --name from this machine's keyring, and stop: "
            "to be copied to the GPU host.",
        ),
    ] = False,
) -> None:
    """Run vLLM with tenants kept apart: your flags, plus those that Saltwall owns.

    Flags that Saltwall sets, or that would open a way around it, are refused with the reason.

    \b
    Examples:
      saltwall engine -- vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --port 8100
      saltwall engine --print -- --model ./model --served-model-name chat
      saltwall engine --name chat --write-keys      # on the gateway's machine
      saltwall engine --name chat --keys engine-chat.json -- --model ./model   # on the GPU host
    """
    settings = session.settings()
    given = arguments or []
    if write_keys:
        wanted = name or engine_command.served_name(engine_command.without_program(given))
        typer.echo(engine_keys.write(settings.keys_dir, wanted))
        return
    command = engine_command.build(
        given, name=name, keys=keys, keys_dir=settings.keys_dir, base=os.environ
    )
    if show:
        typer.echo(command.shell())
        return
    if importlib.util.find_spec("vllm") is None:
        raise CliError(
            "vLLM is not installed here: pip install '.[engine]' in a checkout, or pip install . "
            "into the environment that has it"
        )
    engine_keys.ready(settings.keys_dir, command.name, keys)
    environ = command.environ(os.environ)
    os.execve(command.argv[0], command.argv, environ)  # noqa: S606  # signals go to vLLM itself
