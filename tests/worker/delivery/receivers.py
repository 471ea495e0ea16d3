"""Real receivers of webhooks on loopback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext


@dataclass(frozen=True, kw_only=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`answer` sees each request and gives status, headers and body; it may block to be slow."""

    port: int = 0
    answer: Callable[[Received], tuple[int, dict[str, str], bytes]] = field(default=lambda _request: (204, {}, b""))
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is not news."""


@contextmanager
def run_receiver(
    answer: Callable[[Received], tuple[int, dict[str, str], bytes]] | None = None, ssl_context: SSLContext | None = None
) -> Iterator[Receiver]:
    receiver = Receiver() if answer is None else Receiver(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = Received(
                path=self.path, headers={name.lower(): value for name, value in self.headers.items()}, body=body
            )
            receiver.received.append(request)
            status, headers, content = receiver.answer(request)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = _Server(("127.0.0.1", 0), Handler)
    if ssl_context:
        server.socket = ssl_context.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
