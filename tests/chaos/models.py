"""A server of language models with the usual troubles, inside the process that injects the other faults."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractContextManager

from tests.llm_server import Asked, LlmServer, Reply, error, serving

ANSWER = """Title: attempt {number}
A plain loop, written again.
```cpp
// attempt {number}
#include <cmath>
extern "C" void softmax_rows(const float* x, float* y) {{ y[0] = x[0]; }}
```"""


class TroubledModels(LlmServer):
    """Answers with a new kernel each time; one request in eight is refused, breaks off, or waits long."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.troubles: Counter[str] = Counter()
        self._random = random.Random(seed)

    def next_reply(self, asked: Asked) -> Reply:
        """Return a reply made up on the spot."""
        with self.lock:
            self.asked.append(asked)
            text = ANSWER.format(number=len(self.asked))
            pick = self._random.random()
        if pick < 0.04:
            return self._trouble("model: too many requests", error(429, "slow down", headers={"Retry-After": "1"}))
        if pick < 0.08:
            return self._trouble("model: answer breaks off", Reply(text=text, cut_after=40))
        if pick < 0.12:
            return self._trouble("model: stalls", Reply(text=text, wait_s=4.0))
        return Reply(text=text, wait_s=self._random.uniform(0.2, 1.0), piece=60)

    def _trouble(self, name: str, reply: Reply) -> Reply:
        with self.lock:
            self.troubles[name] += 1
        return reply


def troubled_models(seed: int) -> AbstractContextManager[TroubledModels]:
    """Run the server until the end of the block."""
    server = TroubledModels(seed)
    server._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # agents are killed in mid-sentence
    return serving(server)
