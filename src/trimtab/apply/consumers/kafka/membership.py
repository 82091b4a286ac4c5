"""Members that a group has in the brokers' eyes: a directed group must have none."""

from __future__ import annotations

from trimtab.errors import ConfigError
from trimtab.kafka.admin import Admin


def subscribed_members(admin: Admin, group: str) -> tuple[str, ...]:
    """The members of a group that subscribe, each as client id and host, ascending."""
    found = [m for described in admin.groups([group]) for m in described.members]
    return tuple(sorted(f"{m.client_id} at {m.host}" for m in found))


def refuse_subscribed(admin: Admin, group: str) -> None:
    """Raises where somebody subscribes under the name of a group that is to be directed."""
    members = subscribed_members(admin, group)
    if members:
        raise ConfigError(
            f"Group {group} has {len(members)} subscribed member{'s' * (len(members) > 1)}: "
            f"{', '.join(members)}.",
            hint="A group is directed or subscribed, never both: the brokers would refuse the "
            "commits. End the members, use another --group, or --mode group.",
        )
