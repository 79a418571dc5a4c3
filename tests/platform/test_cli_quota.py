"""`saltwall quota`: what is stored, what engines enforce, and what cannot be promised."""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from gateway_world import stay_silent
from scripted_engine import ScriptedEngine

from saltwall_tenants import audit
from saltwall_tenants.database import Database
from saltwall_tenants.keyring import Keyring
from saltwall_tenants.wire import Capacity

DEFAULTS = {"reserve": "0 blocks", "ceiling": None, "weight": "1", "strict": False, "store": True}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data directory that the commands use, and an engine that is not there."""
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path))
    monkeypatch.delenv("SALTWALL_DATABASE_URL", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        engines = [{"name": "demo", "url": f"http://127.0.0.1:{server.getsockname()[1]}"}]
    monkeypatch.setenv("SALTWALL_ENGINES", json.dumps(engines))
    return tmp_path


@pytest.fixture
def saltwall(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line on a database with two tenants."""
    run = CommandLine(capsys, monkeypatch)
    run.ok("db", "upgrade")
    for name in ("acme", "globex"):
        run.ok("tenant", "create", name)
    return run


@pytest.fixture
def engine(
    saltwall: CommandLine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedEngine]:
    """An engine of 320 blocks, which the commands are told of, on a thread of its own."""
    keys = Keyring.load(home / "keys").ticket_root.engine_keys("demo")
    made = ScriptedEngine(keys, stay_silent)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result()
    monkeypatch.setenv("SALTWALL_ENGINES", json.dumps([{"name": "demo", "url": made.url}]))
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def stored(run: CommandLine, tenant: str = "acme") -> dict[str, Any]:
    """A tenant's quota as it is stored."""
    shown = json.loads(run.ok("quota", "show", tenant, "--json"))
    return {name: shown[name] for name in DEFAULTS}


