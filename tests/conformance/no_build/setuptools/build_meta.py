"""A build backend (PEP 517) that builds nothing.

`pip download` asks the backend for metadata before it keeps a source distribution, and vLLM's own
wants torch, CUDA and a compiler for that. A source distribution states its metadata in PKG-INFO.
"""

import shutil
from pathlib import Path


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """Nothing is built, so nothing is needed."""
    return []


def prepare_metadata_for_build_wheel(directory: str, config_settings: object = None) -> str:
    """Copies PKG-INFO from the working directory, which is the unpacked source distribution."""
    info = Path(directory, "vllm.dist-info")
    info.mkdir()
    shutil.copy("PKG-INFO", info / "METADATA")
    return info.name
