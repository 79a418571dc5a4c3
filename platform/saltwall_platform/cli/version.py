"""`saltwall version`."""

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from saltwall_platform.cli.output import JsonOption, show_one
from saltwall_platform.stack import vllm_install


def versions() -> dict[str, str | None]:
    """What is installed here; None for what is not."""
    try:
        torch: str | None = installed("torch")
    except PackageNotFoundError:
        torch = None
    return {
        "saltwall": installed("saltwall"),
        "python": sys.version.split()[0],
        "vllm": vllm_install.version(),
        "torch": torch,
    }


def version(as_json: JsonOption = False) -> None:
    """Print the versions of Saltwall, Python, vLLM and PyTorch."""
    show_one(versions(), as_json=as_json)
