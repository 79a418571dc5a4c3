"""The wire formats can be imported inside vLLM without dragging the domain along."""

import json
import subprocess
import sys

ALLOWED = {"saltwall_tenants", "cryptography", "cbor2", "_cbor2", "_cffi_backend", "_openssl"}


def test_wire_loads_nothing_of_the_domain() -> None:
    """Importing it loads no SQLAlchemy, nor anything but the two libraries it names."""
    program = (
        "import sys; before = set(sys.modules); import saltwall_tenants.wire; import json;"
        " print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout)
    assert "saltwall_tenants.wire.ticket" in loaded
    foreign = {name.split(".")[0] for name in loaded} - ALLOWED - set(sys.stdlib_module_names)
    assert not foreign
    assert {name for name in loaded if name.startswith("saltwall_tenants.")} == {
        name for name in loaded if name.startswith("saltwall_tenants.wire")
    }
