"""The document is what its published schema says, is read as it was written, and keeps secrets."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus

import jsonschema
import numpy as np
import pytest
from made_reports import CHECK, HOW, KEY, PLOTS, SALT, TARGET, made, mixed, suite

from saltwall_security.errors import AuditError
from saltwall_security.report.build import report
from saltwall_security.report.document import read
from saltwall_security.report.schema import PATH, schema_text
from saltwall_security.target import Tenant


def test_a_report_fits_the_published_schema() -> None:
    """With everything in it that can be."""
    schema = json.loads(PATH.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(mixed().json_text()), schema)


def test_the_schema_forbids_what_a_report_does_not_have() -> None:
    """So that it says something."""
    document = json.loads(mixed().json_text())
    document["suites"][0]["checks"][0]["verdict"] = "passed"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(PATH.read_text()))


def test_the_published_schema_is_the_documents() -> None:
    """Write it anew with `python -m saltwall_security.report.schema`."""
    assert PATH.read_text() == schema_text()


def test_a_saved_report_is_read_as_it_was(tmp_path: Path) -> None:
    """Every form can be made of it later."""
    path = tmp_path / "report.json"
    path.write_text(mixed().json_text())
    assert read(path) == mixed()


@pytest.mark.parametrize("text", ["", "[]", '{"format": "saltwall-audit/2"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    """In one line that names it."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(AuditError, match=r"other\.json is not a saltwall-audit/1 report"):
        read(path)
    with pytest.raises(AuditError, match="No such file"):
        read(tmp_path / "missing.json")


@pytest.mark.parametrize("started", ["not a time", "0001-01-01T00:00:00+14:00"])
def test_a_report_that_began_at_no_time_is_refused(tmp_path: Path, started: str) -> None:
    """Before any form is made of it."""
    path = tmp_path / "report.json"
    path.write_text(mixed().model_copy(update={"started": started}).json_text())
    with pytest.raises(AuditError, match="started: Value error, it is no time"):
        read(path)


def test_numbers_of_numpy_and_those_that_json_lacks_are_written() -> None:
    """The former as Python's, the latter as null."""
    figures = {"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True), "d": float("nan")}
    plot = replace(PLOTS[1], series={"x": [np.float64(1), float("inf")]})
    found = made(suite("timing", replace(CHECK, figures=figures, plots=[plot])))
    check = json.loads(found.json_text())["suites"][0]["checks"][0]
    assert check["figures"] == {"a": 0.5, "b": 3, "c": True, "d": None}
    assert check["plots"][0]["series"]["x"] == [1, None]


SAID = (
    f"{KEY} and {SALT}",
    "sw_live_0123456789ab_0123456789abcdefghijABCDEFGHIJ0123456789abc012345",
    f"sw1.{'A' * 114}",
    "authorization: Bearer control-secret-of-the-engine",
    "postgresql+psycopg://saltwall:pass/w@rd@db.internal/saltwall",
)


SPELLINGS: Sequence[Callable[[str], str]] = (
    lambda key: b64encode(key.encode()).decode(),
    lambda key: b64encode(f"user:{key}".encode()).decode(),
    lambda key: urlsafe_b64encode(key.encode()).decode(),
    lambda key: key.encode().hex(),
    quote,
    quote_plus,
    lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    json.dumps,
    lambda key: json.dumps(key).replace("/", "\\/"),
    escape,
    repr,
)


@pytest.mark.parametrize("said", SAID)
def test_no_key_salt_ticket_or_token_is_written(said: str) -> None:
    """Whatever a suite puts where: sentences, figures, tables, plots, the command."""
    leaky = replace(
        CHECK,
        claim=said,
        seen=said,
        control=said,
        advice=said,
        figures={"said": said},
        table=[{"said": said}],
        plots=[replace(PLOTS[0], title=said, series={said: [1.0]})],
    )
    target = replace(TARGET, control_secret="control-secret-of-the-engine")
    text = report(target, [suite("timing", leaky)], replace(HOW, command=said)).json_text()
    for word in said.removeprefix("authorization: Bearer ").split(" and "):
        assert word not in text


@pytest.mark.parametrize("spell", SPELLINGS)
def test_no_key_is_written_in_another_spelling(spell: Callable[[str], str]) -> None:
    """As servers repeat it in errors, or a client had to send it."""
    key = 'key/of+"some"-Kunde:=&0123'
    said = spell(key)
    target = replace(TARGET, tenants=[Tenant("a", key), Tenant("b")])
    found = report(target, [suite("timing", replace(CHECK, seen=f"It said {said}."))], HOW)
    (check,) = found.checks().values()
    assert "[secret]" in check.seen
    assert said[4:-4] not in check.seen


def test_the_password_in_a_url_is_not_written() -> None:
    """The rest of the URL is."""
    how = replace(HOW, command=f"saltwall audit run --target {TARGET.url}")
    found = report(TARGET, [suite("timing", replace(CHECK, seen="password"))], how)
    assert found.target.url == "http://127.0.0.1:9/v1"
    assert "127.0.0.1:9/v1" in found.command
    assert "password" not in found.json_text()


@pytest.mark.parametrize("said", [KEY, "\x1b[2J", "a\nb", "\x9b2J", "\u202e", "\ud800"])
def test_what_the_server_calls_itself_is_in_one_harmless_line(said: str) -> None:
    """It may be a secret, what terminals obey, or half a character, which no file can hold."""
    target = replace(TARGET, model=said, label=said)
    found = report(target, [suite("timing", replace(CHECK, seen=said))], replace(HOW, server=said))
    (check,) = found.checks().values()
    texts = (found.target.model, found.target.label, found.target.server, check.seen)
    assert len(set(texts)) == 1
    assert texts[0] != said
    assert said not in found.json_text().encode().decode()
