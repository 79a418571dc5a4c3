"""Puts dispatchers into the product's modules as they are imported, before others copy a name."""

import sys
from collections.abc import Callable
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mutants import catalogue, switch
from mutants.mutant import Patch

ORIGINALS: dict[str, Any] = {}
"""What stood at each place that has been patched in this process, by target."""


def install() -> None:
    """From now on, in this process, what is patched asks whether a defect is on."""
    sys.meta_path.insert(0, _Finder(_by_module(catalogue.patches())))


def _by_module(patches: list[Patch]) -> dict[str, dict[str, list[Patch]]]:
    modules: dict[str, dict[str, list[Patch]]] = {}
    for patch in patches:
        module, _, name = patch.target.partition(":")
        modules.setdefault(module, {}).setdefault(name, []).append(patch)
    return modules


class _Finder(MetaPathFinder):
    """Finds modules as Python would, and patches them right after their code has run."""

    def __init__(self, modules: dict[str, dict[str, list[Patch]]]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        """The module's spec with a loader that patches; None for what is not ours to patch."""
        places = self._modules.get(name)
        if places is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                return _patching(spec, places)
        return None


def _patching(spec: ModuleSpec, places: dict[str, list[Patch]]) -> ModuleSpec:
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        for name, patches in places.items():
            _apply(module, name, patches)

    loader.exec_module = exec_module
    return spec


def _apply(module: ModuleType, name: str, patches: list[Patch]) -> None:
    *owners, attribute = name.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    original = getattr(owner, attribute)
    ORIGINALS[f"{module.__name__}:{name}"] = original
    calls = {patch.mutant: patch.defect for patch in patches if patch.kind == "call"}
    gets = {patch.mutant: patch.defect for patch in patches if patch.kind == "get"}
    sets = {patch.mutant: patch.defect for patch in patches if patch.kind == "set"}
    setattr(owner, attribute, _call(original, calls) if calls else _slot(original, gets, sets))


def _call(original: Callable[..., Any], defects: dict[str, Callable[..., Any]]) -> Any:
    @wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        defect = defects.get(switch.active())
        if defect is None:
            return original(*args, **kwargs)
        switch.note_reached()
        return defect(original, *args, **kwargs)

    return dispatch


def _slot(
    slot: Any, gets: dict[str, Callable[..., Any]], sets: dict[str, Callable[..., Any]]
) -> property:
    """A property over one of a class's `__slots__`."""

    def read(self: Any) -> Any:
        value = slot.__get__(self)
        defect = gets.get(switch.active())
        if defect is None:
            return value
        switch.note_reached()
        return defect(self, value)

    def write(self: Any, value: Any) -> None:
        defect = sets.get(switch.active())
        if defect is not None and hasattr(self, slot.__name__):
            switch.note_reached()
            value = defect(self, slot.__get__(self), value)
        slot.__set__(self, value)

    return property(read, write)
