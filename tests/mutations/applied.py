"""Whether every patch takes: its target exists, and nobody has kept the product's own function.

python applied.py        prints what is wrong; exit code 1 if anything is
"""

import gc
import sys
from importlib import import_module
from typing import Any

from mutants import catalogue, imports


def problems() -> list[str]:
    """What is wrong, after every patched module has been imported."""
    found = []
    targets = dict.fromkeys(patch.target for patch in catalogue.patches())
    for target in targets:
        try:
            import_module(target.partition(":")[0])
        except AttributeError as error:
            found.append(f"{target}: {error}")
    for target in targets:
        original = imports.ORIGINALS.get(target)
        if original is None:
            found.append(f"{target} was not patched")
        elif getattr(original, "__module__", None) != target.partition(":")[0]:
            continue  # a name that the module has imported: it is replaced there alone
        elif holders := _holders(original):
            found.append(f"{target} is called unpatched by {', '.join(holders)}")
    return found


def _holders(original: Any) -> list[str]:
    """Modules, tuples and lists that refer to an original beside its dispatcher."""
    names = {id(vars(module)): name for name, module in sys.modules.items() if module is not None}
    found = []
    for holder in gc.get_referrers(original):
        if id(holder) in names:
            found.append(names[id(holder)])
        elif isinstance(holder, tuple | list):
            found.append(f"a {type(holder).__name__}")
    return found


def _main() -> int:
    found = problems()
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(_main())
