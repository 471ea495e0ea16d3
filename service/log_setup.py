"""Logs as JSON lines on standard error, our own and the libraries'.

An exception is logged by its type and its frames, never by its words: they may quote a request, a statement's parameters or
a secret.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any

import structlog

_HANDLER_NAME = "godwit"


def set_up_logs(level: str) -> None:
    """For this process; a repeat only changes the level. `level` is a name of the logging module, in any case."""
    shared = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _show_frames,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=repr),
        ],
    )
    _replace_handler(formatter)
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("godwit").setLevel(level.upper())


def _replace_handler(formatter: logging.Formatter) -> None:
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == _HANDLER_NAME]:
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(formatter)
    root.addHandler(handler)


def _show_frames(_logger: Any, _method: str, event: Any) -> Any:
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["error_types"] = [type(link).__name__ for link in _chain(error)]
        event["frames"] = [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
        ]
    return event


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error and what it came from."""
    links: list[BaseException] = []
    while error is not None and len(links) < 10:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links
