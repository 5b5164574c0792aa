"""Run a language-model server of our own: real HTTP, OpenAI's API, and every way in which such servers misbehave.

A test queues `Reply` objects; each request takes the next one, the last one is repeated. The server keeps what it was
asked, and how many requests were open at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

KEY = "sk-canary-0123456789abcdef"
S = TypeVar("S", bound="LlmServer")


@dataclass(frozen=True)
class Reply:
    """Say how one request is answered. `cut_after` closes the connection after that many characters; `silent_end` ends
    the stream properly but without a finish reason; `piece` is the size of a streamed piece, `pause_s` the time between
    two, `wait_s` the time before the first byte; `body` replaces the whole answer. `tools` are calls of tools, name and
    arguments; with `whole_tools` each comes in one piece without an index, as some servers send them."""

    text: str = "An answer."
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    finish: str = "stop"
    refusal: str = ""
    usage: Mapping[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 20})
    piece: int = 7
    pause_s: float = 0.0
    wait_s: float = 0.0
    cut_after: int | None = None
    silent_end: bool = False
    refuses: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    whole_tools: bool = False


def error(status: int, message: str, **fields: Any) -> Reply:
    """Return a reply in the shape of OpenAI's errors; header fields in `headers`."""
    headers = fields.pop("headers", {})
    return Reply(status=status, headers=headers, body=json.dumps({"error": {"message": message, **fields}}))


