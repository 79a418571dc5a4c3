"""`saltwall audit`: what is attacked, as whom, and how a run ends."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from made_reports import mixed
from word_cache_server import WordCache, serving

from saltwall_platform.cli import audit as audit_command
from saltwall_platform.cli import audit_run
from saltwall_platform.cli.audit_run import command
from saltwall_platform.stack import preflight, vllm_install
from saltwall_security import registry
from saltwall_security.report import writers
from saltwall_security.report.document import Report, read
from saltwall_security.target import Target

SUPPORT = Path(__file__).parents[1] / "support"
KEYS = {"a": "key-of-tenant-a", "b": "key-of-tenant-b"}
ENDLESS = (
    "from saltwall_security import registry; from saltwall_platform.cli import main\n"
    "registry.MODULES['endless'] = 'audit_endless'; main()"
)

IMPATIENT = (
    'if [ "$2" = delete ]; then for each in INT HUP TERM; do kill -$each $PPID; done; fi; '
    'exec "$0" -m saltwall_platform.cli "$@"'
)
"""The operator's command, after signals to whoever has it delete a tenant."""


@pytest.fixture
def saltwall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """The command line, in an empty directory, with the smallest suite alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SALTWALL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(registry, "MODULES", {"probe": "audit_probe"})
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def leaky() -> Iterator[WordCache]:
    """A server whose cache is everybody's."""
    with serving(WordCache()) as server:
        yield server


@pytest.fixture
def apart() -> Iterator[WordCache]:
    """A server with two tenants who are kept apart."""
    with serving(WordCache(keys=frozenset(KEYS.values()), apart=True)) as server:
        yield server


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """A file with both tenants' keys."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(KEYS))
    return str(path)


def test_a_server_that_keeps_tenants_apart_is_0(
    saltwall: CommandLine, apart: WordCache, keys: str
) -> None:
    """And the summary says what held."""
    result = saltwall("audit", "run", "--target", apart.url, "--keys", keys)
    assert result.code == 0
    assert re.search(r"^G1 .* held$", result.out, re.M)
    assert "All that was tested held." in result.out


def test_a_leak_is_1(saltwall: CommandLine, leaky: WordCache) -> None:
    """Two tenants without keys share whatever there is."""
    result = saltwall("audit", "run", "--target", leaky.url, "--keys", "none")
    assert result.code == 1
    assert "failed: probe/hit (G1)" in result.out


def test_what_cannot_be_told_is_2(saltwall: CommandLine) -> None:
    """A server that does not show cached tokens."""
    with serving(WordCache(shown=False)) as silent:
        result = saltwall("audit", "run", "--target", silent.url, "--keys", "none")
    assert result.code == 2
    assert "Could not tell." in result.out


def test_every_form_is_written(
    saltwall: CommandLine, apart: WordCache, keys: str, tmp_path: Path
) -> None:
    """Into the directory that is asked for; with --json the report is printed too."""
    result = saltwall(
        *("audit", "run", "--target", apart.url, "--keys", keys, "--out", "new/reports", "--json")
    )
    names = {path.name for path in (tmp_path / "new" / "reports").iterdir()}
    assert names == {"report.json", "report.html", "report.xml", "report.sarif"}
    printed = json.loads(result.out)
    assert printed == json.loads((tmp_path / "new" / "reports" / "report.json").read_text())
    assert printed["target"]["model"] == "words"


def test_keys_are_in_nothing_that_is_written(
    saltwall: CommandLine, apart: WordCache, keys: str, tmp_path: Path
) -> None:
    """Nor printed."""
    given = [word for name, key in KEYS.items() for word in ("--keys", f"{name}={key}")]
    result = saltwall("audit", "run", "--target", apart.url, *given)
    assert result.code == 0
    written = [path.read_text() for path in (tmp_path / "saltwall-audit").iterdir()]
    for text in (*written, result.out, result.err):
        assert not [key for key in KEYS.values() if key in text]


def test_a_seed_repeats_a_run(saltwall: CommandLine, apart: WordCache, keys: str) -> None:
    """The report says which, and the command that does."""
    run = ("audit", "run", "--target", apart.url, "--keys", keys, "--json")
    first = json.loads(saltwall(*run).out)
    again = json.loads(saltwall(*run, "--seed", first["seed"]).out)
    seen = [report["suites"][0]["checks"][0]["seen"] for report in (first, again)]
    assert seen[0] == seen[1]
    assert first["command"].endswith(f"--seed {first['seed']}")
    assert again["command"] == first["command"]


@pytest.mark.parametrize(
    ("typed", "repeats"),
    [
        (["audit", "run", "--keys", "a=secret"], "saltwall audit run --keys a=... --seed s"),
        (["audit", "run", "--keys=a=secret"], "saltwall audit run --keys=a=... --seed s"),
        (["--json", "--keys", "a=secret"], "saltwall --json --keys a=... --seed s"),
        (["--keys", "a=@f", "--keys", "k.json"], "saltwall --keys a=@f --keys k.json --seed s"),
        (["--seed", "old", "--json", "--seed=older"], "saltwall --json --seed s"),
        (["--operator", "env PW=x saltwall"], "saltwall --operator 'env ...' --seed s"),
        (["--operator=saltwall"], "saltwall --operator=saltwall --seed s"),
    ],
)
def test_the_command_that_repeats_a_run_has_the_seed_and_no_key(
    typed: list[str], repeats: str
) -> None:
    """However they were typed."""
    assert command(typed, "s") == repeats


def test_keys_come_from_files_and_variables(
    saltwall: CommandLine, apart: WordCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no process list shows them; only a literal key is warned of."""
    (tmp_path / "a.key").write_text(f"{KEYS['a']}\n")
    monkeypatch.setenv("KEY_OF_B", KEYS["b"])
    hidden = ("--keys", "a=@a.key", "--keys", "b=env:KEY_OF_B")
    result = saltwall("audit", "run", "--target", apart.url, *hidden)
    assert result.code == 0
    assert "process list" not in result.err
    literal = ("--keys", f"a={KEYS['a']}", "--keys", "b=env:KEY_OF_B")
    assert "the key of a shows" in saltwall("audit", "run", "--target", apart.url, *literal).err


