"""How old the newest backup of Muster's own database is: measured, and alerted on."""

from __future__ import annotations

from datetime import timedelta

import factories
import pytest
import time_machine
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts import backup_age, services
from apps.alerts.metrics import families
from apps.alerts.models import Alert
from apps.core.metrics import exposition
from apps.fleet.models import Cluster

pytestmark = pytest.mark.django_db


def backed_up(days_ago: float) -> None:
    with time_machine.travel(timezone.now() - timedelta(days=days_ago)):
        log_activity(actor="manage.py", action="backup.create", target_kind="backup", target_id="muster-1", detail={})


def opened() -> list[str]:
    services.evaluate()
    return list(Alert.objects.exclude(state="resolved").filter(rule="backup_old").values_list("summary", flat=True))


def test_an_old_backup_is_alerted_on_until_there_is_a_new_one() -> None:
    factories.cluster()
    backed_up(2.5)
    [summary] = opened()
    assert "last backed up at" in summary
    backed_up(0.1)
    assert opened() == []


def test_a_muster_that_was_never_backed_up_is_alerted_on_once_it_holds_something_for_as_long() -> None:
    assert opened() == []
    made = factories.cluster()
    assert opened() == []
    Cluster.objects.filter(pk=made.pk).update(created_at=timezone.now() - timedelta(days=3))
    [summary] = opened()
    assert "never backed up" in summary


def test_the_age_is_a_metric_and_absent_without_a_backup() -> None:
    assert b"\nmuster_backup_age_seconds " not in exposition([families])
    backed_up(1)
    [line] = [line for line in exposition([families]).splitlines() if line.startswith(b"muster_backup_age_seconds ")]
    assert float(line.split()[1]) == pytest.approx(86_400, abs=60)
    assert backup_age.seconds(timezone.now() - timedelta(days=2)) == 0.0  # a clock that was set back
