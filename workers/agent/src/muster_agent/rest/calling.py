"""What the generated operations stand on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Calling:
    """`client.Client` fills it in."""

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        if_match: str | None = None,
    ) -> Any:
        raise NotImplementedError

    def items(self, path: str, query: Mapping[str, Any] | None) -> Iterator[Any]:
        raise NotImplementedError