@pytest.mark.parametrize("typed", ["sk-{}", "a={}", "sk-{}==", "{}.{}", "sk/{}"])
def test_a_key_that_is_no_file_is_not_printed(saltwall: CommandLine, typed: str) -> None:
    """Its NAME= was forgotten, or it is too long for a file's name."""
    key = "k" * 300
    given = ("--keys", typed.format(key, key))
    result = saltwall("audit", "run", "--target", "http://127.0.0.1:9/v1", *given)
    assert result.code == 2
    assert key not in result.out + result.err


def test_passwords_in_urls_are_in_nothing_that_is_written_or_printed(
    saltwall: CommandLine, leaky: WordCache, tmp_path: Path
) -> None:
    """Of the target and of its baseline, whether it answers or not."""
    target = leaky.url.replace("://", "://spy:pa55-w0rd@")
    nobody = "http://spy:pa55-w0rd@127.0.0.1:9/v1"
    given = ("--target", target, "--keys", "none", "--baseline", nobody)
    result = saltwall("audit", "run", *given, "--engine", nobody)
    assert "does not answer" in result.err
    written = [path.read_text() for path in (tmp_path / "saltwall-audit").iterdir()]
    again = saltwall("audit", "run", "--target", nobody, "--keys", "none")
    assert again.code == 2
    for text in (*written, result.out, result.err, again.err):
        assert "pa55-w0rd" not in text


