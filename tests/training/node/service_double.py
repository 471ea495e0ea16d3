"""The service's side of the node protocol, over real HTTP, with switches for what goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from training.protocol.messages import BUNDLE_PATH, CHECKPOINTS_PATH, HEARTBEAT_PATH, CheckpointRegistration, Heartbeat

TOKEN = "node-token-0123456789"  # noqa: S105 - of a service that lives for one test


class HttpDouble:
    """A server on loopback that answers by `answer(method, path, headers, body)`."""

    def __init__(self) -> None:
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                status, headers, body = double.answer(
                    self.command, self.path, dict(self.headers), self.rfile.read(length)
                )
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the base class's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ServiceDouble(HttpDouble):
    """Records what the node says, and answers as the switches say."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.heartbeats: list[Heartbeat] = []
        self.registrations: list[CheckpointRegistration] = []
        self.registered: dict[tuple[int, int], str] = {}
        self.commands: list[str] = []
        self.delete: tuple[str, ...] = ()
        self.bundle = b""
        self.grant_seconds = 60.0
        self.status = 200
        """Anything but 200 is answered to every request: 503 is a service that is away."""
        self.is_fenced = False
        self.refuses_registrations = False
        super().__init__()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:  # noqa: ARG002
        with self.lock:
            if headers.get("Authorization") != f"Bearer {TOKEN}":
                return 401, {}, b"{}"
            if self.is_fenced:
                return _problem(409, "fenced")
            if self.status != 200:
                return self.status, {}, b"{}"
            verbs: dict[str, Callable[[bytes], tuple[int, dict[str, str], bytes]]] = {
                HEARTBEAT_PATH: self._heartbeat,
                CHECKPOINTS_PATH: self._register,
                BUNDLE_PATH: lambda _: (200, {"Content-Type": "application/gzip"}, self.bundle),
            }
            return verbs[path](body)

    def _heartbeat(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        heartbeat = Heartbeat.model_validate_json(body)
        self.heartbeats.append(heartbeat)
        commands, self.commands = self.commands, []
        return _json(
            {"answers_seq": heartbeat.seq, "commands": commands, "grant_seconds": self.grant_seconds},
        )

    def _register(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        registration = CheckpointRegistration.model_validate_json(body)
        if self.refuses_registrations:
            return 503, {}, b"{}"
        self.registrations.append(registration)
        key = (registration.step, registration.fence)
        known = self.registered.setdefault(key, registration.manifest_sha256)
        if known != registration.manifest_sha256:
            return _problem(409, "checkpoint_conflict")
        return _json({"step": key[0], "fence": key[1], "is_new": True, "delete": list(self.delete)})

    # What the tests ask.

    def command(self, name: str) -> None:
        with self.lock:
            self.commands.append(name)

    @property
    def last(self) -> Heartbeat | None:
        return self.heartbeats[-1] if self.heartbeats else None

    @property
    def step(self) -> int:
        last = self.last
        return (last.step or 0) if last is not None else 0

    @property
    def texts(self) -> list[str]:
        return [line.text for heartbeat in tuple(self.heartbeats) for line in heartbeat.logs]


class ImdsDouble(HttpDouble):
    """IMDSv2: a token first, then the spot paths; 404 while there is no notice."""

    def __init__(self) -> None:
        self.instance_action: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        super().__init__()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:  # noqa: ARG002
        lowered = {name.lower(): value for name, value in headers.items()}
        if method == "PUT" and path == "/latest/api/token":
            return 200, {}, b"imds-token"
        if lowered.get("x-aws-ec2-metadata-token") != "imds-token":
            return 401, {}, b""
        found = {
            "/latest/meta-data/spot/instance-action": self.instance_action,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }.get(path)
        return _json(found) if found is not None else (404, {}, b"")


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _problem(status: int, name: str) -> tuple[int, dict[str, str], bytes]:
    body = json.dumps({"type": f"urn:godwit:problem:{name}", "status": status, "title": name})
    return status, {"Content-Type": "application/problem+json"}, body.encode()
