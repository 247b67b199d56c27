"""Keyset pages: constant cost however deep, and honest counts (exact up to 10,000, then "at least")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core import signing
from django.db.models import Q, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

MAX_COUNT = 10_000


class Page:
    """One page of rows. Cursors are opaque and signed; None where there is no page on that side."""

    def __init__(
        self, items: list[Any], next_cursor: str | None, prev_cursor: str | None, total: dict[str, Any]
    ) -> None:
        self.items = items
        self.next_cursor = next_cursor
        self.prev_cursor = prev_cursor
        self.total = total


def keyset_page(queryset: QuerySet[Any], *, order: str, limit: int, cursor: str | None, count: bool = True) -> Page:
    """Rows of `queryset` in `order` (a field, `-` for descending; ties broken by primary key), `limit` at most.

    Rows whose order field is NULL are not listed, so order by a column that is never null. Raises ValueError for a
    cursor that was tampered with or made for another order.
    """
    descending, field = order.startswith("-"), order.lstrip("-")
    backward, position = _read_cursor(cursor, order)
    rows_descending = descending != backward
    rows = queryset.order_by(*((f"-{field}", "-pk") if rows_descending else (field, "pk")))
    if position is not None:
        rows = _beyond(rows, field, position, rows_descending)
    found = list(rows[: limit + 1])
    more, found = len(found) > limit, found[:limit]
    if backward:
        found.reverse()
    has_next = more if not backward else position is not None
    has_prev = position is not None if not backward else more
    next_cursor = _cursor(found[-1], order, field, False) if found and has_next else None
    prev_cursor = _cursor(found[0], order, field, True) if found and has_prev else None
    return Page(found, next_cursor, prev_cursor, bounded_count(queryset) if count else {})


def bounded_count(queryset: QuerySet[Any]) -> dict[str, Any]:
    """`{"value": n, "relation": "eq"}`, or 10,000 and "gte" where there are more: never a full count of millions."""
    value = queryset.order_by().values("pk")[: MAX_COUNT + 1].count()
    return {"value": min(value, MAX_COUNT), "relation": "eq" if value <= MAX_COUNT else "gte"}


def _beyond(rows: QuerySet[Any], field: str, position: tuple[Any, Any], descending: bool) -> QuerySet[Any]:
    """The bound on `field` alone is what an index can begin at; the rest only drops ties that were shown."""
    value, pk = position
    compare = "lt" if descending else "gt"
    ties = Q(**{f"{field}__{compare}": value}) | Q(**{field: value, f"pk__{compare}": pk})
    return rows.filter(ties, **{f"{field}__{compare}e": value})


def _cursor(row: Any, order: str, field: str, backward: bool) -> str:
    value = getattr(row, field)
    text = value.isoformat() if hasattr(value, "isoformat") else value
    return signing.dumps([order, text, row.pk, backward], salt="cursor", compress=False)


def _read_cursor(cursor: str | None, order: str) -> tuple[bool, tuple[Any, Any] | None]:
    if not cursor:
        return False, None
    try:
        made_for, value, pk, backward = signing.loads(cursor, salt="cursor")
    except (signing.BadSignature, ValueError) as error:
        raise ValueError("This cursor is not one of ours; start again without it.") from error
    if made_for != order:
        raise ValueError("This cursor was made for another sort order; start again without it.")
    return bool(backward), (value, pk)


class KeysetPagination(BasePagination):
    """`?limit=50&cursor=...&sort=-created_at`; a view names its orders in `sort_fields` (the first is default)."""

    default_limit = 50
    max_limit = 200

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        allowed = getattr(view, "sort_fields", ("-created_at",))
        order = request.query_params.get("sort") or allowed[0]
        if order.lstrip("-") not in {name.lstrip("-") for name in allowed}:
            raise ValidationError({"sort": f"Sort by one of {', '.join(name.lstrip('-') for name in allowed)}."})
        return self.take_page(
            lambda limit, cursor: keyset_page(queryset, order=order, limit=limit, cursor=cursor), request
        )

    def take_page(self, page_of: Callable[[int, str | None], Page], request: Request) -> list[Any]:
        """The items of the page that `page_of` gives for the limit and the cursor that were asked for."""
        try:
            self.page = page_of(self._limit(request), request.query_params.get("cursor"))
        except ValueError as error:
            raise ValidationError({"cursor": str(error)}) from error
        return self.page.items

    def _limit(self, request: Request) -> int:
        text = request.query_params.get("limit", str(self.default_limit))
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= self.max_limit:
            raise ValidationError({"limit": f"Use a whole number from 1 to {self.max_limit}."})
        return int(text)

    def get_paginated_response(self, data: Any) -> Response:
        page = self.page
        return Response(
            {"items": data, "next_cursor": page.next_cursor, "prev_cursor": page.prev_cursor, "total": page.total}
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        cursor = {"type": ["string", "null"]}
        total = {
            "type": "object",
            "required": ["value", "relation"],
            "properties": {"value": {"type": "integer"}, "relation": {"type": "string", "enum": ["eq", "gte"]}},
        }
        return {
            "type": "object",
            "required": ["items", "next_cursor", "prev_cursor", "total"],
            "properties": {"items": schema, "next_cursor": cursor, "prev_cursor": cursor, "total": total},
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        orders = [name.lstrip("-") for name in getattr(view, "sort_fields", ("-created_at",))]
        limit = {"type": "integer", "minimum": 1, "maximum": self.max_limit, "default": self.default_limit}
        sort = {"type": "string", "enum": [sign + name for name in orders for sign in ("", "-")]}
        return [
            {"name": "limit", "in": "query", "required": False, "schema": limit},
            {"name": "cursor", "in": "query", "required": False, "schema": {"type": "string"}},
            {"name": "sort", "in": "query", "required": False, "schema": sort},
        ]
