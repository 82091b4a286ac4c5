"""One file of Java client properties, in the words of each client."""

from __future__ import annotations

import pickle
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

import pytest

from trimtab.errors import BadFile, ConfigError, UnsupportedStore
from trimtab.kafka.properties import ClientProperties

PASSWORD = 'op;en "sesame"=\\1'
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    r"""username="alice" password="op;en \"sesame\"=\\1";""",
}


def properties(**changes: str) -> ClientProperties:
    return ClientProperties(PLAIN | {k.replace("_", "."): v for k, v in changes.items()})


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("text", "line"), [("a=1\nb=\\u12", 2), ("\n\n=value", 3), ("a=1\\\n2\nb=\0", 3)]
)
def test_a_damaged_line_is_named_and_not_quoted(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)

    with pytest.raises(BadFile, match=f"client.properties, line {line}: ") as caught:
        ClientProperties.read(file)

    assert "value" not in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="nowhere: cannot be read: No such file"):
        ClientProperties.read(tmp_path / "nowhere")


def test_bytes_that_are_not_ascii_are_latin_1_as_in_java(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"client.id=caf\xe9")

    assert ClientProperties.read(file).get("client.id") == "café"


# ---------------------------------------------------------------- secrets


def test_no_repr_shows_a_value() -> None:
    secret = properties(ssl_key_password="hunter2", client_id="me")

    shown = f"{secret!r} {secret} {secret.for_confluent()} {secret.for_kafka_python()} "
    shown += repr(secret.for_spark())

    assert "sesame" not in shown
    assert "hunter2" not in shown
    assert "ssl.key.password" in repr(secret)


def test_errors_do_not_quote_a_jaas_line_that_cannot_be_read() -> None:
    broken = properties(sasl_jaas_config='PlainLoginModule required password="sesame')

    with pytest.raises(ConfigError) as caught:
        broken.for_confluent()

    assert "sesame" not in f"{caught.value.message} {caught.value.hint}"


def test_properties_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(properties())) == properties()


# ---------------------------------------------------------------- SASL


def test_a_plain_login_is_translated_for_every_client() -> None:
    login = properties()

    assert login.for_confluent() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    assert login.for_kafka_python() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    assert login.for_spark() == {f"kafka.{k}": v for k, v in PLAIN.items()}


def test_a_scram_login_keeps_its_mechanism() -> None:
    login = properties(
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config="x.ScramLoginModule required username='a' password=b;",
    )

    assert login.for_confluent()["sasl.mechanism"] == "SCRAM-SHA-512"
    assert login.for_kafka_python()["sasl_plain_password"] == "b"


def test_oauth_client_credentials_reach_librdkafka_and_are_refused_by_the_admin_client() -> None:
    login = properties(
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://id.example/token",
        sasl_jaas_config="x.OAuthBearerLoginModule required clientId=me clientSecret='s' "
        "scope='read' extension_logicalCluster=lkc;",
    )

    assert login.for_confluent() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "read",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc",
    }
    with pytest.raises(ConfigError, match="OAUTHBEARER"):
        login.for_kafka_python()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl_mechanism": "GSSAPI"}, "GSSAPI is not supported"),
        ({"sasl_jaas_config": "com.sun.Krb5LoginModule required a=b;"}, "Krb5LoginModule"),
        ({"sasl_jaas_config": "x.PlainLoginModule required username=a;"}, "has no password"),
        ({"sasl_jaas_config": "x.ScramLoginModule required tokenauth=true;"}, "tokenauth"),
        ({"security_protocol": "SASL"}, "unknown security.protocol SASL"),
    ],
)
def test_what_cannot_be_translated_is_said(changes: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        properties(**changes).for_confluent()


def test_a_sasl_listener_without_a_mechanism_means_kerberos_as_in_java() -> None:
    with pytest.raises(ConfigError, match=r"GSSAPI \(Java's default\)"):
        ClientProperties({"security.protocol": "SASL_SSL"}).for_kafka_python()


# ---------------------------------------------------------------- TLS

PEM = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/tls/ca.pem",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/tls/me.pem",
    "ssl.key.password": "hunter2",
    "ssl.endpoint.identification.algorithm": "",
}


