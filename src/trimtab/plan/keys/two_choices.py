"""Two choices: each new key goes to the less loaded of two partitions that its hash chooses.

Why      One random choice leaves some partition far too full; a second one corrects most of it.
Promise  The draw depends only on the key and the plan's number: `a = H1 mod m` and
         `b = (a + 1 + H2 mod (m − 1)) mod m`, with H1 and H2 the halves of BLAKE2b-128 of the key
         and the number as 8 bytes, big-endian. The two differ; equal loads: the lower number.
Cost     O(1) per key.
Paper    Bhattacharya & Wood, section II. Differs: the draw can be repeated.

>>> two_choices(b"a", plan_number=0, partitions=8)
(7, 3)
"""

from __future__ import annotations

from hashlib import blake2b


def two_choices(key: bytes, *, plan_number: int, partitions: int) -> tuple[int, int]:
    """The two partitions that a key may go to; needs at least two partitions."""
    drawn = blake2b(key + plan_number.to_bytes(8, "big"), digest_size=16).digest()
    first = int.from_bytes(drawn[:8], "big") % partitions
    step = 1 + int.from_bytes(drawn[8:], "big") % (partitions - 1)
    return first, (first + step) % partitions
