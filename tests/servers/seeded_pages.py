"""Pages over a made-up fleet in the database of DATABASE_URL: each one's queries, bytes, and what its plans scan.

    DATABASE_URL=postgresql:///... python -m tests.servers.seeded_pages seed --checkpoints 10000 ...
    DATABASE_URL=postgresql:///... python -m tests.servers.seeded_pages look

`look` prints one JSON object: each page's address with `queries`, `bytes`, `status` and `scans`, a list of
[table, rows] for every table that a plan reads from end to end.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import django

WHO = "bench-viewer"


def seed(options: list[str]) -> None:
    from django.core.management import call_command

    from apps.accounts.models import Role
    from apps.accounts.services import create_user
    from apps.core import heartbeats

    call_command("migrate", verbosity=0)
    call_command("seed_fleet", *options)
    for part in heartbeats.PARTS:
        heartbeats.beat(part)
    create_user(username=WHO, password=None, role=Role.OPERATOR)


def session() -> str:
    """The cookie of somebody who is signed in."""
    from django.conf import settings

    return f"{settings.SESSION_COOKIE_NAME}={_client().cookies[settings.SESSION_COOKIE_NAME].value}"


def _client() -> Any:
    from django.test import Client

    from apps.accounts.models import User

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.get(username=WHO))
    return client


def urls() -> list[str]:
    """Every kind of page, lists also narrowed, searched, sorted and deep, and each chart's data."""
    from django.urls import reverse

    from apps.audits.models import Audit
    from apps.checkpoints.models import Checkpoint, InventoryScan, TrainingRun
    from apps.dashboard.lists.catalogue import LISTS
    from apps.drills.models import Drill, DrillPlan
    from apps.fleet.models import Cluster, Node
    from apps.recovery.models import Incident
    from apps.storage.models import StorageTier
    from apps.transfers.models import Transfer

    run = TrainingRun.objects.order_by("name").first()
    copy = Checkpoint.objects.order_by("pk").first()
    assert run is not None and copy is not None
    lists = [reverse(name) for name in LISTS]
    found = [
        "/",
        *lists,
        "/plans/grid/",
        "/plans/calendar/",
        "/tiers/",
        "/health/",
        "/find/?q=run-0",
        "/objectives/?q=run-01",
        "/alerts/rules/",
        "/first-steps/",
        "/?wall=1",
        "/manual/?q=shard_missing",
        "/drills/start/",
        "/plans/new/",
        "/policies/new/",
    ]
    found += [
        "/checkpoints/?status=complete&trust=verified", f"/checkpoints/?run={run.pk}&sort=step", "/checkpoints/?q=7",
        "/checkpoints/?sort=largest&since=24h", "/drills/?outcome=breached", "/drills/?kind=herd&q=run-01",
        f"/drills/?run={run.pk}", "/audits/?outcome=damaged", "/nodes/?state=lost", "/nodes/?q=0999",
        "/alerts/?state=open", "/changes/?kind=appeared", "/checkpoints/?limit=200", "/drills/?limit=100",
        f"/runs/{run.pk}/", f"/runs/{run.pk}/checklist/", f"/checkpoints/{copy.pk}/", "/analysis/",
        f"/analysis/?run={run.pk}", "/analysis/groups/?kind=reload", "/analysis/groups/?by=tier&kind=herd",
        "/analysis/groups/?by=node_group&kind=herd",
        f"/analysis/advice/?run={run.pk}&save_seconds=60", "/analysis/tiers/",
        f"/analysis/what-if/?tier={StorageTier.objects.order_by('pk').values_list('pk', flat=True)[0]}",
    ]  # fmt: skip
    for model, path in (
        (Drill, "drills"), (DrillPlan, "plans"), (Node, "nodes"), (Cluster, "clusters"), (StorageTier, "tiers"),
        (InventoryScan, "scans"), (Audit, "audits"), (Transfer, "transfers"), (Incident, "incidents"),
    ):  # fmt: skip
        found.append(f"/{path}/{model._default_manager.order_by('pk').values_list('pk', flat=True)[0]}/")
    node = Node.objects.order_by("pk").values_list("pk", flat=True)[0]
    drills = list(Drill.objects.exclude(placement=None).order_by("pk").values_list("pk", flat=True)[:8])
    found += [
        f"/drills/compare/?ids={','.join(drills)}", f"/drills/{drills[0]}/inside/", f"/drills/{drills[0]}/print/",
        f"/checkpoints/{copy.pk}/tensors/", f"/placements/{copy.placements.order_by('pk')[0].pk}/rank-shards/",
    ]  # fmt: skip
    client = _client()
    found += [_deep(client, path) for path in ("/checkpoints/", "/drills/", "/activity/")]
    drawn = ("/", "/analysis/", "/objectives/", f"/runs/{run.pk}/", f"/drills/{drills[0]}/", "/analysis/tiers/")
    drawn += ("/analysis/groups/?kind=reload", f"/analysis/advice/?run={run.pk}&save_seconds=60", f"/nodes/{node}/")
    charts = {url for page in drawn for url in _charts(client, page)}
    return [*found, *sorted(charts)]


def _deep(client: Any, path: str) -> str:
    """The page five on."""
    at = path
    for _turn in range(5):
        match = re.search(r'href="(\?[^"]*)" rel="next"', client.get(at).content.decode())
        if match is None:
            break
        at = path + match.group(1).replace("&amp;", "&")
    return at


def _charts(client: Any, page: str) -> list[str]:
    html = client.get(page).content.decode()
    return [url.replace("&amp;", "&") for url in re.findall(r'data-chart="([^"]+)"', html)]


def look() -> dict[str, dict[str, Any]]:
    client = _client()
    found = {}
    for url in urls():
        client.get(url)  # what is cached once a process is no page's cost
        found[url] = _look_at(client, url)
    return found


def _look_at(client: Any, url: str) -> dict[str, Any]:
    from django.db import connection

    queries: list[str] = []
    scans: list[tuple[str, int]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        queries.append(sql)
        if connection.vendor == "postgresql" and sql.lstrip().startswith("SELECT"):
            with connection.connection.cursor() as cursor:
                cursor.execute("EXPLAIN (FORMAT JSON) " + sql, params)
                scans.extend(_scans(cursor.fetchone()[0][0]["Plan"]))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        answer = client.get(url)
    size = len(answer.content)
    return {"status": answer.status_code, "queries": len(queries), "bytes": size, "scans": sorted(set(scans))}


def _scans(plan: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Tables that the plan reads from end to end, with how many rows they have. A limit right above a scan without a
    condition ends it: so lists count to 10,000."""
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"], _rows_of(plan["Relation Name"])
    for part in plan.get("Plans", ()):
        if plan["Node Type"] != "Limit" or part["Node Type"] != "Seq Scan" or "Filter" in part:
            yield from _scans(part)


_counts: dict[str, int] = {}


def _rows_of(table: str) -> int:
    from django.db import connection

    if table not in _counts:
        with connection.connection.cursor() as cursor:
            cursor.execute("SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [table])
            _counts[table] = int(cursor.fetchone()[0])
    return _counts[table]


def main() -> None:
    django.setup()
    verb, *options = sys.argv[1:]
    if verb == "seed":
        seed(options)
    elif verb == "look":
        print(json.dumps(look()))
    else:
        print(json.dumps({"cookie": session(), "urls": urls()}))


if __name__ == "__main__":
    main()