def test_pem_files_become_librdkafka_files() -> None:
    assert ClientProperties(PEM).for_confluent() == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.location": "/tls/ca.pem",
        "ssl.certificate.location": "/tls/me.pem",
        "ssl.key.location": "/tls/me.pem",
        "ssl.key.password": "hunter2",
    }


def test_pem_in_line_stays_in_line() -> None:
    inline = ClientProperties(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "CA",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": "CHAIN",
            "ssl.keystore.key": "KEY",
        }
    )

    assert inline.for_confluent() == {
        "security.protocol": "SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": "CA",
        "ssl.certificate.pem": "CHAIN",
        "ssl.key.pem": "KEY",
    }


def test_a_pkcs12_key_store_is_for_librdkafka_only() -> None:
    store = ClientProperties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": "/tls/me.p12",
            "ssl.keystore.password": "x",
        }
    )

    assert store.for_confluent()["ssl.keystore.location"] == "/tls/me.p12"
    with pytest.raises(UnsupportedStore) as caught:
        store.for_kafka_python()
    assert "openssl pkcs12 -in /tls/me.p12" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "stores",
    [
        {"ssl.truststore.location": "/tls/trust.jks"},
        {"ssl.truststore.location": "/tls/trust"},
        {"ssl.keystore.type": "jks", "ssl.keystore.location": "/tls/key.p12"},
    ],
)
def test_a_jks_store_is_refused_with_the_way_out(stores: dict[str, str]) -> None:
    with pytest.raises(UnsupportedStore, match="JKS") as caught:
        ClientProperties(stores)

    hint = caught.value.hint or ""
    assert "keytool -importkeystore" in hint
    assert "openssl pkcs12" in hint
    assert "type=PEM" in hint


def test_the_admin_client_checks_certificates_and_host_names_unless_told_otherwise() -> None:
    tls = {"security.protocol": "SSL"}
    strict = ClientProperties(tls).for_kafka_python()["ssl_context"]
    lenient = ClientProperties(
        tls | {"ssl.endpoint.identification.algorithm": ""}
    ).for_kafka_python()["ssl_context"]

    assert strict.check_hostname
    assert strict.verify_mode == ssl.CERT_REQUIRED
    assert not lenient.check_hostname
    assert lenient.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_store_that_cannot_be_read_is_a_configuration_error(tmp_path: Path, store: str) -> None:
    damaged = tmp_path / "x.pem"
    damaged.write_text("no certificate")
    tls = ClientProperties(
        {
            "security.protocol": "SSL",
            f"ssl.{store}.type": "PEM",
            f"ssl.{store}.location": str(damaged),
        }
    )

    with pytest.raises(ConfigError, match="TLS stores cannot be used"):
        tls.for_kafka_python()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_key_given_in_line_is_loaded_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=me"
    subprocess.run(
        [*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    inline = ClientProperties(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": certificate.read_text(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate.read_text(),
            "ssl.keystore.key": key.read_text(),
        }
    )

    context = inline.for_kafka_python()["ssl_context"]

    assert context.cert_store_stats()["x509"] == 1
    assert list(temporary.iterdir()) == []


# ---------------------------------------------------------------- the rest


def test_what_only_java_knows_reaches_spark_alone_and_is_named() -> None:
    java = ClientProperties(
        {
            "client.id": "me",
            "request.timeout.ms": "5000",
            "metric.reporters": "com.example.Reporter",
            "interceptor.classes": "com.example.Interceptor",
            "bootstrap.servers": "b:9092",
        }
    )

    assert java.for_confluent() == {
        "security.protocol": "PLAINTEXT",
        "client.id": "me",
        "socket.timeout.ms": "5000",
    }
    assert java.for_kafka_python() == {
        "security_protocol": "PLAINTEXT",
        "client_id": "me",
        "request_timeout_ms": 5000,
    }
    assert java.for_spark().keys() == {
        "kafka.client.id",
        "kafka.request.timeout.ms",
        "kafka.metric.reporters",
    }
    assert [w.split()[2] for w in java.warnings()] == ["interceptor.classes", "metric.reporters"]


def test_without_a_file_every_client_speaks_plain_text() -> None:
    none = ClientProperties.none()

    assert none.for_confluent() == {"security.protocol": "PLAINTEXT"}
    assert none.for_spark() == {}
    assert none.warnings() == ()


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"request\.timeout\.ms must be a whole number"):
        ClientProperties({"request.timeout.ms": "soon"}).for_kafka_python()
