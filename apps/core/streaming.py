"""Answers that are sent while they are made, however long they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse

Chunk = TypeVar("Chunk", str, bytes)


def streamed(request: HttpRequest, chunks: Iterator[Chunk], *, name: str, content_type: str) -> StreamingHttpResponse:
    """The chunks as a file called `name`, which nobody between keeps."""
    # Under ASGI a plain iterator would be read to its end before the first byte is sent.
    body: Any = _in_threads(chunks) if isinstance(request, ASGIRequest) else chunks
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return StreamingHttpResponse(body, content_type=content_type, headers=headers)


async def _in_threads(chunks: Iterator[Chunk]) -> AsyncIterator[Chunk]:
    step: Callable[[], Chunk | None] = lambda: next(chunks, None)  # noqa: E731  (typed, and passed on as it is)
    while (chunk := await sync_to_async(step)()) is not None:
        yield chunk
