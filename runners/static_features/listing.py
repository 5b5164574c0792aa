"""Represent the machine code of one kernel: instructions in order, with their loop depth and basic block.

Both dialects are read line by line. Loops are the natural loops of the control-flow graph; how often one runs is not
in the code.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

# A kernel that is unrolled further than this is characterised by its first part.
MOST_INSTRUCTIONS = 30_000
_LABEL = re.compile(r"^([.\w$]+):")
_SASS = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")


class Dialect(StrEnum):
    """List the assembly languages that can be read."""

    AMDGCN = "amdgcn"
    SASS = "sass"


@dataclass(frozen=True)
class Instruction:
    """Hold one instruction: its name, its operands as text, and the compiler's comment beside it."""

    opcode: str
    operands: tuple[str, ...]
    comment: str = ""
    text: str = ""


@dataclass(frozen=True)
class Block:
    """Hold a basic block: the half-open range of its instructions, and how many loops contain it."""

    start: int
    stop: int
    depth: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Listing:
    """Hold the instructions of one kernel and the positions to which its labels point."""

    dialect: Dialect
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    @classmethod
    def read(cls, dialect: Dialect, body: str) -> Listing:
        """Read the text of one function. Lines that are no instruction are skipped."""
        reader = _amdgcn if dialect is Dialect.AMDGCN else _sass
        instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        for label, instruction in reader(body):
            if label:
                labels[label] = len(instructions)
            if instruction is not None:
                instructions.append(instruction)
            if len(instructions) >= MOST_INSTRUCTIONS:
                break
        return cls(dialect, tuple(instructions), labels)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the basic blocks in order."""
        loops = natural_loops(self._successors)
        around = Counter(block for body in loops.values() for block in body)
        return tuple(Block(start, stop, around[at]) for at, (start, stop) in enumerate(self._ranges))

    @cached_property
    def loops(self) -> int:
        """Return the number of loops."""
        return len(natural_loops(self._successors))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Return the number of loops around each instruction."""
        return tuple(block.depth for block in self.blocks for _ in range(len(block)))

    @cached_property
    def _ranges(self) -> tuple[tuple[int, int], ...]:
        end = len(self.instructions)
        starts = {0, end, *(at + 1 for at, one in enumerate(self.instructions) if _ends_block(one))}
        starts |= {target for target in self._targets.values() if target < end}
        cuts = sorted(starts)
        return tuple(itertools.pairwise(cuts))

    @cached_property
    def _successors(self) -> tuple[tuple[int, ...], ...]:
        """Return the blocks to which each block may pass control."""
        at = {start: number for number, (start, _) in enumerate(self._ranges)}
        found = []
        for start, stop in self._ranges:
            last = self.instructions[stop - 1]
            jump = at.get(self._targets.get(stop - 1, -1))
            # A branch to its own instruction is the trap after a kernel's end, not a loop.
            trap = self._targets.get(stop - 1) == stop - 1
            next_ones = {jump} if jump is not None and not (trap and stop - start == 1) else set()
            if not _never_falls_through(last) and stop in at:
                next_ones.add(at[stop])
            found.append(tuple(sorted(one for one in next_ones if one is not None)))
        return tuple(found)

    @cached_property
    def _targets(self) -> dict[int, int]:
        """Map the position of every branch to that of the label of this kernel that it names."""
        return {
            at: self.labels[one.operands[-1]]
            for at, one in enumerate(self.instructions)
            if _is_branch(one) and one.operands and one.operands[-1] in self.labels
        }


def natural_loops(successors: Sequence[Sequence[int]]) -> dict[int, set[int]]:
    """Map the header of each natural loop to the blocks of the loop; block 0 is the entry.

    A back edge leads to a block that dominates its source, and the loop is everything that reaches that source
    without passing the header (Aho, Lam, Sethi & Ullman 2006, section 9.6). Back edges to one header are one loop.
    """
    order = _reverse_postorder(successors)
    before: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for successor in successors[block]:
            before[successor].append(block)
    above = _immediate_dominators(order, before)
    loops: dict[int, set[int]] = {}
    for block in order:
        for header in successors[block]:
            if _dominates(header, block, above):
                body = loops.setdefault(header, {header})
                _grow(body, block, before)
    return loops


def _grow(body: set[int], block: int, before: Mapping[int, Sequence[int]]) -> None:
    """Add what leads to `block` to a loop's body."""
    waiting = [block]
    while waiting:
        one = waiting.pop()
        if one not in body:
            body.add(one)
            waiting += before[one]


def _reverse_postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    done: list[int] = []
    seen, path = {0}, [(0, iter(successors[0]))] if successors else []
    # Iterative, as hostile code may nest deeper than Python recurses.
    while path:
        following = next((one for one in path[-1][1] if one not in seen), None)
        if following is None:
            done.append(path.pop()[0])
        else:
            seen.add(following)
            path.append((following, iter(successors[following])))
    return done[::-1]


def _immediate_dominators(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return the immediate dominator of each block (Cooper, Harvey & Kennedy 2001, figure 3)."""
    rank = {block: number for number, block in enumerate(order)}
    above = {order[0]: order[0]} if order else {}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [one for one in before[block] if one in above]
            found = known[0]
            for other in known[1:]:
                found = _meeting(found, other, above, rank)
            changed = changed or above.get(block) != found
            above[block] = found
    return above


def _meeting(one: int, other: int, above: Mapping[int, int], rank: Mapping[int, int]) -> int:
    while one != other:
        if rank[one] > rank[other]:
            one = above[one]
        else:
            other = above[other]
    return one


def _dominates(header: int, block: int, above: Mapping[int, int]) -> bool:
    while block != header and above[block] != block:
        block = above[block]
    return block == header


def _is_branch(instruction: Instruction) -> bool:
    return "branch" in instruction.opcode or instruction.opcode.startswith(("BRA", "JMP"))


def _ends_block(instruction: Instruction) -> bool:
    return _is_branch(instruction) or instruction.opcode.startswith(("s_endpgm", "s_setpc", "EXIT", "RET"))


def _never_falls_through(instruction: Instruction) -> bool:
    if instruction.opcode.startswith(("s_branch", "s_endpgm", "s_setpc")):
        return True
    # In SASS a predicate before the name makes any of these conditional.
    return instruction.opcode.startswith(("BRA", "JMP", "EXIT", "RET")) and "@" not in instruction.text


def _amdgcn(body: str) -> Iterator[tuple[str, Instruction | None]]:
    """Yield labels and instructions of LLVM's assembly."""
    for line in body.splitlines():
        if label := _LABEL.match(line):
            yield label[1], None
            continue
        code, _, comment = line.partition(";")
        text = code.strip()
        # Directives begin with a dot, and only indented lines are instructions.
        if not text or text.startswith(".") or not line[:1].isspace():
            continue
        opcode, _, rest = text.partition(" ")
        yield "", Instruction(opcode, _operands(rest), comment.strip(), text)


def _sass(body: str) -> Iterator[tuple[str, Instruction | None]]:
    """Yield addresses as labels, each with its instruction, of cuobjdump's listing."""
    for line in body.splitlines():
        if found := _SASS.match(line):
            address, opcode, rest = found.groups()
            # Branches name their target as a hexadecimal number.
            yield hex(int(address, 16)), Instruction(opcode, _operands(rest), "", line.strip())


def _operands(text: str) -> tuple[str, ...]:
    parts = (part.strip() for part in text.split(","))
    return tuple(part.strip("`()") for part in parts if part)
