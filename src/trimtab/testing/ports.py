"""Ports of 127.0.0.1 on which nobody listens."""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
_RANGE = range(20_000, 32_000)  # below the ports that systems deal out to clients by themselves


def free_ports(count: int) -> tuple[int, ...]:
    """Returns distinct free ports, chosen at random so that two callers seldom meet."""
    ports: list[int] = []
    for port in random.sample(_RANGE, k=len(_RANGE)):
        if len(ports) == count:
            break
        if is_free(port):
            ports.append(port)
    return tuple(ports)


def is_free(port: int) -> bool:
    """Could a server listen on this port now?"""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True
