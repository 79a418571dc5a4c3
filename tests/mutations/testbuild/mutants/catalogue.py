"""Every mutant, in the order of the table."""

from importlib import import_module

from mutants.mutant import MUTANTS, PATCHES, Mutant, Patch

MODULES = ("scheduler", "block_hashes", "engine_core", "engine_api", "wire", "gateway", "audit_log")


def mutants() -> list[Mutant]:
    """All of them."""
    _load()
    return list(MUTANTS.values())


def patches() -> list[Patch]:
    """All that they replace."""
    _load()
    return list(PATCHES)


def _load() -> None:
    for name in MODULES:
        import_module(f"mutants.{name}")
