"""The subscribed members of a group; a directed group must have none."""

from __future__ import annotations

from trimtab.errors import ConfigError
from trimtab.kafka.admin import Admin


def subscribed_members(admin: Admin, group: str) -> tuple[str, ...]:
    """The members of a group that subscribe, each as client id and host, ascending."""
    found = [m for described in admin.groups([group]) for m in described.members]
    return tuple(sorted(f"{m.client_id} at {m.host}" for m in found))


def refuse_subscribed(admin: Admin, group: str) -> None:
    """Raises if a group that is to be directed has subscribed members."""
    members = subscribed_members(admin, group)
    if members:
        raise ConfigError(
            f"Group {group} has {len(members)} subscribed member{'s' * (len(members) > 1)}: "
            f"{', '.join(members)}.",
            hint="A group is either directed or subscribed: with subscribed members, brokers "
            "refuse commits of directed consumers. Stop these members, use another --group, or "
            "use --mode group.",
        )
