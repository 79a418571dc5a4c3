"""The command that runs vLLM is complete, holds no secret, and keeps the operator's flags."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from saltwall_platform.stack import engine_command, engine_keys
from saltwall_platform.stack.engine_command import EngineCommand
from saltwall_platform.stack.errors import FlagError, StackError
from saltwall_tenants.keyring import Keyring, write_engine_keys
from saltwall_tenants.wire import EngineKeys


def build(*arguments: str, name: str | None = None, **base: str) -> EngineCommand:
    """The command for these arguments."""
    return engine_command.build(arguments, name=name, keys=None, keys_dir=Path("/keys"), base=base)


def test_the_operators_flags_are_kept_and_ours_come_last() -> None:
    """Last, so that they win in argparse even if a check were passed by."""
    command = build("--model", "m", "-tp", "2", "--port", "8100")
    assert command.argv[:3] == (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    assert command.argv[3:9] == ("--model", "m", "-tp", "2", "--port", "8100")
    assert command.argv[9:] == (
        *("--host", "127.0.0.1"),
        *("--scheduler-cls", "saltwall_engine.scheduler.scheduler_class"),
        *("--prefix-caching-hash-algo", "sha256_cbor"),
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
    )


@pytest.mark.parametrize(
    "pasted",
    [
        ("m", "--port", "8100"),
        ("serve", "m", "--port", "8100"),
        ("vllm", "serve", "m", "--port", "8100"),
        ("/opt/venv/bin/vllm", "serve", "m", "--port", "8100"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "--port", "8100"),
    ],
)
def test_a_pasted_start_command_works(pasted: tuple[str, ...]) -> None:
    """Whatever started vLLM so far."""
    assert build(*pasted).argv[3:7] == ("--model", "m", "--port", "8100")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--model", "org/m"), "org/m"),
        (("--model=org/m",), "org/m"),
        (("--model", "m", "--served-model-name", "chat", "chat-2"), "chat"),
        (("--model", "m", "--served_model_name=chat"), "chat"),
        (("--model", "m", "--served-model-name", "a", "--served-model-name", "b"), "b"),
        (("serve", "m"), "m"),
    ],
)
def test_the_deployment_is_named_after_what_it_serves(
    arguments: tuple[str, ...], name: str
) -> None:
    """The first served name, else the model."""
    assert build(*arguments).name == name
    assert build(*arguments, name="other").name == "other"


def test_a_name_in_a_config_file_counts(tmp_path: Path) -> None:
    """vLLM reads it from there too."""
    config = tmp_path / "vllm.yaml"
    config.write_text("model: m\nserved-model-name: [chat]\n")
    assert build("--config", str(config)).name == "chat"


TLS = ("--ssl-keyfile", "k", "--ssl-certfile", "c")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "gpu-1.internal", "::"])  # noqa: S104
def test_beyond_loopback_an_engine_needs_tls(host: str) -> None:
    """Tickets and prompts do not go over a network in clear."""
    for given in (("--host", host), (f"--host={host}",), ("--host", host, *TLS[:2])):
        with pytest.raises(FlagError, match="needs --ssl-keyfile and --ssl-certfile"):
            build("--model", "m", *given)
    assert build("--model", "m", "--host", host, *TLS).argv.count("--host") == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    """The operator's own loopback address is kept."""
    assert build("--model", "m", "--host", host).argv.count("--host") == 1
    assert "--host" not in build("--model", "m", "--uds", "/run/vllm.sock").argv


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        (("CUDA_VISIBLE_DEVICES=0", "vllm", "serve", "m"), "put CUDA_VISIBLE_DEVICES=... before"),
        (("vllm", "chat"), "only `vllm serve` is"),
        (("docker", "run", "vllm/vllm-openai", "--model", "m"), "where docker runs vLLM"),
    ],
)
def test_a_command_that_starts_no_server_here_is_not_taken_for_a_model(
    pasted: tuple[str, ...], words: str
) -> None:
    """What was pasted is understood, or refused with what to do instead."""
    with pytest.raises(FlagError, match=re.escape(words)):
        build(*pasted)


def test_without_a_model_nothing_is_started() -> None:
    """vLLM itself would load one of its own choice."""
    with pytest.raises(FlagError, match="name a model"):
        build("--port", "8100")


