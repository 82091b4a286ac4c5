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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trimtab.errors import BadFile, ConfigError, UnsupportedStore

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
        return cls(parse(text, source=str(path)), str(path))

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


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """A login module of a JAAS line, with its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)


_JAAS_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""  # separators
    r"""|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"""|(?P<sign>[=;])|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


def parse_jaas(line: str, *, source: str) -> JaasLogin:
    """Parses `module flag name="value" …;` with exactly one module."""
    wrong = ConfigError(
        f"{source}: invalid sasl.jaas.config.",
        hint='Expected: MODULE required username="…" password="…"; with the semicolon.',
    )
    tokens = list(_jaas_tokens(line, wrong))
    if len(tokens) < 3 or tokens[-1] != ("sign", ";"):
        raise wrong
    (_, module), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in {"required", "requisite", "sufficient", "optional"} or len(rest) % 3:
        raise wrong
    options = {}
    for name, sign, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if name[0] != "text" or sign != ("sign", "=") or value[0] != "text":
            raise wrong
        options[name[1]] = value[1]
    return JaasLogin(module, options)


def _jaas_tokens(line: str, wrong: ConfigError) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        token = _JAAS_TOKEN.match(line, at)
        if token is None:
            raise wrong
        at = token.end()
        if token["sign"]:
            yield "sign", token["sign"]
        elif token["word"]:
            yield "text", token["word"]
        else:
            quoted = token["double"] if token["double"] is not None else token["single"]
            if quoted is not None:
                yield "text", _JAAS_ESCAPE.sub(_jaas_escape, quoted)


def _jaas_escape(found: re.Match[str]) -> str:
    if found[1].isdigit() and found[1] not in "89":
        return chr(int(found[1], 8))
    return _JAAS_ESCAPES.get(found[1], found[1])


def parse(text: str, *, source: str) -> dict[str, str]:
    r"""Parses a Java properties file; of a repeated key the last value counts.

    >>> parse("# who\nuser : al\\\n   ice\nempty\n", source="f")
    {'user': 'alice', 'empty': ''}
    """
    values = {}
    for number, line in _logical_lines(re.split(r"\r\n|\r|\n", text)):
        if "\0" in line:
            raise BadFile(
                f"{source}, line {number}: binary data.",
                hint="--command-config takes a text file of Kafka client properties.",
            )
        key, value = _split(line)
        if not key:
            raise BadFile(f"{source}, line {number}: no key before the separator.")
        try:
            values[_unescape(key)] = _unescape(value)
        except ValueError as error:
            raise BadFile(
                f"{source}, line {number}: {error}.",
                hint="Write a literal backslash twice in a properties file.",
            ) from error
    return values


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Joins continued lines, drops blank lines and comments; gives each its first line's number."""
    joined, first = "", 0
    for number, natural in enumerate(lines, start=1):
        line = natural.lstrip(" \t\f")
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        if _continues(line):
            joined += line[:-1]
            continue
        if joined + line:
            yield first, joined + line
        joined, first = "", 0
    if joined:
        yield first, joined


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    key = re.match(r"(?:\\.|[^\\=: \t\f])*", line)
    end = key.end() if key else 0
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return line[:end], rest


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        letter = found[1]
        if letter.startswith("u"):
            if len(letter) != 5:
                raise ValueError(r"\u is not followed by four hexadecimal digits")
            return chr(int(letter[1:], 16))
        return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(letter, letter)

    plain = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)
    # Java's characters are UTF-16: one character may need two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
