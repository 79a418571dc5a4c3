"""`saltwall up` starts vLLM in a way that fits the machine and the model."""

import json
from pathlib import Path

import pytest

from saltwall_platform.settings import Settings
from saltwall_platform.stack import demo_tenants, plan, welcome
from saltwall_platform.stack.errors import FlagError
from saltwall_platform.stack.plan import UpOptions
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an empty data directory."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path))
    return Settings.model_validate({"port": 9080})


def arguments(options: UpOptions, settings: Settings, model: str, *, gpu: bool) -> list[str]:
    """vLLM's arguments for these options."""
    return list(plan.engine(options, settings, model, gpu=gpu, base={}).argv[3:])


def test_the_demo_on_a_cpu_is_small_eager_and_local(settings: Settings, tmp_path: Path) -> None:
    """No compiler, no network, short blocks, loopback only."""
    command = plan.engine(UpOptions(), settings, str(tmp_path), gpu=False, base={})
    line = " ".join(command.argv)
    for part in (
        "--host 127.0.0.1 --port 8100",
        "--served-model-name demo",
        "--max-model-len 8192",
        "--dtype bfloat16 --block-size 32 --enforce-eager",
    ):
        assert part in line
    assert command.name == "demo"
    assert command.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert command.environment["HF_HUB_OFFLINE"] == "1"


def test_a_gpu_keeps_vllms_own_choices(settings: Settings) -> None:
    """Only the size of the KV cache is set."""
    given = arguments(UpOptions(kv_gib=2), settings, "org/m", gpu=True)
    assert "--enforce-eager" not in given
    assert "--block-size" not in given
    assert given[given.index("--kv-cache-memory-bytes") + 1] == str(2 << 30)


def test_another_model_is_served_under_its_name(settings: Settings) -> None:
    """The last part of the path or id; its length is its own unless told."""
    options = UpOptions(model="org/My-Model", revision="abc", flags=("--max-num-seqs", "4"))
    given = arguments(options, settings, "org/My-Model", gpu=False)
    assert given[given.index("--served-model-name") + 1] == "My-Model"
    assert given[given.index("--revision") + 1] == "abc"
    assert "--max-model-len" not in given
    assert "--max-num-seqs" in given
    command = plan.engine(options, settings, "org/My-Model", gpu=False, base={})
    assert "HF_HUB_OFFLINE" not in command.environment


def test_refused_flags_are_refused_here_too(settings: Settings) -> None:
    """`saltwall up -- --trust-remote-code` included."""
    with pytest.raises(FlagError):
        arguments(UpOptions(flags=("--trust-remote-code",)), settings, "m", gpu=False)


@pytest.mark.parametrize("flag", ["--port", "--host=0.0.0.0", "--model"])
def test_what_up_itself_must_know_is_not_hidden_in_vllms_flags(
    settings: Settings, flag: str
) -> None:
    """The gateway would look for the engine elsewhere."""
    with pytest.raises(FlagError, match="use"):
        arguments(UpOptions(flags=(flag, "x")), settings, "m", gpu=False)


def test_a_served_name_among_vllms_flags_counts(settings: Settings) -> None:
    """As it does for `saltwall engine`."""
    options = UpOptions(flags=("--served-model-name", "chat"))
    assert plan.engine(options, settings, "m", gpu=False, base={}).name == "chat"


def test_the_gateway_is_told_of_that_engine_and_those_ports(settings: Settings) -> None:
    """Whatever the environment said before."""
    environ = plan.gateway_environ(settings, "demo", 8111, {"SALTWALL_ENGINES": "[]", "HOME": "/"})
    assert json.loads(environ["SALTWALL_ENGINES"]) == [
        {"name": "demo", "url": "http://127.0.0.1:8111", "models": ["demo"]}
    ]
    assert environ["SALTWALL_PORT"] == "9080"
    assert environ["SALTWALL_HOME"] == str(settings.home)
    assert environ["HOME"] == "/"


async def test_the_demo_tenants_are_made_once_and_get_one_key_each(
    settings: Settings, database_url: str, tmp_path: Path
) -> None:
    """A second run makes neither, and a deleted tenant does not come back."""
    database, keyring = Database(database_url), Keyring.create(tmp_path)
    assert await demo_tenants.create(database, keyring)
    keys = await demo_tenants.first_keys(database, keyring)
    assert set(keys) == {"acme", "globex"}
    assert not await demo_tenants.create(database, keyring)
    assert await demo_tenants.first_keys(database, keyring) == {}
    await database.dispose()


def test_the_welcome_shows_new_keys_and_a_line_to_paste(settings: Settings) -> None:
    """With the key in it, the first time."""
    text = welcome.text(settings, "demo", {"acme": "sw_live_a", "globex": "sw_live_g"})
    assert "sw_live_a" in text
    assert "sw_live_g" in text
    (line,) = [line for line in text.splitlines() if line.startswith("curl ")]
    assert "http://127.0.0.1:9080/v1/chat/completions" in line
    assert "Bearer sw_live_a" in line


def test_the_welcome_shows_no_key_twice(settings: Settings) -> None:
    """The line to paste makes a new one."""
    text = welcome.text(settings, "demo", {})
    assert "sw_live_" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("curl ")]
    assert "key create acme --plain)" in line
