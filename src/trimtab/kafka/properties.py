"""Kafka client properties, read from a Java properties file and translated for each client.

One `--command-config` serves every client: the admin client (kafka-python), the data path
(librdkafka) and Spark (Java). Java property names, JAAS lines and PEM stores are translated into
each client's settings. A property that a client does not support is left out and listed in
`warnings()`.

Secrets are never shown: the `repr` of the properties lists keys only, and a secret inside a
translation is a `Secret`, whose `repr` hides it.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trimtab.errors import BadFile, ConfigError, UnsupportedStore
from trimtab.kafka.jaas import JaasLogin, parse_jaas
from trimtab.kafka.properties_file import parse_properties

_SECRET_KEY = re.compile(
    r"password|secret|jaas|token(?!\.endpoint)|credential|\.key$", re.IGNORECASE
)

# Java's name → librdkafka's and kafka-python's name, where the value is the same.
_SAME_MEANING: Mapping[str, tuple[str, str | None]] = {
    "client.id": ("client.id", "client_id"),
    "client.dns.lookup": ("client.dns.lookup", "client_dns_lookup"),
    "connections.max.idle.ms": ("connections.max.idle.ms", "connections_max_idle_ms"),
    "metadata.max.age.ms": ("metadata.max.age.ms", "metadata_max_age_ms"),
    "reconnect.backoff.ms": ("reconnect.backoff.ms", "reconnect_backoff_ms"),
    "reconnect.backoff.max.ms": ("reconnect.backoff.max.ms", "reconnect_backoff_max_ms"),
    "request.timeout.ms": ("socket.timeout.ms", "request_timeout_ms"),
    "retry.backoff.ms": ("retry.backoff.ms", "retry_backoff_ms"),
    "socket.connection.setup.timeout.ms": ("socket.connection.setup.timeout.ms", None),
}
# Keys that are translated by the rules below, or that each caller sets for itself.
_TRANSLATED = frozenset(
    {
        "bootstrap.servers",
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
# Spark's Kafka connector sets these itself, and fails if they are given.
_SPARK_REFUSES = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    }
)


class Secret(str):
    """Text whose `repr` does not show it, also inside a dict."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class StoreType(StrEnum):
    """Supported formats of TLS stores."""

    PEM = "PEM"
    PKCS12 = "PKCS12"


