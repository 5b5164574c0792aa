"""Say how much to measure: sessions, units, calls of a block, and when it is enough."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runners.harness.memory.contents import Content

# For the processor's sake a loop that the host paces is longer than a block, but not longer than this.
MOST_LOOP_CALLS = 64
# Calls whose contents take up to half of this can be timed in pairs. With the room to move them about, the arena stays
# below `runners.harness.timing.sessions.AT_ONCE_BYTES`, above which processes take turns.
PAIR_BYTES = 768 << 20


@dataclass(frozen=True)
class Plan:
    """Describe how much to measure.

    `sessions` is the number of fresh processes. Each case gets at most `units` per session; between `least_units` and
    `units` it ends once the standard error of its log-ratio is below `precision` (for call time below
    `call_precision`), or `case_s` seconds have passed. `block_us` is the wanted length of a block, `most_calls` the
    most calls in it. `content_bytes` limits fresh contents per session and case on a CPU, `arena_bytes` the contents
    of one request on a GPU (0 on a CPU). `checks` timed calls are judged. `more_sessions` are added where a small
    difference is claimed.
    """

    sessions: int
    units: int
    block_us: float
    most_calls: int
    content_bytes: int
    checks: int = 2
    least_units: int = 4
    precision: float = 0.0025
    call_precision: float = 0.01
    case_s: float = 1.0
    arena_bytes: int = 0
    more_sessions: int = 0

    def on_gpu(self) -> Plan:
        """Return the plan for a GPU, where calls are short and contents are made on the device."""
        return replace(self, most_calls=max(16, self.most_calls), arena_bytes=512 << 20)

    def continued(self) -> Plan:
        """Return the plan for the sessions that are added."""
        return replace(self, sessions=self.more_sessions, more_sessions=0)

    def calls(self, content: Content) -> int:
        """Return the most calls of a smaller block, by the memory that their contents take."""
        call_bytes = max(1, sum(content.buffer_sizes))
        if self.arena_bytes:
            affordable = self.arena_calls(content) // 2
        else:
            affordable = self.content_bytes // (3 * self.units * call_bytes)
        return max(1, min(self.most_calls, affordable))

    def arena_calls(self, content: Content) -> int:
        """Return how many calls' contents fit into a GPU's arena."""
        return self.arena_bytes // max(1, sum(content.buffer_sizes))

    def most_in_a_request(self, content: Content) -> int:
        """Return the most calls that any request on a GPU has: a larger block or a long loop."""
        return max(1, min(max(2 * self.most_calls, MOST_LOOP_CALLS), self.arena_calls(content)))

    def most_in_a_loop(self, content: Content) -> int:
        """Return the most calls that a loop on a GPU has where call time decides."""
        has_pairs = 2 * sum(content.buffer_sizes) <= PAIR_BYTES
        return max(self.most_in_a_request(content), 2 if has_pairs else 1)

    def doubled(self, calls: int, content: Content) -> int:
        """Return the calls of a larger block: twice as many, unless a single call fills a GPU's arena."""
        if self.arena_bytes and 2 * calls > self.arena_calls(content):
            return calls
        return 2 * calls


QUICK = Plan(sessions=1, units=4, block_us=1_500, most_calls=8, content_bytes=64 << 20, checks=1, least_units=2)
FULL = Plan(sessions=3, units=8, block_us=6_000, most_calls=16, content_bytes=768 << 20, more_sessions=2)
CONFIRM = Plan(
    sessions=5, units=10, block_us=10_000, most_calls=16, content_bytes=1 << 30, least_units=6, precision=0.0015,
    case_s=2.0,
)  # fmt: skip