def test_salts_can_be_all_that_tells_tenants_apart(saltwall: CommandLine, tmp_path: Path) -> None:
    """Random ones, or those of a file; each request carries its tenant's."""
    path = tmp_path / "salts.json"
    path.write_text(json.dumps({"a": {"cache_salt": "one"}, "b": {"cache_salt": "two"}}))
    for keys in ("salts", str(path)):
        with serving(WordCache(apart=True)) as server:
            assert saltwall("audit", "run", "--target", server.url, "--keys", keys).code == 0
            assert server.callers == {""}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "nonsense", "--target", "URL", "--keys", "none"], "no suite is called"),
        (["--target", "URL"], "two tenants are needed: give their keys"),
        (["--target", "URL", "--keys", "a=@missing.key"], "missing.key: No such file"),
        (["--target", "URL", "--keys", "missing.json"], "there is no such file"),
        (["--target", "URL", "--keys", "bad.json"], "bad.json is not a key file"),
        (["--target", "URL", "--keys", "a=env:UNSET_KEY"], "UNSET_KEY is empty"),
        (["--target", "URL", "--keys", "none", "--keys", "none"], "names 'tenant-a' twice"),
        (["--target", "127.0.0.1:8000", "--keys", "none"], "give a URL such as"),
        (["--target", "http://127.0.0.1:9/v1", "--keys", "none"], "does not answer"),
        (["--target", "http://[::1/v1", "--keys", "none"], "--target: give a URL"),
        (["--target", "http://h:abc/v1", "--keys", "none"], "--target: give a URL"),
        (["--target", "http://h:99999/v1", "--keys", "none"], "--target: give a URL"),
        (["--target", "http://h/v1\n", "--keys", "none"], "--target: give a URL"),
        (["--target", "http:///v1", "--keys", "none"], "--target: give a URL"),
        (["--target", "URL", "--keys", "none", "--engine", "http://[::1"], "--engine: give a URL"),
        (["--target", "URL", "--keys", "none", "--engine", "stock"], "--engine: give a URL"),
        (["--target", "URL", "--operator", ""], "--operator: give a command"),
        (["--target", "URL", "--operator", "'x"], "--operator: No closing quotation"),
        (["--target", "URL", "--keys", "none", "--restart", " "], "--restart: give a command"),
        (["--target", "URL", "--keys", "none", "--seed", "\udcff"], "--seed: give letters"),
        (["--target", "URL", "--keys", "a=@binary"], "binary is no text"),
        (["--target", "URL", "--keys", "binary"], "binary is no text"),
        (["--target", "URL", "--keys", "/dev/zero"], "/dev/zero is too long"),
        (["--target", "URL", "--keys", "a=@/dev/zero"], "/dev/zero is too long"),
        (["--target", "URL", "--keys", "deep.json"], "deep.json is not a key file"),
        (["--target", "URL", "--keys", "a=Schlüssel"], "the key of a cannot be sent"),
        (["--target", "URL", "--keys", "name.json"], "cannot be printed: give another name"),
        (["--target", "URL", "--keys", "none", "--model", "gpt"], "may not use the model 'gpt'"),
        (["--target", "URL", "--keys", "none", "--budget", "0"], "--budget must be more"),
        (["--target", "stock", "--baseline", "stock"], "is stock vLLM already"),
        ([], "start Saltwall here with `saltwall up`, or say what to attack"),
    ],
)
def test_what_cannot_be_run_is_2_and_says_why_in_one_line(
    saltwall: CommandLine,
    leaky: WordCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    """Never 1, which would say that a guarantee failed."""
    (tmp_path / "bad.json").write_text('{"a": ["key"]}')
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "name.json").write_text('{"a\\nb": "key"}')
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    monkeypatch.setenv("SALTWALL_PORT", "9")
    result = saltwall("audit", "run", *(leaky.url if a == "URL" else a for a in arguments))
    assert (result.code, result.out) == (2, "")
    *_, line = result.err.splitlines()
    assert line.startswith("saltwall: ")
    assert said in line


def test_a_file_to_search_that_is_not_there_is_refused(saltwall: CommandLine) -> None:
    """What is never read must not count as searched."""
    result = saltwall("audit", "run", "--files", "missing.log")
    assert result.code == 2
    assert "missing.log" in result.err


