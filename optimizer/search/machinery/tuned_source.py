"""Write chosen tunable values into a kernel's text, as defaults or as a dispatch over the problem's shapes.

When a kernel is shown, copied or handed to another agent, only its text goes along. Therefore the tuned values are
written into the text. One configuration becomes the declared defaults. Where different shapes want different
configurations, the text is compiled once per configuration, and an entry point of its own chooses by shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from optimizer.search.space import FLAGS, Config
from runners.job import Language, Source, TunableValue
from runners.problems.base import Problem, Purpose, Role
from runners.problems.prototype import COMPILED

Shape = tuple[int, ...]

_DECLARATION = re.compile(r"^\s*(?://|#)\s*@(?:tune|constraint)\b")
_TUNE = re.compile(r"^(?P<head>\s*(?://|#)\s*@tune\s+(?P<name>\w+)\b)(?P<values>.*)$")
_FLAGS = re.compile(r"^(?P<head>\s*(?://|#)\s*@flags\s+)(?P<sets>.*)$")
# `#ifndef NAME` right above `#define NAME` is how a C++ kernel leaves a value to the build.
_GUARD = re.compile(r"^\s*#\s*ifndef\s+(\w+)")
_DEFINE = re.compile(r"^(?P<head>\s*#\s*define\s+(?P<name>\w+)\s+)(?P<value>\S+)(?P<tail>.*)$")
_ASSIGNMENT = re.compile(r"^(?P<name>[A-Za-z_]\w*)(?P<equals>\s*=\s*)(?P<value>[^\s#]+)(?P<tail>\s*(?:#.*)?)$")
_INCLUDE = re.compile(r"^\s*#\s*include\b")
_OPENS = re.compile(r"^\s*#\s*if")
_CLOSES = re.compile(r"^\s*#\s*endif\b")


def with_values(source: Source) -> Source:
    """Return the kernel with its tunables and flags written into its text as defaults.

    The result also keeps the chosen values as settings, so that it builds exactly what the given kernel built.
    """
    lines = source.text.split("\n")
    guarded = ""
    for number, line in enumerate(lines):
        lines[number] = _rewritten(line, source, guarded)
        guard = _GUARD.match(line)
        guarded = guard[1] if guard else ""
    return replace(source, text="\n".join(lines))


def _rewritten(line: str, source: Source, guarded: str) -> str:
    """Return a line with the chosen value in place of the default that it declares. `guarded` is the name that the
    line before tests with `#ifndef`.
    """
    values = source.tunables
    if (found := _TUNE.match(line)) and found["name"] in values:
        listed = " ".join(word for word in found["values"].split() if not word.startswith("default="))
        return f"{found['head']} {listed} default={_word(values[found['name']])}"
    if source.flags and (found := _FLAGS.match(line)):
        return found["head"] + " | ".join(_flags_first(found["sets"], source.flags))
    # A definition without a guard is a constant of the kernel, even if a tunable has its name.
    if (found := _DEFINE.match(line)) and found["name"] == guarded and guarded in values:
        return f"{found['head']}{_macro(values[guarded])}{found['tail']}"
    is_python = source.language in {Language.PYTHON, Language.TRITON}
    if is_python and (found := _ASSIGNMENT.match(line)) and found["name"] in values:
        return f"{found['name']}{found['equals']}{values[found['name']]!r}{found['tail']}"
    return line


def _flags_first(sets: str, chosen: Sequence[str]) -> list[str]:
    """Return the declared sets of flags with the chosen one, where it is among them, in front: the first is the
    default.
    """
    listed = [" ".join(flags.split()) for flags in sets.split("|")]
    first = " ".join(chosen)
    return [first, *(flags for flags in listed if flags != first)] if first in listed else listed


def _word(value: TunableValue) -> str:
    """Return a value as `@tune` lists it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _macro(value: TunableValue) -> str:
    """Return a value in the form that the preprocessor accepts."""
    return str(int(value)) if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Choice:
    """Hold the configuration for all shapes, and those of the shapes that want another one, by the sizes in order."""

    default: Config
    by_shape: Mapping[Shape, Config]

    @property
    def variants(self) -> list[Config]:
        """Return the distinct configurations, the default first."""
        found = [self.default]
        for config in self.by_shape.values():
            if config not in found:
                found.append(config)
        return found


def shapes_of(problem: Problem, target: str) -> dict[str, Shape]:
    """Map each timed case of the problem to its sizes, in the order of the arguments."""
    names = [argument.name for argument in problem.arguments if argument.role is Role.SIZE]
    return {
        case.name: tuple(int(case.sizes[name]) for name in names)
        for case in problem.cases(target, Purpose.BENCHMARK)
        if names and all(isinstance(case.sizes.get(name), int) for name in names)
    }


