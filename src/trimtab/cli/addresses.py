"""Addresses on the command line: HOST:PORT, one or several."""

from __future__ import annotations

import re

import typer

from trimtab.errors import ConfigError

_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^\[\]:]*)(:(?P<port>[^:]*))?")
_MOST_PORT = 65535


def listen_address(text: str | None) -> str | None:
    """Checks a listen address: HOST:PORT, port 0 for any free port."""
    if text is None:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None or not found["host"] or not found["port"]:
        raise typer.BadParameter(f"{text!r} is not an address; write HOST:PORT: 127.0.0.1:8765")
    if not _is_port(found["port"], least=0):
        raise typer.BadParameter(f"{found['port']!r} is not a port: 0 to {_MOST_PORT}")
    return text


def check_servers(servers: str) -> None:
    """Rejects invalid broker addresses; the default port is 9092."""
    for server in servers.split(","):
        found = _ADDRESS.fullmatch(server.strip().rpartition("://")[2])
        if found is None or not found["host"]:
            raise ConfigError(
                f"{server.strip()!r} in --bootstrap-server is not an address.",
                hint="Write HOST:PORT, with commas between several: kafka-1:9092,kafka-2:9092.",
            )
        if found["port"] is not None and not _is_port(found["port"], least=1):
            raise ConfigError(
                f"{server.strip()!r} in --bootstrap-server has no valid port: "
                f"{found['port']!r} is not between 1 and {_MOST_PORT}."
            )


def _is_port(text: str, *, least: int) -> bool:
    return text.isascii() and text.isdecimal() and least <= int(text[:9]) <= _MOST_PORT
