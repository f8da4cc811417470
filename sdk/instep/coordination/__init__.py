"""Which of several processes may write. Pure."""

from instep.coordination.lease import Role

__all__ = ["Role"]
