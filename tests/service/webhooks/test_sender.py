"""The sender against real sockets on loopback; name servers are injected."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from service.webhooks.sender import EXCERPT_CHARACTERS, WebhookSender
from tests.worker.delivery.receivers import Received, run_receiver

NAME = "hooks.example.test"


class FakeDns:
    """Answers with one list after another, the last for ever, and counts."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers, self.num_asked = list(answers), 0

    def __call__(self, _host: str, _port: int) -> Sequence[str]:
        self.num_asked += 1
        return self._answers[min(self.num_asked, len(self._answers)) - 1]


def answering(status: int, headers: dict[str, str], body: bytes) -> Callable[[Received], tuple]:
    return lambda _request: (status, headers, body)


@contextmanager
def run_raw(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener on loopback that hands its first connection to `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    serve(connection)
                except OSError:
                    return

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for NAME, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=str(path))


def test_the_name_is_resolved_once_and_pinned() -> None:
    """Fault 37: a name server that changes its mind between the check and the connection reaches nothing else."""
    dns = FakeDns(["127.0.0.1"], ["169.254.169.254"])
    with run_receiver() as receiver:
        sender = WebhookSender(allow_private=True, resolver=dns)
        answer = sender.post(f"http://{NAME}:{receiver.port}/hook?a=b", {"webhook-id": "evt_1"}, b"{}")
        assert (answer.status, answer.error, dns.num_asked) == (204, None, 1)
        (request,) = receiver.received
        assert request.headers["host"] == f"{NAME}:{receiver.port}"
        assert (request.path, request.headers["webhook-id"], request.body) == ("/hook?a=b", "evt_1", b"{}")
        again = sender.post(f"http://{NAME}:{receiver.port}/hook", {}, b"{}")
        assert again.status is None
        assert again.error is not None
        assert again.error.startswith("refused: hooks.example.test is at 169.254.169.254")
        assert len(receiver.received) == 1


def test_loopback_is_refused_by_default() -> None:
    with run_receiver() as receiver:
        sender = WebhookSender(allow_private=False, resolver=FakeDns(["127.0.0.1"]))
        answer = sender.post(f"https://{NAME}:{receiver.port}/", {}, b"{}")
        assert answer.error is not None
        assert answer.error.startswith("refused:")
        assert "127.0.0.1" in answer.error
        assert receiver.received == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with run_receiver() as inner, run_receiver(answering(status, {"Location": inner.url}, b"")) as outer:
        answer = WebhookSender(allow_private=True).post(outer.url, {}, b"{}")
        assert answer.status == status
        assert "redirects are not followed" in (answer.error or "")
        assert inner.received == []


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_receiver() as proxy, run_receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert WebhookSender(allow_private=True).post(receiver.url, {}, b"{}").status == 204
        assert proxy.received == []


def test_tls_is_checked_against_the_registered_name(certificate: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server_context, client_context = certificate
    names: list[str | None] = []
    server_context.sni_callback = lambda _socket, name, _context: names.append(name)
    with run_receiver(ssl_context=server_context) as receiver:
        sender = WebhookSender(allow_private=True, resolver=FakeDns(["127.0.0.1"]), ssl_context=client_context)
        assert sender.post(f"https://{NAME}:{receiver.port}/", {}, b"{}").status == 204
        assert names == [NAME]
        other = sender.post(f"https://other.example.test:{receiver.port}/", {}, b"{}")
        assert other.status is None
        assert "certificate" in (other.error or "").lower()
        assert len(receiver.received) == 1


def test_an_untrusted_certificate_is_refused(certificate: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    with run_receiver(ssl_context=certificate[0]) as receiver:
        sender = WebhookSender(allow_private=True, resolver=FakeDns(["127.0.0.1"]))
        answer = sender.post(f"https://{NAME}:{receiver.port}/", {}, b"{}")
        assert answer.status is None
        assert "certificate" in (answer.error or "").lower()
        assert receiver.received == []


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with run_receiver() as receiver:
        sender = WebhookSender(allow_private=True, resolver=FakeDns(["127.0.0.9", "127.0.0.1"]))
        assert sender.post(f"http://{NAME}:{receiver.port}/", {}, b"{}").status == 204


def test_an_answer_without_end_is_read_to_a_bound() -> None:
    num_sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal num_sent
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"\x1b" * 65536 + b"\r\n"
        while num_sent < 10_000:
            connection.sendall(chunk)
            num_sent += 1

    with run_raw(flood) as port:
        answer = WebhookSender(allow_private=True).post(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert answer.status == 200
    assert answer.excerpt == "�" * EXCERPT_CHARACTERS
    assert num_sent < 10_000


@pytest.mark.parametrize(
    "part", [b"H", b"HTTP/1.1 200 OK\r\nX-A: b\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\na"]
)
def test_a_receiver_that_drips_bytes_gains_no_time(part: bytes) -> None:
    """Each byte would restart a time-out of a single read; the deadline is of the whole."""
    hung_up = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(part)
        try:
            while not hung_up.wait(0.02):
                connection.sendall(b"a")
        finally:
            hung_up.set()

    with run_raw(drip) as port:
        sender = WebhookSender(allow_private=True, timeout_seconds=0.4)
        answer = sender.post(f"http://127.0.0.1:{port}/", {}, b"{}")
        assert hung_up.wait(10)
    if part.endswith(b"\r\na"):
        assert (answer.status, answer.error, (answer.excerpt or "")[:1]) == (200, None, "a")
    else:
        assert (answer.status, answer.error) == (None, "no complete answer within 0.4 s")


def test_a_receiver_that_says_nothing_is_a_timeout() -> None:
    def listen(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    with run_raw(listen) as port:
        answer = WebhookSender(allow_private=True, timeout_seconds=0.2).post(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert (answer.status, answer.error) == (None, "no complete answer within 0.2 s")


@pytest.mark.parametrize("reply", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 200_000])
def test_what_is_not_http_is_an_error(reply: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(reply)

    with run_raw(serve) as port:
        answer = WebhookSender(allow_private=True).post(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert answer.status is None
    assert answer.error


def test_nobody_listening_and_no_such_name_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    assert WebhookSender(allow_private=True).post(f"http://127.0.0.1:{port}/", {}, b"{}").error

    def unknown(_host: str, _port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    answer = WebhookSender(allow_private=True, resolver=unknown).post(f"http://{NAME}/", {}, b"{}")
    assert "no such name" in (answer.error or "")


def test_ipv6_targets_are_pinned_too() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    assert ip_address("::1").is_loopback
    answer = WebhookSender(allow_private=True, timeout_seconds=1).post("http://[::1]:9/", {}, b"{}")
    assert answer.status is None
    assert answer.error
