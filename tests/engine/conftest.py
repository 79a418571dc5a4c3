"""vLLM's own Scheduler, pool and Request without a model: a config folder, and no weights."""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bare_config import engine_config, set_environment, write_keys, write_model
from bare_core import Core
from timed_engine import TENANTS, MakeEngine, TimedEngine

from saltwall_tenants.wire import EngineKeys

set_environment()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama config without weights or tokenizer."""
    path = tmp_path_factory.mktemp("model")
    write_model(path)
    return path


@pytest.fixture(scope="session")
def engine_keys(tmp_path_factory: pytest.TempPathFactory) -> EngineKeys:
    """The keys of an engine called demo, also in the file that the scheduler reads."""
    return write_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def hooks(engine_keys: EngineKeys) -> None:
    """The plugin's hooks, live in this process as `register` makes them."""
    from saltwall_engine import plugin

    plugin.register()


@pytest.fixture(autouse=True)
def _own_record_factory() -> Iterator[None]:
    """An engine that begins to serve changes how this whole process logs; a test must not."""
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.fixture
def make_config(model_dir: Path, hooks: None) -> Callable[..., Any]:
    """Builds a VllmConfig that the engine accepts, before the changes a test asks for."""
    return partial(engine_config, model_dir)


@pytest.fixture
def make_core(make_config: Callable[..., Any]) -> Callable[..., Core]:
    """Builds vLLM's scheduler, Saltwall's unless another class is asked for."""

    def make(scheduler_class: Any = None, **options: Any) -> Core:
        return Core(make_config(**options), scheduler_class)

    return make


@pytest.fixture
def make_engine(make_config: Callable[..., Any]) -> MakeEngine:
    """Builds an engine without a model for long prompts, of plenty unless told otherwise."""

    def make(tenants: Sequence[UUID] = TENANTS, **options: Any) -> TimedEngine:
        plenty = {"blocks": 16000, "running": 32, "step_tokens": 2048, "model_len": 65536}
        return TimedEngine(make_config(**{**plenty, **options}), tenants)

    return make
