"""The list of objectives: worst first, saved in place, and closed to those who may not."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.scene import Scene
from django.test import Client

SignIn = Callable[[str], Client]


def test_the_worst_is_on_top_and_each_says_how_it_stands(scene: Scene, signed_in: SignIn) -> None:
    page = signed_in("viewer").get("/objectives/").content.decode()
    assert page.index("llama-70b-pt") < page.index("moe-132b-v3") < page.index("vit-huge-scan")
    for words in ("over its budget", "no objective", "more passes to claim 95/95", "nothing was judged"):
        assert words in page, words
    assert 'action="/objectives/' not in page


def test_an_operator_saves_both_objectives_and_nothing_else_of_the_run(scene: Scene, signed_in: SignIn) -> None:
    operator = signed_in("operator")
    answer = operator.post(
        f"/objectives/{scene.llama.pk}/",
        {"rto_objective_seconds": "45", "rpo_objective_seconds": "", "next": "/objectives/?q=llama"},
    )
    assert (answer.status_code, answer["Location"]) == (302, "/objectives/?q=llama")
    scene.llama.refresh_from_db()
    assert (scene.llama.rto_objective_seconds, scene.llama.rpo_objective_seconds) == (45.0, None)
    assert scene.llama.gpu_count == 256


def test_a_wrong_number_is_said_beside_its_field_and_changes_nothing(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("operator").post(f"/objectives/{scene.llama.pk}/", {"rto_objective_seconds": "-3"})
    assert answer.status_code == 422 and 'value="-3"' in answer.content.decode()
    far = signed_in("operator").post(f"/objectives/{scene.llama.pk}/", {"rto_objective_seconds": "1e12"})
    assert far.status_code == 422 and "at most ten years" in far.content.decode()
    scene.llama.refresh_from_db()
    assert scene.llama.rto_objective_seconds == 90


def test_a_viewer_may_not_save_and_a_stranger_finds_no_such_run(scene: Scene, signed_in: SignIn) -> None:
    assert signed_in("viewer").post(f"/objectives/{scene.llama.pk}/", {}).status_code == 403
    assert signed_in("stranger").post(f"/objectives/{scene.llama.pk}/", {}).status_code == 404
    scene.llama.refresh_from_db()
    assert scene.llama.rto_objective_seconds == 90
