"""The registry's client against answers as registries give them; the real one is in the contract tests."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import pickle
import ssl
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, SinkError, TransientSinkError
from tailrace.formats.base import SchemaText
from tailrace.sinks.kafka.schema_registry import RegistryAccess, SchemaRegistry
from tailrace_dev.servers.server import free_port

AVRO = SchemaText(
    "app.shop.orders-value", "AVRO", '{"type":"record","fields":[{"name":"price","type":"int"}]}'
)
PROTOBUF = SchemaText("app/ö-value", "PROTOBUF", "message X {}")
OLD = {"schema": '{"type":"record","fields":[]}'}
CONFLICT = {"error_code": 409, "message": "incompatible: READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0"}


@contextmanager
def registry(*answers, tls=None):
    """A registry that gives these answers one after the other, and what it was asked."""
    asked = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self):
            self.answer(None)

        def answer(self, body):
            asked.append((self.path, body, self.headers))
            status, value = left.pop(0) if left else (200, {"id": 100 + len(asked)})
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def handle(self):
            # a client that does not trust us hangs up
            with suppress(ssl.SSLError, ConnectionError):
                super().handle()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def client(url, **access):
    pauses = []
    made = SchemaRegistry(RegistryAccess(url, **access), sleep=pauses.append)
    return made, pauses


def test_schema_is_registered_once_and_its_id_remembered():
    with registry((200, {"id": 5}), (200, {"id": 6})) as (url, asked):
        schemas, _ = client(url + "/")
        expected = {AVRO.reference: 5, PROTOBUF.reference: 6}
        assert schemas.ids([AVRO, PROTOBUF]) == expected
        assert schemas.ids([PROTOBUF, AVRO]) == expected
    assert [(path, body) for path, body, _ in asked] == [
        ("/subjects/app.shop.orders-value/versions", {"schema": AVRO.text}),
        ("/subjects/app%2F%C3%B6-value/versions", {"schema": PROTOBUF.text, "schemaType": "PROTOBUF"}),
    ]


def test_changed_schema_of_a_subject_has_another_reference():
    assert SchemaText(AVRO.subject, "AVRO", "{}").reference != AVRO.reference


def test_incompatible_schema_names_subject_change_and_remedy():
    with registry((409, CONFLICT), (200, OLD)) as (url, _):
        schemas, pauses = client(url)
        with pytest.raises(SinkError) as error:
            schemas.ids([AVRO])
    assert "app.shop.orders-value" in error.value.message
    assert "what changed: `price` added (int)" in error.value.detail
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0" in error.value.detail
    assert f"{url}/config/app.shop.orders-value" in error.value.hint
    assert not error.value.retryable
    assert pauses == []
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_registry_that_cannot_now_is_asked_again():
    with registry((503, b"busy"), (500, {"error_code": 50001, "message": "store"})) as (url, asked):
        schemas, pauses = client(url)
        assert schemas.ids([AVRO]) == {AVRO.reference: 103}
    assert len(asked) == 3
    assert len(pauses) == 2


def test_registry_that_stays_away_is_a_transient_error():
    schemas, pauses = client(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TransientSinkError, match="does not answer"):
        schemas.ids([AVRO])
    assert len(pauses) == 3


def test_next_registry_is_asked_when_one_is_away():
    with registry() as (url, _):
        schemas, pauses = client(f"http://127.0.0.1:{free_port()}, {url}")
        assert schemas.ids([AVRO]) == {AVRO.reference: 101}
    assert pauses == []


def test_user_and_password_are_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    with registry((200, {"id": 1}), (401, {"message": "no"})) as (url, asked):
        schemas, _ = client(url, user="me", password=Secret("${env:REGISTRY_PASSWORD}"))
        schemas.ids([AVRO])
        sent = asked[0][2]["Authorization"]
        assert sent == "Basic " + base64.b64encode(b"me:hunter2").decode()
        with pytest.raises(SinkError, match="does not allow writing") as error:
            schemas.ids([PROTOBUF])
    assert "hunter2" not in str(error.value) + repr(schemas)


def test_token_is_sent_as_bearer():
    with registry() as (url, asked):
        client(url, token=Secret("abc"))[0].ids([AVRO])
    assert asked[0][2]["Authorization"] == "Bearer abc"


def test_schemas_are_only_looked_up_when_they_must_not_be_registered():
    unknown = (404, {"error_code": 40403, "message": "Schema not found"})
    with registry((200, {"id": 9}), unknown) as (url, asked):
        schemas, _ = client(url, register=False)
        assert schemas.ids([AVRO]) == {AVRO.reference: 9}
        assert asked[0][0] == "/subjects/app.shop.orders-value"
        with pytest.raises(SinkError, match="does not know the schema") as error:
            schemas.ids([PROTOBUF])
    assert "`schema-registry-register: true`" in error.value.hint


def test_wrong_path_is_told_apart():
    with registry((404, b"<html>nothing here</html>")) as (url, _), pytest.raises(SinkError) as error:
        client(url)[0].ids([AVRO])
    assert "apis/ccompat" in error.value.hint


def test_schema_that_the_registry_cannot_read_is_refused():
    bad = (422, {"error_code": 42201, "message": "Invalid schema"})
    with registry(bad) as (url, _), pytest.raises(SinkError, match="refuses the schema") as error:
        client(url)[0].ids([AVRO])
    assert "Invalid schema" in error.value.detail


def test_address_must_be_http():
    with pytest.raises(ConfigError, match="not the address of a schema registry"):
        client("localhost:8081")[0].ids([AVRO])


def test_missing_certificate_is_a_setting_that_is_wrong(tmp_path):
    schemas, _ = client("https://127.0.0.1:1", ca_file=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="certificates for the schema registry"):
        schemas.ids([AVRO])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Files of a certificate for 127.0.0.1, signed by itself, and of its key."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(address, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "registry.pem", directory / "registry.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return str(certificate), str(private)


def test_registry_is_trusted_by_the_certificate_of_its_authority(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with registry(tls=context) as (url, _):
        assert client(url, ca_file=certificate[0])[0].ids([AVRO]) == {AVRO.reference: 101}
        with pytest.raises(SinkError, match="is not trusted") as error:
            client(url)[0].ids([AVRO])
    assert "self-signed" in error.value.detail
    assert not error.value.retryable


def test_own_certificate_is_shown_to_a_registry_that_asks_for_it(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.load_verify_locations(certificate[0])
    context.verify_mode = ssl.CERT_REQUIRED
    authority, key = certificate
    with registry(tls=context) as (url, _):
        made, _ = client(url, ca_file=authority, certificate_file=authority, key_file=key)
        assert made.ids([AVRO]) == {AVRO.reference: 101}
