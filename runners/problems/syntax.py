"""Parse Python source into syntax trees, one at a time. Nothing is executed here."""

from __future__ import annotations

import ast
import threading

# What the parser raises for hostile text. NUL bytes and deep nesting are not always a SyntaxError; thousands of unary
# operators end as SystemError in some versions (python/cpython#106905).
NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
# CPython before 3.11.8 and 3.12.2 counts the depth of all trees that are being built in one variable, so two threads
# that parse at once can fail with "SystemError: AST constructor recursion depth mismatch" (python/cpython#106905).
# Reentrant, because a garbage collection in the middle of a parse runs any finalizer.
_parsing = threading.RLock()


def module_tree(source: str, file: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module. Raises one of NOT_PYTHON."""
    with _parsing:
        return ast.parse(source, filename=file)


def expression_tree(text: str) -> ast.Expression:
    """Return the syntax tree of an expression. Raises one of NOT_PYTHON."""
    with _parsing:
        return ast.parse(text, mode="eval")
