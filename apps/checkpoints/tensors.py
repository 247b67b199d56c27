"""The tensors of a sealed checkpoint, by name: kept in pages, so that even of a million a request reads a few only."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import msgspec
from django.core import signing
from muster_agent.manifest.model import TensorDigest

from apps.checkpoints.models import TensorPage
from apps.core.pagination import Page

TENSORS_IN_PAGE = 1000
_LAST = "\U0010ffff"
_SALT = "tensors"


def tensor_pages(manifest_id: str, tensors: Iterable[TensorDigest]) -> list[TensorPage]:
    """Unsaved rows with all tensors of the manifest, in the order of their names."""
    ordered = sorted(tensors, key=lambda tensor: (tensor.name, tensor.shard, tensor.offset_bytes))
    parts = [ordered[begin : begin + TENSORS_IN_PAGE] for begin in range(0, len(ordered), TENSORS_IN_PAGE)]
    return [
        TensorPage(
            manifest_id=manifest_id,
            number=number,
            first_name=part[0].name.replace("\0", "\ufffd"),
            tensor_count=len(part),
            body=zlib.compress(msgspec.json.encode(part)),
        )
        for number, part in enumerate(parts)
    ]


def tensors_page(manifest_id: str, *, prefix: str, limit: int, cursor: str | None) -> Page:
    """Those whose names begin with `prefix`, by name and place, `limit` at most. Raises ValueError for a cursor that is
    not of this manifest."""
    index = _Index(manifest_id)
    first, end = index.ordinal(prefix), index.ordinal(prefix + _LAST)
    begin = max(_read_cursor(cursor, manifest_id), first)
    items = index.tensors(begin, min(begin + limit, end))
    following = _cursor(manifest_id, begin + limit) if begin + limit < end else None
    before = _cursor(manifest_id, max(begin - limit, first)) if begin > first else None
    return Page(items, following, before, {"value": end - first, "relation": "eq"})


class _Index:
    """The pages of one manifest; their bodies are read only where they are needed. `starts` are the ordinals of their
    first tensors, and of the end."""

    def __init__(self, manifest_id: str) -> None:
        self._rows = TensorPage.objects.filter(manifest=manifest_id).order_by("number")
        listed = list(self._rows.values_list("first_name", "tensor_count"))
        self._names = [name for name, _ in listed]
        self.starts = [0, *accumulate(count for _, count in listed)]

    def ordinal(self, name: str) -> int:
        """How many tensors come before `name`."""
        number = bisect_left(self._names, name) - 1
        if number < 0:
            return 0
        return self.starts[number] + bisect_left([tensor.name for tensor in self._body(number)], name)

    def tensors(self, begin: int, end: int) -> list[TensorDigest]:
        """Those of the ordinals [begin, end)."""
        found: list[TensorDigest] = []
        while begin < end:
            number = bisect_left(self.starts, begin + 1) - 1
            start = self.starts[number]
            part = self._body(number)[begin - start : end - start]
            found.extend(part)
            begin += len(part)
        return found

    def _body(self, number: int) -> list[TensorDigest]:
        body = self._rows.values_list("body", flat=True).get(number=number)
        return msgspec.json.decode(zlib.decompress(bytes(body)), type=list[TensorDigest])


def _cursor(manifest_id: str, ordinal: int) -> str:
    return signing.dumps([manifest_id, ordinal], salt=_SALT, compress=False)


def _read_cursor(cursor: str | None, manifest_id: str) -> int:
    if not cursor:
        return 0
    try:
        made_for, ordinal = signing.loads(cursor, salt=_SALT)
    except (signing.BadSignature, ValueError) as error:
        raise ValueError("This cursor is not one of ours; start again without it.") from error
    if made_for != manifest_id:
        raise ValueError("This cursor was made for another list of tensors; start again without it.")
    return int(ordinal)
