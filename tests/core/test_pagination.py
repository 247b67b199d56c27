"""Keyset pages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from factories import cluster, run

from apps.checkpoints.models import TrainingRun
from apps.core.pagination import keyset_page

pytestmark = pytest.mark.django_db


def _runs(count: int) -> list[str]:
    east, now = cluster(), timezone.now()
    rows = [run(east, f"run-{number}") for number in range(count)]
    for number, row in enumerate(rows):
        TrainingRun.objects.filter(pk=row.pk).update(created_at=now + timedelta(seconds=number // 2))
    return list(TrainingRun.objects.order_by("-created_at", "-pk").values_list("pk", flat=True))


def test_walking_forward_shows_every_row_once_even_with_equal_times() -> None:
    expected, seen, cursor = _runs(7), [], None
    while True:
        page = keyset_page(TrainingRun.objects.all(), order="-created_at", limit=2, cursor=cursor)
        seen += [row.pk for row in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == expected
    assert page.total == {"value": 7, "relation": "eq"}


def test_walking_back_returns_to_the_first_page() -> None:
    expected = _runs(5)
    first = keyset_page(TrainingRun.objects.all(), order="-created_at", limit=2, cursor=None)
    second = keyset_page(TrainingRun.objects.all(), order="-created_at", limit=2, cursor=first.next_cursor)
    back = keyset_page(TrainingRun.objects.all(), order="-created_at", limit=2, cursor=second.prev_cursor)
    assert [row.pk for row in back.items] == expected[:2]
    assert back.prev_cursor is None
    assert back.next_cursor is not None


def test_a_cursor_that_was_tampered_with_is_refused() -> None:
    _runs(1)
    with pytest.raises(ValueError, match="start again"):
        keyset_page(TrainingRun.objects.all(), order="-created_at", limit=2, cursor="forged")
