"""Logging of the command line: structlog to stderr, readable on a terminal, JSON lines elsewhere."""

import logging
import os
import sys
import warnings

import structlog

# What ends a command is reported by the command itself, in one line: by default nothing is logged beside it.
LEVELS = (logging.CRITICAL, logging.INFO, logging.DEBUG)


def configure_logs(verbosity: int) -> None:
    """Quiet by default; 1 tells what happens, 2 tells all."""
    level = LEVELS[min(verbosity, len(LEVELS) - 1)]
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    if verbosity == 0:
        _hush_libraries()


def _hush_libraries() -> None:
    # An error of the command line is one line: loaders must not add their own above it.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