def test_the_environment_loads_the_plugin_and_drops_the_hash_seed() -> None:
    """What the engine's boot checks demand."""
    environ = build("m").environ({"PYTHONHASHSEED": "0", "HOME": "/root", "VLLM_PLUGINS": "x"})
    assert environ == {
        "HOME": "/root",
        "SALTWALL_ENGINE_KEYS": "/keys/engine-m.json",
        "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": "saltwall",
    }


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("VLLM_API_KEY", "hunter2"),
        ("VLLM_USE_RUST_FRONTEND", "1"),
        ("VLLM_SERVER_DEV_MODE", "1"),
        ("VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "True"),
        ("VLLM_LOGGING_LEVEL", "DEBUG"),
    ],
)
def test_a_variable_that_opens_a_way_around_is_refused(variable: str, value: str) -> None:
    """By name, without its value."""
    with pytest.raises(FlagError, match=variable) as caught:
        build("m", **{variable: value})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", ["fast", "-1", "60001", "nan", ""])
def test_a_step_length_that_the_engine_would_refuse_is_refused_before_it_starts(value: str) -> None:
    """With the range, and not after half a minute of loading."""
    with pytest.raises(FlagError, match=r"SALTWALL_STEP_MS.* from 0 .* to 60000"):
        build("m", SALTWALL_STEP_MS=value)


def test_a_step_length_is_part_of_the_printed_command() -> None:
    """So that it can be pasted elsewhere."""
    assert "SALTWALL_STEP_MS=40 " in build("m", SALTWALL_STEP_MS="40").shell()


@pytest.mark.parametrize("value", ["on", "true", "2", ""])
def test_erasure_that_is_neither_on_nor_off_is_refused_before_the_engine_starts(value: str) -> None:
    """A typo does not turn it off."""
    with pytest.raises(FlagError, match=r"SALTWALL_ZEROIZE.* 1 .* or 0"):
        build("m", SALTWALL_ZEROIZE=value)


def test_erasure_is_part_of_the_printed_command() -> None:
    """So that it can be pasted elsewhere."""
    assert "SALTWALL_ZEROIZE=0 " in build("m", SALTWALL_ZEROIZE="0").shell()


def test_variables_that_are_off_pass() -> None:
    """Only what is on is refused."""
    build("m", VLLM_USE_RUST_FRONTEND="0", VLLM_SERVER_DEV_MODE="", VLLM_LOGGING_LEVEL="INFO")


def test_the_printed_command_is_what_would_run() -> None:
    """A shell that reads it comes to the same words."""
    command = build("m", "--chat-template", "it's here.jinja")
    words = shlex.split(command.shell())
    assert words[:3] == ["env", "-u", "PYTHONHASHSEED"]
    assert tuple(words[-len(command.argv) :]) == command.argv
    assert "SALTWALL_ENGINE_KEYS=/keys/engine-m.json" in words


@pytest.mark.parametrize("name", ["demo", "org/model", "/models/llama 3", "ä"])
def test_the_key_file_is_where_the_keyring_writes_it(tmp_path: Path, name: str) -> None:
    """One rule for the place, on both sides."""
    keyring = Keyring.create(tmp_path)
    assert write_engine_keys(tmp_path, name, keyring) == engine_keys.location(tmp_path, name)


def test_an_engine_beside_its_keyring_gets_fresh_keys(tmp_path: Path) -> None:
    """Also when the ticket root has changed since the file was written."""
    Keyring.create(tmp_path)
    engine_keys.ready(tmp_path, "demo", None)
    (tmp_path / "gateway.json").unlink()
    keyring = Keyring.create(tmp_path)
    path = engine_keys.ready(tmp_path, "demo", None)
    assert EngineKeys.read(path) == keyring.ticket_root.engine_keys("demo")


def test_a_host_without_keyring_uses_the_copied_file(tmp_path: Path) -> None:
    """The file that `--write-keys` made elsewhere, as it is."""
    Keyring.create(tmp_path / "gateway")
    copied = engine_keys.write(tmp_path / "gateway", "demo").rename(tmp_path / "copied.json")
    assert engine_keys.ready(tmp_path / "nowhere", "demo", copied) == copied


def test_a_host_without_keys_is_told_how_to_get_them(tmp_path: Path) -> None:
    """The command for the other machine."""
    with pytest.raises(StackError, match="--name demo --write-keys"):
        engine_keys.ready(tmp_path, "demo", None)


def test_keys_of_another_engine_are_refused(tmp_path: Path) -> None:
    """They would fail only at the first request."""
    Keyring.create(tmp_path)
    other = engine_keys.write(tmp_path, "other")
    with pytest.raises(StackError, match="other"):
        engine_keys.ready(tmp_path, "demo", other)


def test_keys_are_written_only_where_the_keyring_is(tmp_path: Path) -> None:
    """No keyring is made up on a GPU host."""
    with pytest.raises(StackError, match="gateway's machine"):
        engine_keys.write(tmp_path, "demo")
    assert list(tmp_path.iterdir()) == []
