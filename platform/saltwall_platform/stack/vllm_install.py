"""Which vLLM is installed, without importing it (that takes seconds)."""

import importlib.util
import re
from pathlib import Path


def version() -> str | None:
    """vLLM's own version; None if it is not installed.

    From its files, because a CPU wheel's metadata has another package's name.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("_version.py").read_text()
    except OSError:
        return None
    found = re.search(r"^__version__ = .*?'([^']+)'", text, re.M)
    return found[1] if found else None
