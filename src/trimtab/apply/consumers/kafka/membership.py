"""The subscribed members of a group; a directed group must have none."""

from __future__ import annotations

from trimtab.errors import ApplyError, ConfigError
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


def records_deleted(group: str, what: str) -> ApplyError:
    """The error of a reader that must not skip records, when some were deleted before it came."""
    return ApplyError(
        f"Group {group} has committed an offset that its topic no longer has: {what}.",
        hint="Records were deleted before they were read, by retention or with the topic. Set the "
        "group's offset to what is to be read next; the deleted records are lost.",
    )