def test_a_refused_key_is_named_by_its_tenant(saltwall: CommandLine, apart: WordCache) -> None:
    """Before anything is attacked."""
    given = ("--keys", "b=env:PATH", "--keys", "none")
    result = saltwall("audit", "run", "--target", apart.url, *given)
    assert result.code == 2
    assert "the key of b is refused: who are you?" in result.err


def test_an_installation_that_still_starts_is_waited_for(
    saltwall: CommandLine, tmp_path: Path
) -> None:
    """Its ports are not known yet, and what answers at the usual ones is something else."""
    with preflight.only_one(tmp_path / "home"):
        result = saltwall("audit", "run")
    assert result.code == 2
    assert "`saltwall up` is still starting" in result.err
    assert "still starting" not in saltwall("audit", "run").err


def test_a_refusal_is_printed_without_the_key_and_in_one_line(
    saltwall: CommandLine, apart: WordCache
) -> None:
    """Some servers repeat it; what a terminal or a CI obeys is no word of theirs."""
    apart.refusal = "\x1b[2JIncorrect API key: {}\n::error::x"
    given = ("--keys", "a=sk-0123456789", "--keys", "b=sk-abcdefghij")
    result = saltwall("audit", "run", "--target", apart.url, *given)
    assert result.code == 2
    assert "the key of a is refused: \ufffd[2JIncorrect API key: [secret] ::error::x" in result.err
    assert "\x1b" not in result.err


def test_a_models_name_is_printed_without_the_key_and_in_one_line(
    saltwall: CommandLine, apart: WordCache, keys: str
) -> None:
    """Also where it says that another one is not to be had, and in the report."""
    apart.model = f"\x1b[2J{KEYS['a']}\ud800\nAll held"
    given = ("--target", apart.url, "--keys", keys)
    for result in (
        saltwall("audit", "run", *given, "--label", "\udcff"),
        saltwall("audit", "run", *given, "--model", "other"),
    ):
        printed = result.out + result.err
        assert not [word for word in (KEYS["a"], "\x1b", "\nAll held") if word in printed]
        assert "[secret]" in printed


