"""Text that others wrote, made fit for a terminal and for a line of a log."""

from __future__ import annotations

import logging
from types import TracebackType


def printable(text: str) -> str:
    """`text` with control characters escaped, since file names come from disk and may hold terminal commands."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """As printable, with line breaks escaped too: a file's name cannot begin a line of its own."""
    return printable(text).replace("\n", "\\n")


class LineFormatter(logging.Formatter):
    """A message is one line whatever is in it; only a traceback has more, each of them set in."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the name is logging's)
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(  # noqa: N802
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return "\n".join(f"  {line}" for line in printable(super().formatException(ei)).split("\n"))
