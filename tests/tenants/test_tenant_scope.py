"""Every statement on what a tenant owns says whose."""

import ast
from collections.abc import Iterator
from pathlib import Path

import saltwall_tenants

OWNED = {"ApiKeyRow", "QuotaRow", "SaltRow", "UsageRow"}
# Across tenants by purpose: what all engines accept, what must add up, what is due of all, and what
# is found by the public id of a key, which is how a request's tenant is known in the first place.
ACROSS = {
    ("api_keys", "authenticate"),
    ("api_keys", "revoke"),
    ("api_keys", "touch"),
    ("salts", "expire"),
    ("quotas", "list_all"),
    ("policy", "<module>"),
}


def statements() -> Iterator[tuple[str, str, str]]:
    """Each statement on an owned table: its module, its function, and that function's text."""
    for path in sorted(Path(saltwall_tenants.__path__[0]).glob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {
            child: node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            function = inside.get(node)
            body = ast.unparse(function or tree)
            tables = {name for name in OWNED if name in body}
            if node.func.id in {"select", "update", "delete"} and tables:
                yield path.stem, function.name if function else "<module>", body


def test_statements_are_scoped() -> None:
    """A function that selects or changes owned rows compares their tenant, or is listed above."""
    unscoped = {
        (module, function) for module, function, body in statements() if "tenant_id ==" not in body
    }
    assert unscoped == ACROSS


def test_check_sees_the_statements() -> None:
    """The check finds the modules that own tables, so it would find a new statement there."""
    assert {module for module, *_ in statements()} == {
        *("api_keys", "policy", "quotas", "salts", "usage")
    }
