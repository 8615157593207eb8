"""One line per request on stderr: who, what, how it ended. Never the text of a prompt or an answer."""

import logging
import sys

import structlog


def request_log() -> structlog.typing.FilteringBoundLogger:
    """A logger of its own: what libraries and strategies log stays off by default, since it may quote
    prompts."""
    terminal = sys.stderr.isatty()
    return structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
