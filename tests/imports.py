"""Find import statements in source text, without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# nodes that can contain statements, and so imports; expressions need not be searched
HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Statement = ast.Import | ast.ImportFrom


def import_statements(tree: ast.AST, deferred: bool = False) -> Iterator[tuple[Statement, bool]]:
    """Yield each import, and whether it is deferred: in a function, or for the type checker alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, deferred
        elif isinstance(node, HOLDERS):
            yield from import_statements(
                node, deferred or isinstance(node, FUNCTIONS) or _is_type_checking(node)
            )


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