@dataclass
class Asked:
    """Hold one request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float


class LlmServer:
    """Hold the server's state, seen by the test."""

    def __init__(self) -> None:
        self.replies: list[Reply] = [Reply()]
        self.asked: list[Asked] = []
        self.open_now = 0
        self.open_most = 0
        self.lock = threading.Lock()
        self.key = KEY
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._http.daemon_threads = True

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def script(self, *replies: Reply) -> None:
        """Set what to answer from now on; the last reply is given again and again."""
        self.replies = list(replies)

    def next_reply(self, asked: Asked) -> Reply:
        """Take the next reply for a request."""
        with self.lock:
            self.asked.append(asked)
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request as open."""
        with self.lock:
            self.open_now += 1
            self.open_most = max(self.open_most, self.open_now)
        try:
            yield
        finally:
            with self.lock:
                self.open_now -= 1


def llm_server() -> AbstractContextManager[LlmServer]:
    """Run a server on a free port of this machine."""
    return serving(LlmServer())


@contextmanager
def serving(server: S) -> Iterator[S]:
    """Run that server until the end of the block."""
    thread = threading.Thread(target=server._http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server._http.shutdown()
        server._http.server_close()
        thread.join()


def _handler_of(server: LlmServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: Any) -> None:
            """Print nothing: tests read what they need from `LlmServer.asked`."""

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length))
            asked = Asked(self.path, {k.lower(): v for k, v in self.headers.items()}, body, time.monotonic())
            with server.counted():
                try:
                    Conversation(self, asked, server.next_reply(asked), server).hold()
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

    return Handler


class Conversation:
    """Answer one request as its reply says."""

    def __init__(self, http: BaseHTTPRequestHandler, asked: Asked, reply: Reply, server: LlmServer) -> None:
        self.http, self.asked, self.reply, self.server = http, asked, reply, server

    def hold(self) -> None:
        """Answer."""
        time.sleep(self.reply.wait_s)
        refused = next((name for name in self.reply.refuses if name in self.asked.body), None)
        if self.asked.headers.get("authorization") != f"Bearer {self.server.key}":
            self.whole(
                401, json.dumps({"error": {"message": f"wrong key {self.asked.headers.get('authorization')}"}})
            )
        elif refused:
            message = f"Unsupported parameter: '{refused}' is not supported with this model."
            self.whole(400, json.dumps({"error": {"message": message, "param": refused}}))
        elif self.reply.body is not None:
            self.whole(self.reply.status, self.reply.body)
        elif self.asked.path.endswith("/chat/completions"):
            self.stream(self.chat_events()) if self.asked.body.get("stream") else self.whole(200, self.chat_whole())
        elif self.asked.path.endswith("/responses"):
            self.stream(self.response_events())
        else:
            self.whole(404, json.dumps({"error": {"message": f"no route {self.asked.path}"}}))

    def whole(self, status: int, body: str) -> None:
        """Send one response with a length."""
        data = body.encode()
        self.http.send_response(status)
        self.http.send_header("Content-Type", "application/json")
        self.http.send_header("Content-Length", str(len(data)))
        for name, value in self.reply.headers.items():
            self.http.send_header(name, value)
        self.http.end_headers()
        self.http.wfile.write(data)

    def stream(self, events: Iterator[str]) -> None:
        """Send server-sent events in chunked encoding, cut where the reply says."""
        self.http.send_response(200)
        self.http.send_header("Content-Type", "text/event-stream")
        self.http.send_header("Transfer-Encoding", "chunked")
        self.http.end_headers()
        for event in events:
            if event == "CUT":
                self.http.close_connection = True
                return
            data = event.encode()
            self.http.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.http.wfile.flush()
        self.http.wfile.write(b"0\r\n\r\n")

    def pieces(self) -> Iterator[str]:
        """Yield the answer in pieces, at the reply's pace; CUT where it breaks off."""
        sent = 0
        for start in range(0, len(self.reply.text), self.reply.piece):
            if self.reply.cut_after is not None and sent >= self.reply.cut_after:
                yield "CUT"
                return
            piece = self.reply.text[start : start + self.reply.piece]
            sent += len(piece)
            yield piece
            time.sleep(self.reply.pause_s)

    def chat_events(self) -> Iterator[str]:
        """Yield the events of streamed Chat Completions."""
        for piece in self.pieces():
            if piece == "CUT":
                yield piece
                return
            yield self.event(self.chunk({"content": piece}))
        for delta in self.tool_deltas():
            yield self.event(self.chunk({"tool_calls": [delta]}))
        if self.reply.refusal:
            yield self.event(self.chunk({"refusal": self.reply.refusal}))
        if not self.reply.silent_end:
            yield self.event(self.chunk({}, self.reply.finish))
            if self.reply.usage and self.asked.body.get("stream_options"):
                yield self.event({**self.chunk({}), "choices": [], "usage": dict(self.reply.usage)})
        yield "data: [DONE]\n\n"

    def tool_deltas(self) -> Iterator[dict[str, Any]]:
        """Yield calls of tools, in pieces."""
        for index, (name, arguments) in enumerate(self.reply.tools):
            began = {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
            if self.reply.whole_tools:
                yield began | {
                    "function": {"name": name, "arguments": arguments},
                    "extra_content": {"google": {"signature": "x"}},
                }
                continue
            yield began | {"index": index}
            for start in range(0, len(arguments), self.reply.piece):
                yield {"index": index, "function": {"arguments": arguments[start : start + self.reply.piece]}}

    def response_tools(self) -> Iterator[dict[str, Any]]:
        """Yield calls of tools as output items of Responses, after the reasoning that led to them."""
        for index, (name, arguments) in enumerate(self.reply.tools):
            yield {"type": "reasoning", "id": f"rs_{index}", "summary": [], "encrypted_content": "thought"}
            yield {"type": "function_call", "call_id": f"call_{index}", "name": name, "arguments": arguments}

    def response_events(self) -> Iterator[str]:
        """Yield the events of streamed Responses."""
        for piece in self.pieces():
            if piece == "CUT":
                yield piece
                return
            yield self.event(
                {"type": "response.output_text.delta", "delta": piece, "item_id": "m", "output_index": 0}
            )
        for index, item in enumerate(self.response_tools()):
            yield self.event({"type": "response.output_item.done", "output_index": index, "item": item})
        usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
        cut = self.reply.finish == "length"
        response = {
            "id": "resp_1",
            "object": "response",
            "model": self.asked.body["model"],
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [],
            "usage": usage,
        }
        yield self.event({"type": "response.incomplete" if cut else "response.completed", "response": response})

    def chat_whole(self) -> str:
        """Return Chat Completions in one piece."""
        message = {"role": "assistant", "content": self.reply.text, "refusal": self.reply.refusal or None}
        choice = {"index": 0, "message": message, "finish_reason": self.reply.finish}
        usage = dict(self.reply.usage or {})
        return json.dumps(
            {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
        )

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        """Return a piece of a streamed chat completion."""
        choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
        return {
            "id": "c1",
            "object": "chat.completion.chunk",
            "model": self.asked.body["model"],
            "choices": [choice],
        }

    @staticmethod
    def event(data: Mapping[str, Any]) -> str:
        """Return a server-sent event."""
        return f"data: {json.dumps(data)}\n\n"


if __name__ == "__main__":
    with llm_server() as running:
        print(running.url, flush=True)
        threading.Event().wait()
