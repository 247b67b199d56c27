"""The end of the demo's story, over the real REST API; audits are done at once."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import factories
import pytest
from django.test import Client
from drill_agents import Yard

from apps.accounts.models import Role
from apps.checkpoints.models import Placement
from deploy.demo.control_plane import ControlPlane, DemoFailure, Document, Refused
from deploy.demo.story import Story
from deploy.demo.terminal import Terminal
from deploy.demo.training_job import RUN_NAME

pytestmark = pytest.mark.django_db


class InProcess(ControlPlane):
    """The demo's client without a server between it and the API."""

    def _call(self, method: str, path: str, body: Document | None) -> Any:
        headers = {"Authorization": self._headers["Authorization"]}
        data = json.dumps(body) if body is not None else ""
        answer = Client().generic(method, f"/api/v1{path}", data, content_type="application/json", headers=headers)
        if answer.status_code >= 400:
            raise Refused(answer.content.decode(), answer.status_code)
        return answer.json()


class AtOnce(Story):
    """An audit of it is done when it was asked for."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, Terminal(), job=None, nodes=None)  # type: ignore[arg-type]
        self.audits: list[tuple[str, int]] = []
        self.fails = ""

    def _scan(self) -> None:
        """As a scan has found it already."""

    def _audit(self, placement: Document, mode: str, expected: str) -> Document:
        if self.fails:
            raise Refused(self.fails, 409)
        self.audits.append((mode, placement["step"]))
        trust = {"seal": Placement.Trust.SEALED, "verify": Placement.Trust.VERIFIED}[mode]
        Placement.objects.filter(pk=placement["id"]).update(trust=trust)
        return {}


@pytest.fixture
def story(tmp_path: Path) -> AtOnce:
    yard = Yard(tmp_path)
    yard.run.name = RUN_NAME
    yard.run.save()
    for step, trust in ((40, "verified"), (80, "listed"), (120, "listed")):
        yard.checkpoint(step, trust=trust, rank_bytes=1000)
    return AtOnce(InProcess("", factories.token(factories.user("olga", Role.OPERATOR))))


def test_in_the_end_what_training_saved_is_sealed_the_newest_verified_and_readiness_told(
    story: AtOnce, capsys: pytest.CaptureFixture[str]
) -> None:
    story.take_stock()
    assert story.audits == [("seal", 120), ("seal", 80), ("verify", 120)]
    said = capsys.readouterr().out
    assert "step 120, verified; 0 passed over" in said
    assert "never_drilled: " in said
    story.prove_newest()
    assert len(story.audits) == 3, "what is proven is left alone"


def test_while_the_demo_stays_up_what_cannot_be_proven_now_waits_and_is_told_once(
    story: AtOnce, capsys: pytest.CaptureFixture[str]
) -> None:
    story.fails = "the checkpoint is being removed"
    story.keep_proven()
    story.keep_proven()
    assert capsys.readouterr().out.count("left for later: the checkpoint is being removed") == 1
    story.fails = ""
    story.keep_proven()
    assert story.audits[-1] == ("verify", 120)


def test_a_server_that_gives_no_answer_in_time_is_left_for_later_and_not_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        plane = ControlPlane(f"http://127.0.0.1:{silent.getsockname()[1]}", "token")
        plane.answer_seconds = 0.2
        with pytest.raises(DemoFailure, match="GET /runs got no answer: .*timed out"):
            plane.get("/runs")
