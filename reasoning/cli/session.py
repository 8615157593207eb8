"""What one call of the command line knows about itself."""

from typing import Any

import msgspec

from .logs import configure_logs


class Session(msgspec.Struct):
    """`verbosity` 0 is quiet; from 1 on an error shows its traceback."""

    verbosity: int = 0


def set_verbosity(ctx: Any, count: int) -> int:
    """Callback of `-v`: counts on every command alike, and configures the logs once it is known."""
    session = ctx.find_object(Session)
    if session is not None and not ctx.resilient_parsing:
        session.verbosity += count
        configure_logs(session.verbosity)
    return count
