"""Flags that Saltwall owns or refuses never reach vLLM, however they are spelled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from saltwall_platform.stack import engine_flags
from saltwall_platform.stack.engine_flags import OWNED, REFUSED
from saltwall_platform.stack.errors import FlagError

VALUES = {
    "--api-server-count": "2",
    "--data-parallel-size": "2",
    "--watermark": "0.05",
    "--log-level": "debug",
    "--speculative-config": '{"method": "suffix"}',
    "--spec-method": "suffix",
}
CONTROLLED = [*OWNED, *REFUSED]


OPTIONS_OF_VLLM = """
import json
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
print(json.dumps([option for action in parser._actions for option in action.option_strings]))
"""


@pytest.fixture(scope="module")
def vllm_options() -> list[str]:
    """Every option of the installed vLLM's API server; read by a stock vLLM, without plugins."""
    run = subprocess.run(
        [sys.executable, "-c", OPTIONS_OF_VLLM],
        env={**os.environ, "VLLM_PLUGINS": ""},
        stdout=subprocess.PIPE,
        check=True,
    )
    return list(json.loads(run.stdout.splitlines()[-1]))


@pytest.mark.parametrize("flag", CONTROLLED)
def test_a_controlled_flag_is_refused_in_every_spelling(flag: str) -> None:
    """With a space, with =, with underscores, cut short, and by a JSON key."""
    value = VALUES.get(flag, "x")
    spellings = [[flag, value], [f"{flag}={value}"], [flag.replace("-", "_").replace("__", "--")]]
    spellings[2].append(value)
    spellings.append([flag[:-1], value])
    spellings.append([f"{flag}.method", value])
    for arguments in spellings:
        with pytest.raises(FlagError):
            engine_flags.check(["--model", "m", *arguments])


@pytest.mark.parametrize("flag", [*OWNED, "--enable-prefix-caching"])
def test_an_owned_switch_cannot_be_turned_off(flag: str) -> None:
    """`--no-FLAG` is the same flag."""
    with pytest.raises(FlagError, match="set by Saltwall"):
        engine_flags.check([f"--no-{flag[2:]}"])


@pytest.mark.parametrize("short", ["-asc", "-dp"])
def test_short_names_are_known(short: str) -> None:
    """vLLM has aliases with one dash."""
    with pytest.raises(FlagError):
        engine_flags.check([short, "2"])
    engine_flags.check([short, "1"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-trust-remote-code"],
        ["--no-enable-log-requests"],
        ["--api-server-count", "1"],
        ["--watermark", "0.0"],
        ["--log-level", "info"],
        ["--speculative-config", '{"method": "ngram"}'],
        ["-tp", "2", "-O3", "--max-model-len", "8k", "--gpu-memory-utilization=0.9"],
        ["--chat-template", "{{ '--api-key' }}"],
    ],
)
def test_harmless_values_pass(arguments: list[str]) -> None:
    """Only what opens a way around is refused."""
    engine_flags.check(["--model", "m", *arguments])


def test_the_reason_is_given_and_the_value_is_not() -> None:
    """A key typed by mistake does not reach the terminal's scrollback a second time."""
    with pytest.raises(FlagError, match="can be read by every user") as caught:
        engine_flags.check(["--api_key=hunter2"])
    assert "hunter2" not in str(caught.value)


def test_an_abbreviation_is_explained() -> None:
    """Whoever typed --trust learns what vLLM would have made of it."""
    with pytest.raises(FlagError, match="short for --trust-remote-code"):
        engine_flags.check(["--trust-rem"])


def test_no_full_option_of_vllm_is_mistaken_for_another(vllm_options: list[str]) -> None:
    """Full names are never read as abbreviations, and every rule names a real flag."""
    for option in vllm_options:
        (flag,) = engine_flags.flags([option])
        found = engine_flags.meant(flag.name)
        assert found in ([], [flag.name]), option
    assert set(CONTROLLED) <= set(vllm_options)


@pytest.mark.parametrize(
    "line", ["api-key: x", "enable_prefix_caching: false", "middleware: [a.B]", "grpc: true"]
)
def test_a_config_file_smuggles_nothing(tmp_path: Path, line: str) -> None:
    """Its content is checked like the command line."""
    config = tmp_path / "vllm.yaml"
    config.write_text(f"max-model-len: 4096\n{line}\n")
    with pytest.raises(FlagError):
        engine_flags.check(["--model", "m", "--config", str(config)])


def test_a_config_file_is_read_as_vllm_reads_it(tmp_path: Path) -> None:
    """Our expansion of a harmless file is vLLM's own."""
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    config = tmp_path / "vllm.yaml"
    config.write_text(
        "model: m\nport: 8123\nserved-model-name: [a, b]\nenforce-eager: true\n"
        "compilation-config:\n  mode: 0\n"
    )
    engine_flags.check(["--config", str(config)])
    assert engine_flags.config_arguments(config) == FlexibleArgumentParser().load_config_file(
        str(config)
    )


@pytest.mark.parametrize(
    "arguments", [["--config=x.yaml"], ["--config"], ["--config", "none.yaml"]]
)
def test_a_config_file_that_vllm_would_not_read_is_said(arguments: list[str]) -> None:
    """With `=` vLLM ignores it silently; that must not look as if it worked."""
    with pytest.raises(FlagError, match="config"):
        engine_flags.check(arguments)


def test_a_second_separator_is_refused() -> None:
    """After it, argparse would take our own flags for positionals."""
    with pytest.raises(FlagError, match="second `--`"):
        engine_flags.check(["--model", "m", "--", "x"])
