"""Chooses free ports of 127.0.0.1 and reserves them until this process ends.

A port looks free until a broker listens on it, and again while a killed broker is down. So each
chosen port is also a locked file: two processes that start clusters at the same time never choose
the same port.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
_RANGE = range(20_000, 32_000)  # below the ephemeral ports of common systems

_reserved: dict[int, IO[str]] = {}


def free_ports(count: int) -> tuple[int, ...]:
    """Returns distinct free ports that no other process has reserved."""
    ports: list[int] = []
    for port in random.sample(_RANGE, k=len(_RANGE)):
        if len(ports) == count:
            break
        if port not in _reserved and is_free(port) and _reserve(port):
            ports.append(port)
    return tuple(ports)


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    """Locks the file of a port until this process ends; False if another process has it."""
    folder = Path(tempfile.gettempdir()) / f"trimtab-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    file = (folder / str(port)).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    _reserved[port] = file
    return True
