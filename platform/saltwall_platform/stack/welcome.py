"""What `saltwall up` says once it can serve."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from saltwall_platform.settings import Engine, Settings


def base_url(settings: Settings) -> str:
    """Where tenants connect to."""
    return f"http://{reachable(settings.host)}:{settings.port}"


def admin_url(settings: Settings) -> str:
    """Where operators find health and metrics."""
    return f"http://{reachable(settings.admin_host)}:{settings.admin_port}"


def reachable(host: str) -> str:
    """An address in a URL for a listening address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # read, not bound
    return f"[{host}]" if ":" in host else host


def saltwall(settings: Settings) -> str:
    """How this shell calls the command line on the same data directory."""
    script = Path(sys.argv[0])
    command = shlex.quote(str(script)) if script.name == "saltwall" else "saltwall"
    if settings.home == Path(".saltwall").absolute():
        return command
    return f"SALTWALL_HOME={shlex.quote(str(settings.home))} {command}"


def document(
    settings: Settings,
    engine: Engine,
    keys: Mapping[str, str],
    pids: Mapping[str, int | None],
) -> dict[str, object]:
    """The same for programs; `keys` are those just made, by tenant."""
    return {
        "event": "ready",
        "base_url": f"{base_url(settings)}/v1",
        "admin_url": admin_url(settings),
        "engine_url": engine.url,
        "model": engine.name,
        "home": str(settings.home),
        "keys": dict(keys),
        "pids": dict(pids),
    }


def text(settings: Settings, name: str, keys: Mapping[str, str]) -> str:
    """Keys, URLs and a line to paste; `name` is the model's."""
    again = f"{saltwall(settings)} key create acme --plain"
    lines = ["", f"  tenants     {base_url(settings)}/v1"]
    lines += [f"  operators   {admin_url(settings)}/metrics", ""]
    if keys:
        lines += [f"  key of {tenant.ljust(8)} {key}" for tenant, key in keys.items()]
        lines.append(f"  Keys are shown once. Another: {again}")
    else:
        lines.append(f"  Keys were shown when they were made. A new one: {again}")
    key = keys.get("acme") or f"$({again})"
    body = (
        f'{{"model": "{name}", "max_tokens": 40, "messages": '
        '[{"role": "user", "content": "Give me three facts about salt."}]}'
    )
    lines += [
        "",
        "  Try it:",
        "",
        f"curl {base_url(settings)}/v1/chat/completions "
        f'-H "Authorization: Bearer {key}" -H "Content-Type: application/json" '
        f"-d {shlex.quote(body)}",
        "",
        "  Ctrl-C stops everything.",
    ]
    return "\n".join(lines)
