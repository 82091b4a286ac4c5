"""The chain of a key: a hash over the numbers of its records that tells any other order or gap.

>>> chain_after(2) == next_chain(next_chain("", 1), 2)
True
"""

from __future__ import annotations

import hashlib


def next_chain(chain: str, seq: int) -> str:
    """The chain of a key after its record number `seq`; it begins with the empty text."""
    text = f"{chain}|{seq}".encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def chain_after(count: int) -> str:
    """The chain after the records 1 to `count`, each once and in order."""
    chain = ""
    for seq in range(1, count + 1):
        chain = next_chain(chain, seq)
    return chain
