"""What will go says so long before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import RequestFactory
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.deprecation import deprecated

SINCE, SUNSET = datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC)


class OldView(APIView):
    permission_classes = ()
    authentication_classes = ()

    @deprecated(since=SINCE, sunset=SUNSET, see="/docs/api")
    def get(self, request: Any) -> Response:
        return Response({"still": "works"})


def test_it_still_works_and_says_when_it_goes() -> None:
    answer = OldView.as_view()(RequestFactory().get("/"))
    assert answer.data == {"still": "works"}
    assert answer["Deprecation"] == "@1796083200"
    assert answer["Sunset"] == "Wed, 01 Dec 2027 00:00:00 GMT"
    assert 'rel="deprecation"' in answer["Link"]


def test_nothing_goes_before_it_was_deprecated() -> None:
    with pytest.raises(ValueError, match="after"):
        deprecated(since=SUNSET, sunset=SINCE, see="/")
