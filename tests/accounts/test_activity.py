"""The activity log is only added to, is one chain, and names the first entry that does not hold."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from rest import caller

from apps.accounts import activity
from apps.accounts.activity_chain import GENESIS
from apps.accounts.migrations import _append_only
from apps.accounts.models import ActivityEntry, AppendOnly, Role
from apps.accounts.services import log_activity

pytestmark = pytest.mark.django_db
TABLE = ActivityEntry._meta.db_table
ODD = {
    "ratio": 900.0,
    "small": 1.5e-7,
    "large": 1e20,
    "zero": -0.0,
    "text": 'é\u2028"\\',
    "list": [1, None, {"b": 2, "a": 1}],
}


def write(count: int, actor: str = "olga") -> None:
    for number in range(count):
        log_activity(actor=actor, action="x.do", target_kind="x", target_id=str(number), detail=ODD)


@contextmanager
def tampering() -> Iterator[None]:
    """As one who may change the database's own rules."""
    with connection.cursor() as cursor:
        for statement in _append_only.OFF[connection.vendor]:
            cursor.execute(statement)
        yield
        for statement in _append_only.ON[connection.vendor]:
            cursor.execute(statement)


def execute(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_entries_follow_each_other_and_come_back_from_the_database_as_they_were_hashed() -> None:
    write(3)
    rows = list(ActivityEntry.objects.order_by("pk"))
    assert [row.previous for row in rows] == [GENESIS, rows[0].digest, rows[1].digest]
    assert rows[0].detail == ODD
    found = activity.check()
    assert (found.broken_id, found.up_to_id, found.entry_count) == (None, rows[-1].pk, 3)


def test_an_entry_is_gone_with_the_change_that_it_tells() -> None:
    write(1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        write(1)
        raise ZeroDivisionError
    write(1)
    assert activity.check().entry_count == 2


def test_the_model_and_the_database_refuse_changes_and_removals() -> None:
    write(1)
    entry = ActivityEntry.objects.get()
    for change in (entry.save, entry.delete, ActivityEntry.objects.all().delete):
        with pytest.raises(AppendOnly):
            change()
    with pytest.raises(AppendOnly):
        ActivityEntry.objects.update(actor="somebody else")
    for statement in (f"UPDATE {TABLE} SET actor = 'x'", f"DELETE FROM {TABLE}"):
        with pytest.raises(DatabaseError, match="only added to"), transaction.atomic():
            execute(statement)
    assert ActivityEntry.objects.get().actor == "olga"


@pytest.mark.parametrize(
    ("statement", "broken", "why"),
    [
        (f"UPDATE {TABLE} SET actor = 'x' WHERE id = %s", 3, "not what was written"),
        (f"UPDATE {TABLE} SET detail = '{{}}' WHERE id = %s", 3, "not what was written"),
        (f"DELETE FROM {TABLE} WHERE id = %s", 4, "does not follow"),
        (f"DELETE FROM {TABLE} WHERE id > %s", 4, "entry 5 was written last"),
    ],
)
def test_the_first_broken_entry_is_named(statement: str, broken: int, why: str) -> None:
    write(5)
    with tampering():
        execute(statement, 3)
    found = activity.check()
    assert found.broken_id == broken and why in found.problem
    with pytest.raises(CommandError, match=f"up to entry {found.up_to_id} "):
        call_command("verify_activity")
    write(1)
    assert activity.check().up_to_id == found.up_to_id, "what is added later mends nothing"


@pytest.mark.django_db(transaction=True)
def test_writers_at_once_make_one_chain() -> None:
    def one(name: str) -> None:
        try:
            for _number in range(10):
                with transaction.atomic():
                    write(2, name)
        finally:
            connection.close()

    writers = [threading.Thread(target=one, args=(f"writer-{number}",)) for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = activity.check()
    assert (found.problem, found.entry_count) == ("", 100)
    assert list(ActivityEntry.objects.order_by("pk").values_list("pk", flat=True)) == list(range(1, 101))


def test_whoever_has_the_export_can_check_it_without_muster() -> None:
    write(3)
    admin = caller(Role.ADMIN)  # its token is an entry too
    answer = admin.get("activity/export/")
    assert answer["Content-Type"] == "application/x-ndjson"
    lines = b"".join(answer.streaming_content).splitlines()
    previous = "0" * 64
    for line in lines:
        entry = json.loads(line)
        assert entry["previous"] == previous
        previous = hashlib.sha256(line[:-77] + b"}").hexdigest()
        assert entry["digest"] == previous
    assert len(lines) == ActivityEntry.objects.count() == 4
    newest = b"".join(admin.get("activity/export/", after=2).streaming_content)
    assert newest.splitlines() == lines[2:]


def test_an_admin_checks_the_chain_and_sees_what_was_found() -> None:
    admin = caller(Role.ADMIN)
    assert admin.get("activity/check/").status_code == 404
    assert admin.post("activity/check/").json()["problem"] == ""
    assert admin.get("activity/check/").json()["up_to_id"] == 1
    client = Client()
    client.force_login(admin.user)
    assert "holds up to entry 1." in client.get("/activity/").content.decode()
    with tampering():
        execute(f"UPDATE {TABLE} SET actor = 'x'")
    page = client.post("/activity/check/", follow=True).content.decode()
    assert "Entry 1 is not what was written" in page
    assert caller(Role.OPERATOR).post("activity/check/").status_code == 403


def test_the_list_is_narrowed_by_cluster_and_request() -> None:
    admin = caller(Role.ADMIN)
    log_activity(actor="olga", action="x.do", target_kind="x", target_id="1", cluster_id="clu_1")
    assert [one["cluster"] for one in admin.get("activity/", cluster="clu_1").json()["items"]] == ["clu_1"]
    assert admin.get("activity/", request_id="req_none").json()["items"] == []


@pytest.mark.django_db(transaction=True)
def test_entries_from_before_there_was_a_chain_are_chained() -> None:
    before, now = ("accounts", "0003_keep_views_of_lists"), ("accounts", "0005_activity_is_only_added_to")
    executor = MigrationExecutor(connection)
    try:
        executor.migrate([before])
        old = executor.loader.project_state([before]).apps.get_model("accounts", "ActivityEntry")
        for pk in (1, 7):  # PostgreSQL's sequences leave gaps
            at = "2026-01-02T03:04:05Z"
            old.objects.create(pk=pk, at=at, actor="a", action="b", target_kind="c", target_id="d", detail=ODD)
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate([now])
    write(1)
    found = activity.check()
    assert (found.problem, found.up_to_id, found.entry_count) == ("", 8, 3)
    with pytest.raises(DatabaseError, match="only added to"):
        execute(f"DELETE FROM {TABLE}")


def test_the_command_says_how_far_the_chain_holds() -> None:
    write(2)
    out = StringIO()
    call_command("verify_activity", stdout=out)
    assert out.getvalue() == "The chain holds up to entry 2: 2 entries.\n"
