from __future__ import annotations

import factories
import pytest
from django.core.management import CommandError, call_command

from apps.core.errors import Conflict
from apps.drills import services

pytestmark = pytest.mark.django_db


def test_the_switch_works_from_the_command_line() -> None:
    run = factories.run(factories.cluster())
    drill = services.create_drill(run=run, spec={"kind": "reload"}, actor="olga")
    call_command("drills", "stop", reason="maintenance")
    drill.refresh_from_db()
    assert drill.outcome == "cancelled"
    with pytest.raises(Conflict, match="maintenance"):
        services.create_drill(run=run, spec={"kind": "reload"}, actor="olga")
    call_command("drills", "allow")
    assert services.create_drill(run=run, spec={"kind": "reload"}, actor="olga").pk


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("drills", "pause")
