"""Drills side by side on their page: from a link, from ticked rows, and with what is wrong said."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.scene import Scene
from django.test import Client

SignIn = Callable[[str], Client]


def test_two_drills_are_lined_up_with_a_sentence_and_only_what_differs(scene: Scene, signed_in: SignIn) -> None:
    page = signed_in("viewer").get(f"/drills/compare/?ids={scene.reload.pk},{scene.herd.pk}").content.decode()
    assert "They are of different kinds" in page
    assert "Every byte verified" not in page  # it is the same of both
    everything = signed_in("viewer").get(f"/drills/compare/?ids={scene.reload.pk},{scene.herd.pk}&show=all")
    assert "Every byte verified" in everything.content.decode()


def test_the_list_ticks_drills_for_comparing_even_for_those_who_may_only_look(scene: Scene, signed_in: SignIn) -> None:
    for who in ("viewer", "operator"):
        page = signed_in(who).get("/drills/").content.decode()
        assert f'name="id" value="{scene.reload.pk}" form="bulk"' in page
        assert 'formaction="/drills/compare/"' in page
        assert ('value="cancel"' in page) is (who == "operator")


def test_ticked_rows_lead_to_an_address_that_can_be_kept(scene: Scene, signed_in: SignIn) -> None:
    viewer = signed_in("viewer")
    answer = viewer.post("/drills/compare/", {"id": [scene.reload.pk, scene.herd.pk]})
    assert answer.status_code == 302
    assert answer["Location"] == f"/drills/compare/?ids={scene.reload.pk}%2C{scene.herd.pk}"
    assert viewer.get(answer["Location"]).status_code == 200


def test_one_drill_says_what_to_do_nine_are_too_many_and_a_foreign_one_is_not_there(
    scene: Scene, signed_in: SignIn
) -> None:
    viewer = signed_in("viewer")
    assert "compares with nothing" in viewer.get(f"/drills/compare/?ids={scene.herd.pk}").content.decode()
    nine = ",".join(f"drl_{number}" for number in range(9))
    assert viewer.get(f"/drills/compare/?ids={nine}").status_code == 422
    assert viewer.get(f"/drills/compare/?ids={scene.herd.pk},drl_none").status_code == 404
    assert signed_in("stranger").get(f"/drills/compare/?ids={scene.herd.pk},{scene.reload.pk}").status_code == 404


def test_a_finished_drill_leads_to_the_last_good_one(scene: Scene, signed_in: SignIn) -> None:
    page = signed_in("viewer").get(f"/drills/{scene.failover.pk}/").content.decode()
    assert "Compare with the last good one" in page and f",{scene.failover.pk}" in page
    assert "Compare with" not in signed_in("viewer").get(f"/drills/{scene.running.pk}/").content.decode()