@dataclass(frozen=True, slots=True, repr=False)
class ClientProperties:
    """Kafka client properties under their Java names."""

    _values: Mapping[str, str] = field(default_factory=dict)
    source: str = "client properties"

    def __post_init__(self) -> None:
        hidden = {k: Secret(v) if _SECRET_KEY.search(k) else v for k, v in self._values.items()}
        object.__setattr__(self, "_values", MappingProxyType(hidden))
        if self._protocol not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            raise ConfigError(
                f"{self.source}: unknown security.protocol {self._protocol}.",
                hint="Set it to PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
            )
        for store in ("truststore", "keystore"):
            self._store_type(store)

    def __repr__(self) -> str:
        return f"ClientProperties({self.source}: {', '.join(sorted(self._values))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ClientProperties, ({k: str(v) for k, v in self._values.items()}, self.source)

    @classmethod
    def none(cls) -> ClientProperties:
        """No properties: no encryption and no authentication."""
        return cls()

    @classmethod
    def read(cls, path: Path) -> ClientProperties:
        """Reads a Java properties file; errors name the file and the line."""
        try:
            # Java reads properties as ISO 8859-1, and so do Kafka's own tools.
            text = path.read_text(encoding="latin-1")
        except OSError as error:
            raise BadFile(
                f"{path}: cannot be read: {error.strerror or error}.",
                hint="--command-config takes a file of Kafka client properties.",
            ) from error
        return cls(parse_properties(text, source=str(path)), str(path))

    def get(self, key: str) -> str | None:
        """The value of a key, or None."""
        return self._values.get(key)

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self._protocol in {"SSL", "SASL_SSL"}

    @property
    def authenticated(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self._protocol.startswith("SASL_")

    def for_confluent(self) -> dict[str, str]:
        """The properties as librdkafka's settings."""
        config = {
            theirs: self._values[key]
            for key, (theirs, _) in _SAME_MEANING.items()
            if key in self._values
        }
        config["security.protocol"] = self._protocol
        if self.authenticated:
            config |= self._sasl_for_confluent()
        if self.encrypted:
            config |= self._tls_for_confluent()
        return config

    def for_kafka_python(self) -> dict[str, Any]:
        """The properties as kafka-python's settings; reads the TLS stores."""
        config: dict[str, Any] = {
            theirs: self._number(key) if theirs.endswith("_ms") else self._values[key]
            for key, (_, theirs) in _SAME_MEANING.items()
            if theirs is not None and key in self._values
        }
        config["security_protocol"] = self._protocol
        if self.authenticated:
            config |= self._sasl_for_kafka_python()
        if self.encrypted:
            config["ssl_context"] = self._ssl_context()
        return config

    def for_spark(self) -> dict[str, str]:
        """The properties as options of Spark's Kafka connector, which uses Java's names."""
        return {f"kafka.{k}": v for k, v in self._values.items() if k not in _SPARK_REFUSES}

    def warnings(self) -> tuple[str, ...]:
        """A warning for each property that some clients do not get."""
        unknown = sorted(self._values.keys() - _SAME_MEANING.keys() - _TRANSLATED)
        return tuple(
            f"{self.source}: {key} is supported by Java clients only; "
            + ("ignored." if key in _SPARK_REFUSES else "used for Spark only.")
            for key in unknown
        )

    # ------------------------------------------------------------ SASL

    @property
    def _protocol(self) -> str:
        return self._values.get("security.protocol", "PLAINTEXT").strip().upper()

    def _sasl_for_confluent(self) -> dict[str, str]:
        mechanism, login = self._mechanism(), self._login()
        if mechanism == "OAUTHBEARER":
            return self._oidc(login)
        return {
            "sasl.mechanism": mechanism,
            "sasl.username": self._option(login, "username"),
            "sasl.password": Secret(self._option(login, "password")),
        }

    def _sasl_for_kafka_python(self) -> dict[str, Any]:
        mechanism, login = self._mechanism(), self._login()
        if mechanism == "OAUTHBEARER":
            raise ConfigError(
                f"{self.source}: the admin client cannot fetch OAUTHBEARER tokens.",
                hint="Use a SCRAM or PLAIN user, or a TLS client certificate, for Trimtab.",
            )
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": self._option(login, "username"),
            "sasl_plain_password": Secret(self._option(login, "password")),
        }

    def _oidc(self, login: JaasLogin) -> dict[str, str]:
        url = self._values.get("sasl.oauthbearer.token.endpoint.url")
        if url is None:
            raise ConfigError(
                f"{self.source}: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url.",
                hint="Only the client-credentials grant (KIP-768) is supported.",
            )
        config = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": self._option(login, "clientId"),
            "sasl.oauthbearer.client.secret": Secret(self._option(login, "clientSecret")),
        }
        if "scope" in login.options:
            config["sasl.oauthbearer.scope"] = login.options["scope"]
        extensions = ",".join(
            f"{name.removeprefix('extension_')}={value}"
            for name, value in login.options.items()
            if name.startswith("extension_")
        )
        return config | ({"sasl.oauthbearer.extensions": extensions} if extensions else {})

    def _mechanism(self) -> str:
        mechanism = self._values.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}:
            return mechanism
        default = "" if "sasl.mechanism" in self._values else " (Java's default)"
        raise ConfigError(
            f"{self.source}: sasl.mechanism {mechanism}{default} is not supported.",
            hint="Set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
        )

    def _login(self) -> JaasLogin:
        line = self._values.get("sasl.jaas.config")
        if line is None:
            raise ConfigError(
                f"{self.source}: {self._protocol} needs sasl.jaas.config.",
                hint="For instance: sasl.jaas.config=org.apache.kafka.common.security.plain."
                'PlainLoginModule required username="…" password="…";',
            )
        login = parse_jaas(line, source=self.source)
        module = login.module.rpartition(".")[2]
        if module not in {"PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule"}:
            raise ConfigError(
                f"{self.source}: the login module {login.module} is not supported.",
                hint="Use PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule.",
            )
        if login.options.get("tokenauth", "false").lower() == "true":
            raise ConfigError(
                f"{self.source}: delegation tokens (tokenauth) are not supported.",
                hint="Use a user name and a password.",
            )
        return login

    def _option(self, login: JaasLogin, name: str) -> str:
        try:
            return login.options[name]
        except KeyError:
            raise ConfigError(
                f"{self.source}: sasl.jaas.config has no {name}.",
                hint=f'Write it as {name}="…" after "required".',
            ) from None

    # ------------------------------------------------------------ TLS

    def _tls_for_confluent(self) -> dict[str, str]:
        config = {"ssl.endpoint.identification.algorithm": "https" if self._checks_host else "none"}
        match self._store_type("truststore"):
            case StoreType.PEM:
                config |= self._named(
                    {
                        "ssl.truststore.location": "ssl.ca.location",
                        "ssl.truststore.certificates": "ssl.ca.pem",
                    }
                )
            case StoreType.PKCS12:
                raise self._not_pem("truststore")
            case None:
                pass
        match self._store_type("keystore"):
            case StoreType.PEM:
                location = self._values.get("ssl.keystore.location")
                if location is not None:  # one file holds the key and the chain
                    config["ssl.certificate.location"] = config["ssl.key.location"] = location
                config |= self._named(
                    {
                        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
                        "ssl.keystore.key": "ssl.key.pem",
                        "ssl.key.password": "ssl.key.password",
                    }
                )
            case StoreType.PKCS12:
                config |= self._named(
                    {
                        "ssl.keystore.location": "ssl.keystore.location",
                        "ssl.keystore.password": "ssl.keystore.password",
                    }
                )
            case None:
                pass
        return config

    def _ssl_context(self) -> ssl.SSLContext:
        for store in ("truststore", "keystore"):
            if self._store_type(store) is StoreType.PKCS12:
                raise self._not_pem(store)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self._checks_host
        authorities = self._values.get("ssl.truststore.location")
        inline = self._values.get("ssl.truststore.certificates")
        try:
            if authorities is None and inline is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cafile=authorities, cadata=inline)
            self._load_own_certificate(context)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ConfigError(
                f"{self.source}: the TLS stores cannot be used: {reason or 'not valid PEM'}.",
                hint="Check the files and the key password that the ssl.* properties name.",
            ) from error
        return context

    def _load_own_certificate(self, context: ssl.SSLContext) -> None:
        # Always pass a password: without one OpenSSL asks for it at the terminal.
        password = self._values.get("ssl.key.password", "")
        location = self._values.get("ssl.keystore.location")
        if location is not None:
            context.load_cert_chain(location, password=password)
            return
        chain = self._values.get("ssl.keystore.certificate.chain")
        key = self._values.get("ssl.keystore.key")
        if chain is not None and key is not None:
            # OpenSSL reads keys from files only; this one is private, and deleted after use.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as store:
                store.write(f"{key}\n{chain}\n")
                store.flush()
                context.load_cert_chain(store.name, password=password)

    @property
    def _checks_host(self) -> bool:
        return bool(self._values.get("ssl.endpoint.identification.algorithm", "https").strip())

    def _store_type(self, store: str) -> StoreType | None:
        """The format of a store; None if there is no such store."""
        location = self._values.get(f"ssl.{store}.location")
        inline = {"truststore": "certificates", "keystore": "key"}[store]
        if location is None and f"ssl.{store}.{inline}" not in self._values:
            return None
        # Java's default type is JKS, which since Java 9 also opens PKCS#12 files.
        looks_pkcs12 = Path(location or "").suffix.lower() in {".p12", ".pfx"}
        default = "PEM" if location is None else "PKCS12" if looks_pkcs12 else "JKS"
        named = self._values.get(f"ssl.{store}.type", default).upper()
        try:
            return StoreType(named)
        except ValueError:
            raise self._not_pem(store, named) from None

    def _not_pem(self, store: str, named: str = "PKCS12") -> UnsupportedStore:
        location = self._values.get(f"ssl.{store}.location", "STORE")
        to_p12 = (
            f"keytool -importkeystore -srckeystore {location} -destkeystore {store}.p12 "
            f"-deststoretype PKCS12; "
        )
        p12 = location if named == "PKCS12" else f"{store}.p12"
        what = "-nokeys " if store == "truststore" else ""
        return UnsupportedStore(
            f"{self.source}: ssl.{store} is a {named} store, which not every client can read.",
            hint=(to_p12 if named != "PKCS12" else "")
            + f"openssl pkcs12 -in {p12} {what}-out {store}.pem; "
            + f"then ssl.{store}.type=PEM and ssl.{store}.location={store}.pem.",
        )

    # ------------------------------------------------------------ values

    def _named(self, names: Mapping[str, str]) -> dict[str, str]:
        return {
            theirs: self._values[ours] for ours, theirs in names.items() if ours in self._values
        }

    def _number(self, key: str) -> int:
        try:
            return int(self._values[key])
        except ValueError:
            raise ConfigError(f"{self.source}: {key} must be a whole number.") from None
