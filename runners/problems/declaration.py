"""Read what a native problem.toml declares, field by field, without executing anything."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from typing import Any

from runners.job import Language, Source
from runners.problems.base import Argument, Case, ProblemError, Purpose, Role, Seed, TorchPolicy
from runners.problems.dtypes import ELEMENT_TYPES
from runners.problems.expressions import ExpressionError, evaluate, names_in
from runners.problems.reading import FieldReader
from runners.problems.syntax import NOT_PYTHON, module_tree
from runners.problems.tolerance import Tolerance

ENTRY = "problem.toml"
FORMAT_VERSION = 1
GENERIC_DISTRIBUTIONS = ("normal", "large_range", "near_constant", "adversarial")
FIXED_DISTRIBUTIONS = ("standard_normal", "positive", "uniform", "ones")
# Each case is checked and timed.
MAX_CASES = 200

# Those that torch.autocast converts to; empty is a program without it.
AUTOCAST_TYPES = ("", "bfloat16", "float16")
_ROLES = (Role.INPUT, Role.OUTPUT, Role.SIZE, Role.SCALAR)
_ARGUMENT_DTYPES = tuple(ELEMENT_TYPES)
_ARITHMETIC_DTYPES = tuple(name for name, kind in ELEMENT_TYPES.items() if kind.floating or name == "int8")


@dataclass(frozen=True)
class Declaration:
    """Hold a valid problem.toml with the texts of the files that it names.

    `flops` and `bytes_expression` are expressions over the sizes. An empty `bytes_expression` means inputs read once
    plus outputs written once.
    """

    name: str
    title: str
    description: str
    symbol: str
    languages: tuple[Language, ...]
    torch_policy: TorchPolicy
    arguments: tuple[Argument, ...]
    cases: tuple[Case, ...]
    tolerances: dict[str, Tolerance]
    flops: dict[str, str]
    bytes_expression: str
    seeds: tuple[Seed, ...]
    reference_file: str
    reference_source: str
    own_distributions: tuple[str, ...]
    provenance: dict[str, Any]


def read_declaration(files: dict[str, str]) -> Declaration:
    """Read `problem.toml` and what it names from `files`. Raises ProblemError with every fault found."""
    complaints: list[str] = []
    root = FieldReader(_decode(files), ENTRY, complaints)
    declaration = _read_root(root, files)
    root.close()
    _check_cases(declaration, complaints)
    _check_work(declaration, complaints)
    _check_outputs(declaration, complaints)
    _check_autocast(declaration, complaints)
    if complaints:
        raise ProblemError(complaints)
    return declaration


def _decode(files: dict[str, str]) -> dict[str, Any]:
    if ENTRY not in files:
        raise ProblemError([f"{ENTRY}: no such file"])
    try:
        return tomllib.loads(files[ENTRY])
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProblemError([f"{ENTRY}: not TOML: {error}"]) from error


def _read_root(root: FieldReader, files: dict[str, str]) -> Declaration:
    if root.take("format", int, 0, required=True) != FORMAT_VERSION:
        root.complain(f"this reader knows format {FORMAT_VERSION}", "format")
    own = _read_own_distributions(root)
    reference_file = root.text("reference", "reference.py")
    work = root.table("work")
    declaration = Declaration(
        name=_identifier(root, "name"),
        title=root.text("title", required=True),
        description=_file_text(root, root.text("description", "description.md"), "description", files),
        symbol=_identifier(root, "symbol"),
        languages=_read_languages(root),
        torch_policy=TorchPolicy(root.choice("torch_policy", tuple(TorchPolicy), TorchPolicy.FLAG)),
        arguments=_read_arguments(root),
        cases=_read_cases(root, own),
        tolerances=_read_tolerances(root),
        flops=_read_flops(work),
        bytes_expression=work.text("bytes"),
        seeds=_read_seeds(root, files),
        reference_file=reference_file,
        reference_source=_read_reference(root, reference_file, own, files),
        own_distributions=own,
        provenance=root.table("provenance", required=True).rest(),
    )
    work.close()
    return declaration


def _identifier(reader: FieldReader, key: str) -> str:
    value = reader.text(key, required=True)
    if value and not (value.isidentifier() and value.isascii()):
        reader.complain(f"{value!r} is not a C identifier", key)
    return value


def _file_text(reader: FieldReader, path: str, key: str, files: dict[str, str]) -> str:
    if path not in files:
        reader.complain(f"names {path!r}, which is not a text file of this directory", key)
    return files.get(path, "")


def _read_languages(root: FieldReader) -> tuple[Language, ...]:
    languages = []
    for value in root.texts("languages", required=True):
        if value in tuple(Language):
            languages.append(Language(value))
        else:
            root.complain(f"{value!r} is not one of {', '.join(Language)}", "languages")
    return tuple(languages)


def _read_own_distributions(root: FieldReader) -> tuple[str, ...]:
    table = root.table("distributions")
    own = table.texts("own")
    for name in own:
        if not name.isidentifier():
            table.complain(f"{name!r} is not an identifier", "own")
    table.close()
    return own


def _read_arguments(root: FieldReader) -> tuple[Argument, ...]:
    arguments = tuple(_read_argument(reader) for reader in root.tables("arguments", required=True))
    names = [argument.name for argument in arguments]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.complain(f"the name {name!r} is used twice", "arguments")
    return arguments


def _read_argument(reader: FieldReader) -> Argument:
    role = Role(reader.choice("role", _ROLES, Role.INPUT, required=True))
    is_tensor = role in (Role.INPUT, Role.OUTPUT)
    argument = Argument(
        name=_identifier(reader, "name"),
        role=role,
        dtype=reader.choice("dtype", _ARGUMENT_DTYPES, "int64", required=role is not Role.SIZE),
        shape=reader.texts("shape", required=is_tensor),
        order=reader.choice("order", ("row", "column"), "row"),
        distribution=_read_fixed_distribution(reader),
    )
    if not is_tensor and argument.shape:
        reader.complain(f"a {role} has no shape", "shape")
    reader.close()
    return argument


def _read_fixed_distribution(reader: FieldReader) -> str | None:
    if "distribution" not in reader:
        return None
    return reader.choice("distribution", FIXED_DISTRIBUTIONS, FIXED_DISTRIBUTIONS[0])


def _read_cases(root: FieldReader, own: tuple[str, ...]) -> tuple[Case, ...]:
    readers = root.tables("cases", required=True)
    if len(readers) > MAX_CASES:
        root.complain(f"{len(readers)} cases; at most {MAX_CASES}", "cases")
    cases = tuple(_read_case(reader, own) for reader in readers[:MAX_CASES])
    names = [case.name for case in cases]
    for name in sorted({name for name in names if names.count(name) > 1}):
        root.complain(f"the name {name!r} is used twice", "cases")
    if not any(case.purpose is Purpose.TEST for case in cases):
        root.complain('no case with purpose "test"', "cases")
    return cases


def _read_case(reader: FieldReader, own: tuple[str, ...]) -> Case:
    known = dict.fromkeys(GENERIC_DISTRIBUTIONS + own)
    case = Case(
        name=reader.text("name", required=True),
        sizes=reader.table("sizes", required=True).rest(),
        purpose=Purpose(reader.choice("purpose", tuple(Purpose), Purpose.TEST, required=True)),
        targets=reader.texts("targets", ("cpu", "gpu")),
        distributions=reader.texts("distributions", ("normal",)),
    )
    for name in case.distributions:
        if name not in known:
            reader.complain(f"{name!r} is not one of {', '.join(known)}", "distributions")
    reader.close()
    return case


def _read_tolerances(root: FieldReader) -> dict[str, Tolerance]:
    table = root.table("tolerances", required=True)
    tolerances = {}
    for dtype in table.remaining():
        reader = table.table(dtype)
        tolerance = Tolerance(reader.number("rtol", required=True), reader.number("atol", required=True))
        if dtype not in ELEMENT_TYPES:
            reader.complain("not a dtype we know")
        # A relative tolerance of 1 would accept zeros for everything.
        if not (0 <= tolerance.rtol < 1 and 0 <= tolerance.atol < float("inf")):
            reader.complain("rtol must lie in [0, 1) and atol be finite and not negative")
        reader.close()
        tolerances[dtype] = tolerance
    return tolerances


def _read_flops(work: FieldReader) -> dict[str, str]:
    table = work.table("flops")
    flops = {}
    for dtype in table.remaining():
        flops[dtype] = table.text(dtype)
        if dtype not in _ARITHMETIC_DTYPES:
            table.complain("not a dtype that arithmetic is done in", dtype)
    return flops


def _read_seeds(root: FieldReader, files: dict[str, str]) -> tuple[Seed, ...]:
    return tuple(_read_seed(reader, files) for reader in root.tables("seeds", required=True))


def _read_seed(reader: FieldReader, files: dict[str, str]) -> Seed:
    path = reader.text("file", required=True)
    seed = Seed(
        name=reader.text("name", required=True),
        title=reader.text("title", required=True),
        source=Source(
            Language(reader.choice("language", tuple(Language), Language.PYTHON, required=True)),
            _file_text(reader, path, "file", files),
        ),
        status=reader.text("status"),
    )
    reader.close()
    return seed


def _read_reference(root: FieldReader, path: str, own: tuple[str, ...], files: dict[str, str]) -> str:
    source = _file_text(root, path, "reference", files)
    try:
        tree = module_tree(source, path)
    except NOT_PYTHON as error:
        root.complaints.append(f"{path}: not Python: {error}")
        return source
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("reference", *(f"fill_{distribution}" for distribution in own)):
        if source and name not in defined:
            root.complaints.append(f"{path}: no function {name}")
    return source


def _check_cases(declaration: Declaration, complaints: list[str]) -> None:
    wanted = {a.name for a in declaration.arguments if a.role in (Role.SIZE, Role.SCALAR)}
    for number, case in enumerate(declaration.cases):
        where = f"{ENTRY}.cases[{number}].sizes"
        complaints += [f"{where}: {name!r} is missing" for name in sorted(wanted - set(case.sizes))]
        for name, value in case.sizes.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                complaints.append(f"{where}.{name}: expected a number, got {value!r:.80}")
        if not any(c.startswith(where) for c in complaints):
            _check_shapes(declaration, case, where, complaints)


def _check_shapes(declaration: Declaration, case: Case, where: str, complaints: list[str]) -> None:
    for argument in declaration.arguments:
        for expression in argument.shape:
            try:
                extent = evaluate(expression, case.sizes)
            except ExpressionError as error:
                complaints.append(f"{where}: shape of {argument.name}: {error}")
                continue
            if extent != int(extent) or extent < 1:
                complaints.append(f"{where}: shape of {argument.name}: {expression!r} is {extent}")


def _check_work(declaration: Declaration, complaints: list[str]) -> None:
    sizes: set[str] = set.intersection(*(set(c.sizes) for c in declaration.cases)) if declaration.cases else set()
    expressions = [*declaration.flops.values(), *filter(None, [declaration.bytes_expression])]
    for expression in expressions:
        try:
            unknown = names_in(expression) - sizes
        except ExpressionError as error:
            complaints.append(f"{ENTRY}.work: {error}")
            continue
        if unknown:
            complaints.append(
                f"{ENTRY}.work: {expression!r} reads {sorted(unknown)[0]!r}, not a size of every case"
            )


def _check_autocast(declaration: Declaration, complaints: list[str]) -> None:
    if (cast := declaration.provenance.get("autocast", "")) not in AUTOCAST_TYPES:
        complaints.append(
            f"{ENTRY}.provenance.autocast: expected {' or '.join(AUTOCAST_TYPES[1:])}, got {cast!r:.40}"
        )


def _check_outputs(declaration: Declaration, complaints: list[str]) -> None:
    outputs = [argument for argument in declaration.arguments if argument.role is Role.OUTPUT]
    if not outputs:
        complaints.append(f'{ENTRY}.arguments: no argument with role "output"')
    for argument in outputs:
        if argument.dtype not in declaration.tolerances:
            complaints.append(f"{ENTRY}.tolerances: none for {argument.dtype}, the dtype of {argument.name}")
