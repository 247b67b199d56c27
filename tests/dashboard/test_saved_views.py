"""A list's query under a name: one's own, or for everybody."""

from __future__ import annotations

from collections.abc import Callable

import factories
from dashboard.scene import Scene
from django.test import Client

from apps.accounts.models import SavedView

SignIn = Callable[[str], Client]
QUERY = "kind=herd&outcome=breached"


def keep(client: Client, name: str, query: str = QUERY, **fields: str) -> SavedView:
    answer = client.post("/views/drills/", {"name": name, "query": query, "next": f"/drills/?{query}", **fields})
    assert answer["Location"] == f"/drills/?{query}"
    return SavedView.objects.get(name=name)


def test_a_view_is_kept_without_its_cursor_and_leads_back_to_what_was_shown(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    view = keep(client, "late herds", QUERY + "&cursor=abc&tz=utc&q=")
    assert view.query == QUERY and not view.shared
    html = client.get("/drills/?kind=herd&outcome=breached").content.decode()
    assert '<a href="/drills/?kind=herd&amp;outcome=breached" aria-current="true">late herds</a>' in html
    assert "late herds" not in client.get("/audits/").content.decode()


def test_a_private_view_is_ones_own_and_a_shared_one_everybodys(scene: Scene, signed_in: SignIn) -> None:
    viewer = signed_in("viewer")
    keep(viewer, "mine")
    shared = keep(viewer, "ours", shared="yes")
    html = signed_in("operator").get("/drills/").content.decode()
    assert "ours" in html and "shared by vera" in html and ">mine<" not in html
    assert signed_in("operator").post(f"/views/{shared.pk}/delete/").status_code == 403
    mine = SavedView.objects.get(name="mine")
    assert signed_in("admin").post(f"/views/{mine.pk}/delete/").status_code == 404
    assert signed_in("admin").post(f"/views/{shared.pk}/delete/", {"next": "/drills/"}).status_code == 302
    assert not SavedView.objects.filter(pk=shared.pk).exists()


def test_the_same_name_again_keeps_the_new_query(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    keep(client, "late")
    assert keep(client, "late", "kind=reload").query == "kind=reload"
    assert SavedView.objects.count() == 1


def test_a_nameless_view_is_refused_with_a_sentence(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("viewer")
    client.post("/views/drills/", {"name": " ", "query": QUERY, "next": "/drills/"})
    assert "Give it a name" in client.get("/drills/").content.decode()
    assert client.post("/views/users/", {"name": "x"}).status_code == 404


def test_a_hostile_name_or_query_of_a_shared_view_is_inert(scene: Scene, signed_in: SignIn) -> None:
    keep(signed_in("viewer"), "<script>alert(1)</script>", "q=%22%3E%3Cscript%3E", shared="yes")
    html = signed_in("operator").get("/drills/").content.decode()
    assert "<script>alert" not in html and "q=%22%3E%3Cscript%3E" in html


def test_the_api_keeps_and_deletes_views(scene: Scene, client: Client) -> None:
    headers = {"Authorization": f"Bearer {factories.token(scene.users['viewer'])}"}
    made = client.post(
        "/api/v1/saved-views",
        {"list": "drills", "name": "late", "query": QUERY},
        content_type="application/json",
        headers=headers,
    )
    assert made.status_code == 201 and made.json()["owner"] == "vera"
    url = f"/api/v1/saved-views/{made.json()['id']}"
    listed = client.get("/api/v1/saved-views?list=drills", headers=headers).json()["items"]
    assert [row["name"] for row in listed] == ["late"]
    assert client.delete(url, headers=headers).status_code == 204
    assert client.get(url, headers=headers).status_code == 404
