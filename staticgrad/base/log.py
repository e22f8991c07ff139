"""Records of compilations, trainings and ranks: through ``logging``, under the logger ``staticgrad``.

    staticgrad.compile       INFO a line a program, compiled or found on disk; DEBUG a line a stage
    staticgrad.cache         INFO why compiled programs are not kept
    staticgrad.training      INFO a line an epoch
    staticgrad.distributed   ERROR why a rank ends all others

A program that configures ``logging`` gets these records where it wants them. Where it does not, what a switch of the
environment asks for (``STATICGRAD_DEBUG``, ``STATICGRAD_PRINT_AFTER``) is written to standard error.
"""

from __future__ import annotations

import logging
import sys

INFO, DEBUG, ERROR = logging.INFO, logging.DEBUG, logging.ERROR


def is_told(room: str, level: int) -> bool:
    """True if a handler waits for records of this level."""
    log = logging.getLogger(f"staticgrad.{room}")
    return log.isEnabledFor(level) and log.hasHandlers()


def tell(room: str, level: int, text: str, *, asked: bool = False) -> None:
    """Log a line, or several.

    Args:
        room: the name of the logger below ``staticgrad``.
        asked: a switch asks for it: where no handler waits for it, it goes to standard error.
    """
    if is_told(room, level):
        logging.getLogger(f"staticgrad.{room}").log(level, "%s", text)
    elif asked and sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