def test_a_quota_is_set_changed_and_cleared(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """What is left out keeps its stored value."""
    assert stored(saltwall) == DEFAULTS
    saltwall.ok("quota", "set", "acme", "--reserve", "30%", "--ceiling", "50%", "--weight", "2")
    quota = {**DEFAULTS, "reserve": "30%", "ceiling": "50%", "weight": "2"}
    assert stored(saltwall) == quota
    saltwall.ok("quota", "set", "acme", "--no-store")
    assert stored(saltwall) == {**quota, "store": False}
    saltwall.ok("quota", "set", "acme", "--reserve", "256MiB", "--ceiling", "none")
    assert stored(saltwall) == {**quota, "store": False, "reserve": "256MiB", "ceiling": None}
    assert "cleared" in saltwall.ok("quota", "clear", "acme")
    assert stored(saltwall) == DEFAULTS
    assert "default" in saltwall.ok("quota", "clear", "acme")


def test_people_read_whether_a_quota_is_set_and_what_is_cached(saltwall: CommandLine) -> None:
    """In words that differ; an engine that cannot be asked leaves no empty line."""
    text = saltwall.ok("quota", "show", "acme")
    assert re.search(r"^caching +on$", text, re.M)
    assert re.search(r"^quota set +no$", text, re.M)
    assert "" not in text.splitlines()
    saltwall.ok("quota", "set", "acme", "--no-store", "--strict", "--reserve", "30%")
    text = saltwall.ok("quota", "show", "acme")
    assert re.search(r"^strict +yes$", text, re.M)
    assert re.search(r"^caching +off$", text, re.M)
    assert re.search(r"^quota set +yes$", text, re.M)


def test_strict_replaces_a_ceiling(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """The reserve is the ceiling then; a new ceiling needs --no-strict, and says so."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%", "--ceiling", "50%")
    shown = json.loads(saltwall.ok("quota", "set", "acme", "--strict", "--json"))
    assert (shown["strict"], shown["ceiling"]) == (True, None)
    (there,) = shown["engines"]
    assert there["ceiling"] == there["reserve"]
    assert "--no-strict" in saltwall.refused("quota", "set", "acme", "--ceiling", "60%")
    saltwall.ok("quota", "set", "acme", "--ceiling", "60%", "--no-strict")
    assert stored(saltwall) == {**DEFAULTS, "reserve": "30%", "ceiling": "60%"}


def test_set_shows_what_it_comes_to_on_each_engine(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """In every unit, as a table and as JSON."""
    arguments = ("quota", "set", "acme", "--reserve", "30%", "--ceiling", "4096t")
    text = [line.split() for line in saltwall.ok(*arguments).splitlines()]
    assert ["ENGINE", "AMOUNT", "BLOCKS", "TOKENS", "PERCENT", "BYTES"] in text
    assert ["demo", "reserve", "96", "3072", "30%", "96MiB"] in text
    assert ["demo", "ceiling", "128", "4096", "40%", "128MiB"] in text
    shown = json.loads(saltwall.ok(*arguments, "--json"))
    assert shown["engines"] == [
        {
            "engine": "demo",
            "reserve": {"blocks": 96, "tokens": 3072, "percent": "30", "bytes": 96 * 2**20},
            "ceiling": {"blocks": 128, "tokens": 4096, "percent": "40", "bytes": 128 * 2**20},
        }
    ]


def test_reserves_that_are_not_there_are_refused_with_the_numbers(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """Before anything is stored; what is free is said, and fits."""
    saltwall.ok("quota", "set", "acme", "--reserve", "200 blocks")
    assert saltwall.refused("quota", "set", "globex", "--reserve", "140 blocks") == (
        "saltwall: reserves would add up to 340 of 320 blocks on engine demo:"
        " acme 200, globex 140; free for globex: 120"
    )
    assert stored(saltwall, "globex") == DEFAULTS
    saltwall.ok("quota", "set", "globex", "--reserve", "120 blocks")


def test_percentages_are_refused_without_any_engine(saltwall: CommandLine) -> None:
    """They must fit every engine, so none need be asked."""
    saltwall.ok("quota", "set", "acme", "--reserve", "70%")
    line = saltwall.refused("quota", "set", "globex", "--reserve", "30.5%")
    assert "100.5% of 100%: acme 70%, globex 30.5%; free for globex: 30%" in line


def test_an_engine_that_cannot_be_asked_is_named(saltwall: CommandLine) -> None:
    """The quota is stored all the same: the engine checks for itself."""
    result = saltwall("quota", "set", "acme", "--reserve", "200 blocks")
    assert result.code == 0
    start = "stored, but not checked on engine demo (it cannot be reached at http://127"
    assert result.err.startswith(start)
    assert "refuses the quotas of all tenants; see saltwall quota show once it runs" in result.err
    assert stored(saltwall) == {**DEFAULTS, "reserve": "200 blocks"}
    for arguments in (("quota", "show"), ("quota", "show", "acme")):
        assert "engine demo: it cannot be reached" in saltwall.ok(*arguments)
    shown = json.loads(saltwall.ok("quota", "show", "acme", "--json"))
    assert shown["engines"][0]["problem"].startswith("it cannot be reached")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"capacity": None}, "release without quotas"),
        ({"name": "other"}, "it is 'other', not 'demo'"),
    ],
)
def test_an_engine_that_is_not_as_expected_is_named(
    saltwall: CommandLine, engine: ScriptedEngine, change: dict[str, Any], words: str
) -> None:
    """It is not reckoned with, and the reason is said."""
    engine.attest(**change)
    assert words in saltwall.ok("quota", "show", "acme")


def test_an_engine_with_other_keys_is_named(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """The control secret does not fit."""
    object.__setattr__(engine.keys, "control", "x" * 43)
    assert "does not accept our control secret" in saltwall.ok("quota", "show", "acme")


def enforce(run: CommandLine, engine: ScriptedEngine, tenant: str, **fields: Any) -> None:
    """Lets the engine say what it enforces."""
    hex_id = json.loads(run.ok("tenant", "show", tenant, "--json"))["id"].replace("-", "")
    row = {"pinned": 0, "idle": 0, "reserve": 0, "ceiling": None, "weight": 1.0, "store": True}
    row |= fields
    engine.usage["tenants"][hex_id] = row | {"held": row["pinned"] + row["idle"]}


def test_show_puts_what_is_enforced_beside_what_is_stored(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """Every amount in every unit, and what is held now."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%")
    enforce(saltwall, engine, "acme", reserve=96, pinned=7, idle=25)
    text = saltwall.ok("quota", "show", "acme")
    lines = [line.split() for line in text.splitlines()]
    assert ["demo", "reserve", "96", "96", "3072", "30%", "96MiB"] in lines
    assert ["demo", "ceiling", *["none"] * 5] in lines
    assert ["demo", "held", "32", "1024", "10%", "32MiB"] in lines
    assert ["demo", "pinned", "7", "224", "2.18%", "7MiB"] in lines
    assert "other quotas" not in text
    (there,) = json.loads(saltwall.ok("quota", "show", "acme", "--json"))["engines"]
    assert there["now"]["reserve"]["blocks"] == there["stored"]["reserve"]["blocks"] == 96
    assert there["now"]["idle"]["tokens"] == 25 * 32


def test_show_says_when_an_engine_enforces_something_else(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """No gateway runs, or the engine refused: the operator sees it here."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%")
    assert (
        "engine demo enforces other quotas for 1 tenant: the change may still be under way:"
        " ask again, and if it stays, see the gateway's log"
    ) in saltwall.ok("quota", "show")
    enforce(saltwall, engine, "acme", reserve=96, weight=2.0)
    assert "enforces other quotas" in saltwall.ok("quota", "show", "acme")
    enforce(saltwall, engine, "acme", reserve=96)
    assert "other quotas" not in saltwall.ok("quota", "show")


def test_show_says_why_an_engine_refuses(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """What was stored while it was down, or larger: who reserves too much, and what to do."""
    saltwall.ok("quota", "set", "globex", "--reserve", "250 blocks")
    saltwall.ok("quota", "set", "acme", "--reserve", "60 blocks")
    engine.attest(capacity=Capacity(300, 32, 2**20))
    line = (
        "engine demo refuses all quotas and keeps its former ones: reserves add up to 310 of 300"
        " blocks: globex 250, acme 60. Lower one: saltwall quota set globex --reserve AMOUNT"
    )
    for arguments in (("quota", "show"), ("quota", "show", "acme")):
        assert saltwall.ok(*arguments).splitlines()[-1] == line
    lowered = saltwall("quota", "set", "acme", "--reserve", "55 blocks")
    assert (lowered.code, lowered.err.count("reserves add up to 305 of 300")) == (0, 1)
    saltwall.ok("quota", "set", "globex", "--reserve", "200 blocks")
    assert "the change may still be under way" in saltwall.ok("quota", "show")


def test_show_names_a_quota_that_an_engine_cannot_keep(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """Here a ceiling below its reserve, since the engine has grown."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%", "--ceiling", "100 blocks")
    engine.attest(capacity=Capacity(640, 32, 2**20))
    shown = saltwall.ok("quota", "show").splitlines()[-1]
    assert "former ones: acme: the ceiling 100 blocks is 100 blocks here, below" in shown
    assert shown.endswith("Change it: saltwall quota set acme")


def test_set_says_what_may_surprise(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """Nothing left for the others, and a ceiling that bounds nothing."""
    assert saltwall("quota", "set", "acme", "--reserve", "319 blocks").err == ""
    assert saltwall("quota", "set", "globex", "--reserve", "1 block", "--json").err == (
        "note: this leaves 0 blocks on demo for tenants without a reserve:"
        " their requests are refused\n"
    )
    saltwall.ok("quota", "clear", "globex")
    assert saltwall("quota", "set", "acme", "--ceiling", "320 blocks").err == ""
    assert saltwall("quota", "set", "acme", "--ceiling", "321 blocks").err == (
        "note: the ceiling is more than engine demo has (320 blocks): no bound there\n"
    )


def test_show_has_words_for_what_is_no_ceiling(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """A strict tenant's is its reserve; another's is none."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%", "--strict")
    _, acme, globex, *_ = saltwall.ok("quota", "show").splitlines()
    assert acme.split()[:4] == ["acme", "30%", "=", "reserve"]
    assert globex.split()[:4] == ["globex", "0", "blocks", "none"]
    assert "ceiling    = reserve" in saltwall.ok("quota", "show", "acme")
    assert "ceiling    none" in saltwall.ok("quota", "show", "globex")


def test_show_lists_every_tenant(saltwall: CommandLine, engine: ScriptedEngine) -> None:
    """A line each, also for those with the default quota."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%", "--weight", "0.5")
    enforce(saltwall, engine, "acme", reserve=96, weight=0.5, idle=3)
    header, acme, globex = (line.split() for line in saltwall.ok("quota", "show").splitlines())
    assert header[:6] == ["TENANT", "RESERVE", "CEILING", "WEIGHT", "STRICT", "CACHING"]
    assert header[7:10] == ["RESERVE", "NOW", "(BLOCKS)"]
    stored_now = ["acme", "30%", "none", "0.5", "no", "on"]
    assert acme == [*stored_now, "demo", "96", "none", "3", "0", "3"]
    assert globex[:3] == ["globex", "0", "blocks"]
    listed = json.loads(saltwall.ok("quota", "show", "--json"))
    assert [(row["tenant"], row["stored"]) for row in listed] == [
        ("acme", True),
        ("globex", False),
    ]


def test_replicas_are_shown_apart(
    saltwall: CommandLine, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is down does not hide the other."""
    replicas = [{"name": "demo", "url": url} for url in (engine.url, "http://127.0.0.1:1")]
    monkeypatch.setenv("SALTWALL_ENGINES", json.dumps(replicas))
    shown = json.loads(saltwall.ok("quota", "show", "acme", "--json"))["engines"]
    assert [each["engine"] for each in shown] == ["demo/1", "demo/2"]
    assert "now" in shown[0]
    assert "problem" in shown[1]


def test_bytes_on_an_engine_without_memory_are_refused(
    saltwall: CommandLine, engine: ScriptedEngine
) -> None:
    """It does not know what a block weighs."""
    engine.attest(capacity=Capacity(320, 32))
    line = saltwall.refused("quota", "set", "acme", "--reserve", "1GiB")
    assert "on engine demo: 1GiB: this engine does not know the size of a block" in line


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("set", "acme"), "say what to set"),
        (("set", "acme", "--reserve", "50%", "--ceiling", "30%"), "below the reserve"),
        (("set", "acme", "--strict"), "strict needs a reserve"),
        (("set", "acme", "--ceiling", "0"), "suspend"),
        (("set", "acme", "--weight", "0"), "0.01 to 1000"),
        (("set", "nobody", "--reserve", "1%"), "saltwall tenant list"),
        (("clear", "nobody"), "saltwall tenant list"),
        (("show", "nobody"), "saltwall tenant list"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    saltwall: CommandLine, arguments: tuple[str, ...], advice: str
) -> None:
    """No traceback, exit code 1, and what to do."""
    assert advice in saltwall.refused("quota", *arguments)


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (("--reserve", "lots"), "2.5GiB"),
        (("--ceiling", "5 GB"), "2.5GiB"),
        (("--weight", "x"), "0.5"),
    ],
)
def test_what_is_no_amount_is_a_usage_error(
    saltwall: CommandLine, arguments: tuple[str, ...], example: str
) -> None:
    """Exit code 2, and an example of what is meant."""
    result = saltwall("quota", "set", "acme", *arguments)
    assert result.code == 2
    assert f"Invalid value for {arguments[0]}: " in result.err
    assert example in result.err


def test_acts_are_audited(saltwall: CommandLine, home: Path) -> None:
    """Who, what, and the quota before and after."""
    saltwall.ok("quota", "set", "acme", "--reserve", "30%")
    saltwall.ok("quota", "clear", "acme")

    async def events() -> list[audit.AuditEvent]:
        database = Database(f"sqlite:///{home / 'saltwall.db'}")
        async with database.snapshot() as tx:
            found = await audit.list_events(tx, limit=2)
        await database.dispose()
        return found

    cleared, was_set = asyncio.run(events())
    assert (was_set.action, was_set.detail["after"]["reserve"]) == ("quota.set", "30%")
    assert (cleared.action, cleared.detail["before"]["reserve"]) == ("quota.clear", "30%")
    assert cleared.actor.startswith("cli:")
