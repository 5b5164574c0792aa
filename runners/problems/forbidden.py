"""Find operations that a problem forbids in the text of a Python candidate.

A problem names them as text (`torch.topk`, `F.linear`, `Tensor.sort`, `import sonic_moe`). kernelbench.com looks for
that text anywhere in the file. Here comments and docstrings do not count, and other spellings of the same operation
do: names behind aliases and `from` imports, `getattr` with a literal, and methods of tensors.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator

from runners.problems.syntax import NOT_PYTHON, module_tree

# Names that candidates give to what they have built, whose functions may be called `topk` too.
_EXTENSION = re.compile(r"(ext|mod|module|lib|library|kernel|op)s?$", re.IGNORECASE)
# No operation of torch has as many names in its path.
LONGEST_CHAIN = 16


def forbidden_in(text: str, forbidden: Iterable[str]) -> list[str]:
    """Return the forbidden operations that a candidate's text uses, each once, in the order of the list."""
    try:
        tree = module_tree(text)
    except NOT_PYTHON:
        return [name for name in forbidden if name in text]
    code, used = _without_comments(text, tree), set(_used(tree))
    return [name for name in forbidden if _is_used(name, code, used)]


def _is_used(name: str, code: str, used: set[str]) -> bool:
    """Match as text at a word's end, or as an operation under another name."""
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", code):
        return True
    return _canonical(name) in used or (name.startswith("Tensor.") and f"method {name[7:]}" in used)


def _canonical(name: str) -> str:
    """Return the full name of `F.linear` and the like."""
    return f"torch.nn.functional.{name[2:]}" if name.startswith("F.") else name


def _used(tree: ast.Module) -> Iterator[str]:
    """Yield every dotted name in full, and `method NAME` for methods whose result is used."""
    aliases = _aliases(tree)
    modules = {name.partition(".")[0] for name in aliases.values()}
    yield from aliases.values()
    unused = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (full := _dotted(node, aliases)) is not None:
            yield full
        elif isinstance(node, ast.Name) and node.id in aliases:
            yield aliases[node.id]
        if isinstance(node, ast.Call) and (found := _got(node, aliases)) is not None:
            yield found
        if isinstance(node, ast.Call) and id(node) not in unused:  # `names.sort()` sorts a list, in place
            yield from _method(node, aliases, modules)


def _method(call: ast.Call, aliases: dict[str, str], modules: set[str]) -> Iterator[str]:
    """Yield `method NAME` for a call on what may be a tensor: no imported module, no extension of the candidate."""
    if isinstance(call.func, ast.Attribute) and not _EXTENSION.search(_last_name(call.func.value)):
        root = (_dotted(call.func, aliases) or "").partition(".")[0]
        if root not in modules:
            yield f"method {call.func.attr}"


def _last_name(node: ast.expr) -> str:
    """Return the last name of `a.b` or `a.b()`, or nothing of another expression."""
    if isinstance(node, ast.Call) and not node.args and not node.keywords:
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _got(node: ast.Call, aliases: dict[str, str]) -> str | None:
    """Return what `getattr(module, "name")` names."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[place, ast.Constant(value=str() as name), *_]):
            full = _dotted(place, aliases)
            return f"method {name}" if full is None else f"{full}.{name}"
    return None


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """Return a chain of names in full, None where it is long or starts from anything but an imported or plain name."""
    parts: list[str] = []
    # A limit, because every link of a chain is looked at, and each would walk down the rest.
    while isinstance(node, ast.Attribute) and len(parts) < LONGEST_CHAIN:
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([aliases.get(node.id, node.id), *reversed(parts)])


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return what the imported names stand for in full."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _without_comments(text: str, tree: ast.Module) -> str:
    """Return the text with comments and docstrings blanked; literal strings stay, since kernels are written in them."""
    lines = [list(line) for line in text.splitlines(keepends=True)]
    for first, start, last, end in [*_docstrings(tree), *_comments(text)]:
        for number in range(first - 1, last):
            line = lines[number]
            left = start if number == first - 1 else 0
            right = min(end, len(line)) if number == last - 1 else len("".join(line).rstrip("\r\n"))
            line[left:right] = " " * (right - left)
    return "".join(character for line in lines for character in line)


Span = tuple[int, int, int, int]


def _comments(text: str) -> Iterator[Span]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield (token.start[0], token.start[1], token.end[0], token.end[1])
    except (tokenize.TokenError, IndentationError):
        return


def _docstrings(tree: ast.Module) -> Iterator[Span]:
    """Yield the places of strings that stand alone as a statement. Columns are exact for ASCII lines only; on others
    a few characters beside them may be blanked or left."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield (node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