def dispatched(source: Source, problem: Problem, choice: Choice) -> Source | None:
    """Return a kernel that runs each declared shape with its own configuration, and all others with the default one.

    Returns None where the text cannot be split: an include under a condition, an unknown entry point, or sizes that
    cannot be read from the arguments.
    """
    if source.language in COMPILED:
        text = _compiled_dispatch(source, problem, choice)
    elif problem.entry_point == "custom_kernel":
        text = _python_dispatch(source, problem, choice)
    else:
        text = None
    return None if text is None else Source(source.language, text, {}, source.flags)


def _compiled_dispatch(source: Source, problem: Problem, choice: Choice) -> str | None:
    """Return the text with one namespace per configuration and an entry point that chooses among them."""
    parts = _without_includes(source.text)
    parameters = _parameters(source.text, problem.symbol)
    if parts is None or parameters is None:
        return None
    includes, body = parts
    names = [re.split(r"[\s*&]+", parameter.strip())[-1] for parameter in parameters]
    sizes = [names[i] for i, argument in enumerate(problem.arguments) if argument.role is Role.SIZE]
    spaces = [_namespace(body, problem.symbol, n, config) for n, config in enumerate(choice.variants)]
    entry = [f'extern "C" void {problem.symbol}({", ".join(parameters)}) {{']
    for shape, config in choice.by_shape.items():
        # `return` of a void call is valid C++, so that each shape is one line without braces.
        tests = " && ".join(f"{name} == {size}" for name, size in zip(sizes, shape, strict=True))
        entry.append(f"  if ({tests}) return {_call(problem.symbol, choice.variants.index(config), names)};")
    entry += [f"  {_call(problem.symbol, 0, names)};", "}"]
    return "\n".join([*includes, "", *spaces, *entry, ""])


def _call(symbol: str, number: int, names: Iterable[str]) -> str:
    return f"tuned_{number}::{symbol}_{number}({', '.join(names)})"


def _namespace(body: str, symbol: str, number: int, config: Config) -> str:
    """Return the body compiled with one configuration.

    The entry point is renamed, because functions with C linkage and the same name are one function, whatever their
    namespaces.
    """
    values = {
        symbol: f"{symbol}_{number}",
        **{name: _macro(value) for name, value in config.items() if name != FLAGS},
    }
    defines = [f"#define {name} {value}" for name, value in values.items()]
    undefines = [f"#undef {name}" for name in values]
    return "\n".join([*defines, f"namespace tuned_{number} {{", body.strip("\n"), "}", *undefines, ""])


def _without_includes(text: str) -> tuple[list[str], str] | None:
    """Return the includes and the rest without its declarations of tunables; None where an include is conditional.

    An include cannot stay: inside a namespace it would declare the library's names there.
    """
    includes: list[str] = []
    rest: list[str] = []
    depth = 0
    for line in text.split("\n"):
        if _INCLUDE.match(line):
            if depth:
                return None
            includes.append(line)
        elif not _DECLARATION.match(line):
            rest.append(line)
        depth += bool(_OPENS.match(line)) - bool(_CLOSES.match(line))
    return includes, "\n".join(rest)


def _parameters(text: str, symbol: str) -> list[str] | None:
    """Return the parameters of the entry point as its definition writes them, or None without one definition."""
    found = re.findall(rf"\bvoid\s+{re.escape(symbol)}\s*\(([^(){{}};]*)\)\s*\{{", text)
    return [" ".join(part.split()) for part in found[0].split(",")] if len(found) == 1 else None


def _python_dispatch(source: Source, problem: Problem, choice: Choice) -> str | None:
    """Return the text with an entry point that sets the module's tunables by the shapes of the inputs."""
    places = _places_of_sizes(problem)
    if places is None:
        return None
    body = "\n".join(line for line in source.text.split("\n") if not _DECLARATION.match(line)).rstrip("\n")
    table = [f"    {shape!r}: {_plain(config)!r}," for shape, config in choice.by_shape.items()]
    # The kernel reads its tunables as module variables at each call, so that is where they have to change.
    return "\n".join([
        body, "", "", "# Tunables by shape, found by measuring; every other shape takes the defaults.",
        "_BY_SHAPE = {", *table, "}",
        f"_DEFAULTS = {_plain(choice.default)!r}",
        "_untuned_kernel = custom_kernel", "", "",
        "def custom_kernel(*args):",
        f"    globals().update(_BY_SHAPE.get(({', '.join(places)},), _DEFAULTS))",
        "    return _untuned_kernel(*args)", "",
    ])  # fmt: skip


def _plain(config: Config) -> dict[str, TunableValue]:
    return {name: value for name, value in config.items() if name != FLAGS}


def _places_of_sizes(problem: Problem) -> list[str] | None:
    """Return an expression over `args` for every size, or None where no input's extent is that size alone."""
    given = [argument for argument in problem.arguments if argument.role in {Role.INPUT, Role.SCALAR}]
    where = {
        extent: f"args[{position}].shape[{axis}]"
        for position, argument in enumerate(given)
        for axis, extent in enumerate(argument.shape)
    }
    sizes = [argument.name for argument in problem.arguments if argument.role is Role.SIZE]
    return [where[name] for name in sizes] if all(name in where for name in sizes) else None