def test_without_the_extra_it_says_what_to_install(
    saltwall: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For all three commands."""
    monkeypatch.setattr(audit_command, "NEEDED", ("scipy", "no_such_package"))
    for arguments in (["run"], ["list"], ["report", "report.json"]):
        result = saltwall("audit", *arguments)
        assert result.code == 2
        assert "needs no_such_package: pip install '.[audit]' in a checkout" in result.err


def test_the_baseline_is_in_the_report_and_does_not_decide(
    saltwall: CommandLine, apart: WordCache, leaky: WordCache, keys: str
) -> None:
    """The same suites on another server, with the same seed."""
    given = ("--target", apart.url, "--keys", keys, "--baseline", leaky.url, "--json")
    result = saltwall("audit", "run", *given)
    report = json.loads(result.out)
    assert result.code == 0
    assert report["baseline"]["conclusion"]["exit_code"] == 1
    assert report["baseline"]["seed"] == report["seed"]


def test_a_baseline_that_does_not_answer_loses_nothing(
    saltwall: CommandLine, apart: WordCache, keys: str
) -> None:
    """What was found on the target is reported, and what is missing is said."""
    given = ("--target", apart.url, "--keys", keys, "--baseline", "http://127.0.0.1:9/v1")
    result = saltwall("audit", "run", *given, "--json")
    assert json.loads(result.out)["baseline"] is None
    assert "no baseline in this report: http://127.0.0.1:9/v1 does not answer" in result.err


@pytest.mark.parametrize("ends", ["SIGINT", "SIGTERM", "a fault"])
def test_what_ends_the_baseline_loses_nothing(
    request: pytest.FixtureRequest,
    saltwall: CommandLine,
    leaky: WordCache,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    """The report of the target is written by then, and decides."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    reached: list[str] = []
    report = Path("saltwall-audit/report.json")

    async def reach(target: Target) -> None:
        reached.append(target.url)
        if len(reached) > 1:
            assert report in report.parent.glob("*")
            if ends == "a fault":
                raise RuntimeError("sk-secret")
            signal.raise_signal(signal.Signals[ends])
            await asyncio.sleep(0)

    monkeypatch.setattr(audit_run, "server_version", reach)
    given = ("--target", leaky.url, "--keys", "none", "--baseline", leaky.url)
    result = saltwall("audit", "run", *given)
    assert len(reached) == 2
    assert result.code == 1
    assert "Exit code 1: G1 failed." in result.out
    said = "RuntimeError" if ends == "a fault" else "interrupted"
    assert f"no baseline in this report: {said}\n" in result.err


def test_signals_while_reports_are_written_are_not_heard(
    saltwall: CommandLine, leaky: WordCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every form is there, and the exit code is the report's."""

    def disturbed(report: Report) -> str:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(signum)
        return report.json_text()

    monkeypatch.setattr(writers, "FORMS", dict(writers.FORMS) | {"json": disturbed})
    assert saltwall("audit", "run", "--target", leaky.url, "--keys", "none").code == 1
    written = {path.name for path in (tmp_path / "saltwall-audit").iterdir()}
    assert written == set(writers.FILES.values())


def test_a_form_that_cannot_be_had_costs_no_other(
    saltwall: CommandLine, apart: WordCache, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a report that is not whole is no success."""

    def unable(report: Report) -> str:
        raise ValueError("sk-secret")

    monkeypatch.setattr(writers, "FORMS", dict(writers.FORMS) | {"junit": unable})
    result = saltwall("audit", "run", "--target", apart.url, "--keys", keys)
    assert result.code == 2
    assert "All that was tested held." in result.out
    assert "cannot be written: saltwall-audit/report.xml: ValueError\n" in result.err
    written = {path.name for path in Path("saltwall-audit").iterdir()}
    assert written == {"report.json", "report.sarif", "report.html"}


def test_a_report_that_could_not_be_written_is_refused_before_the_attack(
    saltwall: CommandLine, leaky: WordCache, tmp_path: Path
) -> None:
    """By its name."""
    (tmp_path / "saltwall-audit" / "report.html").mkdir(parents=True)
    result = saltwall("audit", "run", "--target", leaky.url, "--keys", "none")
    assert result.code == 2
    assert "saltwall-audit/report.html: Is a directory" in result.err
    assert not leaky.callers
    assert [path.name for path in (tmp_path / "saltwall-audit").iterdir()] == ["report.html"]


def test_an_earlier_report_is_not_taken_for_this_runs(
    saltwall: CommandLine, tmp_path: Path
) -> None:
    """Where there is none of this run."""
    old = tmp_path / "saltwall-audit" / "report.json"
    old.parent.mkdir()
    old.write_text(mixed().json_text())
    assert saltwall("audit", "run", "--target", "http://127.0.0.1:9/v1", "--keys", "none").code == 2
    assert not old.exists()


def test_the_exit_code_does_not_depend_on_who_reads(
    saltwall: CommandLine, leaky: WordCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe that is closed, and cannot hold the model's name."""
    leaky.model = "模型"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="latin-1") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        monkeypatch.setattr(sys, "stderr", closed)
        assert saltwall("audit", "run", "--target", leaky.url, "--keys", "none").code == 1


def test_stock_vllm_is_refused_where_there_is_none(
    saltwall: CommandLine, apart: WordCache, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the target is attacked for a long time."""
    monkeypatch.setattr(vllm_install, "version", lambda: None)
    given = ("--target", apart.url, "--keys", keys, "--baseline", "stock")
    result = saltwall("audit", "run", *given)
    assert result.code == 2
    assert "vLLM is not installed here" in result.err
    assert not apart.callers


def names(saltwall: CommandLine) -> list[str]:
    """The tenants that there are."""
    return [row["name"] for row in json.loads(saltwall.ok("tenant", "list", "--json"))]


@pytest.mark.parametrize("shell", [(), ("sh", "-c", "trap '' INT; exec \"$@\"", "-")])
def test_an_interrupted_run_deletes_its_tenants(
    saltwall: CommandLine, tmp_path: Path, shell: tuple[str, ...]
) -> None:
    """Those that the operator's command has made; SIGTERM does what Ctrl-C does, also where that
    is ignored: it says so, and what was found is in the report. What comes while tenants are
    deleted is not heard.
    """
    saltwall.ok("db", "upgrade")
    saltwall.ok("tenant", "create", "acme")
    operator = shlex.join(["sh", "-c", IMPATIENT, sys.executable])
    arguments = ("audit", "run", "--suite", "endless", "--operator", operator)
    with (
        serving(WordCache()) as server,
        subprocess.Popen(
            [*shell, sys.executable, "-c", ENDLESS, *arguments, "--target", server.url],
            env=os.environ | {"PYTHONPATH": str(SUPPORT)},
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if "It goes on" in line:
                    break
            made = [re.sub(r"-[0-9a-f]{6}-", "-x-", name) for name in names(saltwall)]
            assert sorted(made) == ["acme", "audit-x-a", "audit-x-b", "audit-x-c"]
            process.send_signal(signal.SIGTERM)
            said = process.stderr.read()
            assert process.wait(timeout=60) == 2, said
        finally:
            process.kill()  # a test that fails must not wait for an endless suite
    assert names(saltwall) == ["acme"], said
    assert "stopping: " in said
    (check,) = read(tmp_path / "saltwall-audit" / "report.json").checks().values()
    assert "the run was interrupted" in check.seen


@pytest.mark.parametrize("option", ["--target", "--baseline"])
def test_what_is_no_url_is_refused_before_anything_is_attacked(
    saltwall: CommandLine, apart: WordCache, keys: str, option: str
) -> None:
    """By the name of the option."""
    result = saltwall("audit", "run", "--target", apart.url, "--keys", keys, option, "foo")
    assert result.code == 2
    assert f"{option}: give a URL" in result.err
    assert not apart.callers


def test_one_tenant_twice_is_no_pair(saltwall: CommandLine, apart: WordCache) -> None:
    """It shares its cache with itself, which is no leak."""
    given = ("--target", apart.url, "--keys", "a=key-a-123456", "--keys", "b=key-a-123456")
    result = saltwall("audit", "run", *given)
    assert result.code == 2
    assert "a and b have the same key" in result.err


def test_a_report_is_printed_in_one_form(saltwall: CommandLine, tmp_path: Path) -> None:
    """Two are refused."""
    (tmp_path / "report.json").write_text(mixed().json_text())
    result = saltwall("audit", "report", "report.json", "--html", "--sarif")
    assert result.code == 2
    assert "one form at a time" in result.err


def test_the_list_names_each_suite_with_its_needs(saltwall: CommandLine) -> None:
    """For people and for programs."""
    assert "two tenants" in saltwall.ok("audit", "list")
    (row,) = json.loads(saltwall.ok("audit", "list", "--json"))
    assert row["suite"] == "probe"
    assert row["guarantees"] == ["G1"]
    assert row["share"] == "100%"


def test_a_saved_report_is_rendered_anew(saltwall: CommandLine, tmp_path: Path) -> None:
    """Its summary, or any form, printed or into a file."""
    (tmp_path / "report.json").write_text(mixed().json_text())
    report = ("audit", "report", "report.json")
    assert "Could not tell." in saltwall.ok(*report)
    assert saltwall.ok(*report, "--html") == saltwall.ok(*report, "--format", "html")
    assert saltwall.ok(*report, "--junit").startswith("<?xml")
    assert json.loads(saltwall.ok(*report, "--sarif"))["version"] == "2.1.0"
    assert saltwall.ok(*report, "--html", "--out", "page.html") == ""
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_what_is_no_report_is_refused(saltwall: CommandLine, tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / "other.json").write_text("{}")
    result = saltwall("audit", "report", "other.json")
    assert result.code == 2
    assert "is not a saltwall-audit/1 report" in result.err
