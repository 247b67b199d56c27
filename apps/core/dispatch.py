"""Waking Celery by task name, after commit. A lost message costs time, never work: the sweeper finds due rows."""

from __future__ import annotations

import logging
from typing import Any

from celery import current_app
from django.db import transaction

from apps.core import logs

log = logging.getLogger(__name__)


def enqueue(name: str, **kwargs: Any) -> None:
    """Send `name` once the surrounding transaction has committed."""
    transaction.on_commit(lambda: _send(name, kwargs))


def wake_owner(owner_kind: str, owner_id: str) -> None:
    """Have the service that owns this row look at it soon."""
    enqueue("muster.control.advance", owner_kind=owner_kind, owner_id=owner_id)


def _origin() -> dict[str, str]:
    """From which request this comes: for the logs and traces of whoever takes it."""
    return {"request_id": logs.request_id.get(), "traceparent": logs.traceparent.get()}


def _send(name: str, kwargs: dict[str, Any]) -> None:
    try:
        current_app.send_task(name, kwargs=kwargs, retry=False, headers=_origin())
    except Exception as error:  # noqa: BLE001  (any broker trouble means the same: the sweeper will do it)
        log.warning("could not wake %s (%s); the sweeper will", name, error)
