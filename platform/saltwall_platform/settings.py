"""The gateway's settings: environment variables with the prefix SALTWALL_."""

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "SALTWALL_"
Seconds = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


def is_loopback(host: str) -> bool:
    """Whether a host, as written, can only be this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Engine(BaseModel):
    """One vLLM server behind the gateway.

    `name` is the model deployment that its tickets are for; replicas of one deployment share it.
    `models` are the model names that it serves, its name alone unless told otherwise.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=200)
    url: str
    models: tuple[str, ...] = ()

    @field_validator("url")
    @classmethod
    def _is_origin(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("an engine's url is http://HOST:PORT or https://HOST:PORT")
        if parts.username or parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("an engine's url has no user, path or query")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(
                "an engine on another host needs https://: the control secret goes over the wire"
            )
        return url.rstrip("/")

    @model_validator(mode="before")
    @classmethod
    def _serves_its_name(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and not fields.get("models") and "name" in fields:
            return {**fields, "models": (fields["name"],)}
        return fields


class Settings(BaseSettings):
    """Everything an operator can set; `settings_table` renders it for the manual."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore")

    home: Path = Field(Path(".saltwall"), description="Data directory.")
    database_url: str = Field(
        "",
        repr=False,
        description="`sqlite:///PATH` or `postgresql://...`; unset: `saltwall.db` in the data"
        " directory.",
    )
    keys_dir: Path = Field(
        Path("keys"), description="Directory of the secrets; unset: in the data directory."
    )
    checkpoints: Path = Field(
        Path("audit-checkpoints.jsonl"),
        description="Where the audit log's signed checkpoints are added; unset: in the data"
        " directory.",
    )
    host: str = Field("127.0.0.1", description="Address that tenants connect to.")
    port: Port = Field(8080, description="Its port; 0 takes any free one.")
    admin_host: str = Field(
        "127.0.0.1", description="Address of health and metrics; loopback only."
    )
    admin_port: Port = Field(8081, description="Its port; 0 takes any free one.")
    engines: tuple[Engine, ...] = Field(
        (Engine(name="demo", url="http://127.0.0.1:8100", models=("demo",)),),
        description="The vLLM servers, as JSON: a list of"
        ' `{"name": ..., "url": ..., "models": [...]}`. Replicas share a name;'
        " without `models` an engine serves its name.",
    )
    max_body_bytes: int = Field(
        10_000_000, gt=0, description="Largest request body (bytes); more is 413."
    )
    max_sequences: int = Field(
        64, gt=0, description="Most sequences one request may ask for: prompts x n, or x beams."
    )
    max_constraint_bytes: int = Field(
        16_384,
        ge=0,
        description="Largest schema, regex or grammar to compile (bytes); 0 refuses them all.",
    )
    first_byte_timeout_s: Seconds = Field(
        300, description="Silence of the engine before its first byte that is 504 (seconds)."
    )
    idle_timeout_s: Seconds = Field(
        120,
        description="Silence of the engine, or of a client that does not read, that ends an answer"
        " under way (seconds).",
    )
    lease_seconds: int = Field(
        60,
        ge=3,
        le=3600,
        description="How long an engine serves without hearing from a gateway (seconds).",
    )
    poll_interval_s: float = Field(
        0.25, gt=0, le=0.5, description="How often the database is asked for changes (seconds)."
    )
    shutdown_grace_s: float = Field(
        10, ge=0, description="How long running requests may go on after SIGTERM (seconds)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    log_json: bool = Field(True, description="Log JSON lines; otherwise text for people.")
    otlp_endpoint: str = Field(
        "",
        repr=False,
        description="OTLP/HTTP collector for traces, such as `http://127.0.0.1:4318`; unset: none.",
    )

    @field_validator("admin_host")
    @classmethod
    def _is_local(cls, host: str) -> str:
        if not is_loopback(host):
            raise ValueError(
                "the admin listener has no authentication and binds to loopback only:"
                " use 127.0.0.1, ::1 or localhost"
            )
        return host

    @field_validator("engines")
    @classmethod
    def _are_distinct(cls, engines: tuple[Engine, ...]) -> tuple[Engine, ...]:
        if not engines:
            raise ValueError("name at least one engine")
        if len({engine.url for engine in engines}) < len(engines):
            raise ValueError("two engines have one url")
        served: dict[str, str] = {}
        for engine in engines:
            for model in engine.models:
                if served.setdefault(model, engine.name) != engine.name:
                    raise ValueError(f"two deployments serve {model!r}: give one another name")
        return engines

    @model_validator(mode="after")
    def _derive_paths(self) -> Self:
        self.home = self.home.expanduser().absolute()
        if "keys_dir" not in self.model_fields_set:
            self.keys_dir = self.home / "keys"
        if "checkpoints" not in self.model_fields_set:
            self.checkpoints = self.home / "audit-checkpoints.jsonl"
        if not self.database_url:
            self.database_url = f"sqlite:///{self.home / 'saltwall.db'}"
        return self


def settings_table() -> str:
    """The settings as a Markdown table."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        lines.append(
            f"| `{PREFIX}{name.upper()}` | {_default(field.default)} | {field.description} |"
        )
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    match value:
        case None | "":
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case (Engine(), *_):
            return "one, `demo` at `http://127.0.0.1:8100`"
        case _:
            return f"`{value}`"
