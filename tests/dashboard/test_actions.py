"""What buttons do: through the services, for those whose role reaches, with a sentence when it is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from html import unescape

import pytest
from dashboard.scene import Scene
from django.contrib.messages import get_messages
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from muster_agent.cli.agent import join

from apps.accounts.models import ActivityEntry
from apps.alerts.models import Alert, AlertRule, Channel, Delivery, Silence
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan
from apps.drills.models import Drill, DrillPlan, DrillRules, NodeAction
from apps.fleet.models import Agent, JoinToken
from apps.storage.models import CeilingRun

SignIn = Callable[[str], Client]


CHANNEL = {
    "name": "second", "target": "https://93.184.215.14/hook", "min_severity": "warning", "event_types": "alert.*",
    "enabled": "on",
}  # fmt: skip


def told(answer: HttpResponse) -> str:
    """The messages that the next page will show."""
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))  # type: ignore[attr-defined]


def actions_of(scene: Scene) -> dict[str, tuple[str, dict[str, str]]]:
    """Every POST route with a body that would do something."""
    return {
        "objectives": (f"/runs/{scene.llama.pk}/objectives/", {"rto_objective_seconds": "75"}),
        "audit": (f"/checkpoints/{scene.good.checkpoint_id}/audit/", {"placement": scene.good.pk, "mode": "seal"}),
        "drill": ("/drills/start/", {"run": scene.llama.pk, "kind": "reload", "choice": "latest"}),
        "drills-stop": ("/drills/stop/", {"reason": "maintenance"}),
        "drills-allow": ("/drills/allow/", {}),
        "drill-cancel": (f"/drills/{scene.running.pk}/cancel/", {}),
        "plan-create": (
            "/plans/new/",
            {"run": scene.llama.pk, "name": "weekly", "kind": "reload", "time_zone": "UTC", "missed": "skip"},
        ),
        "plan-start": (f"/plans/{scene.plan.pk}/start/", {}),
        "plan-delete": (f"/plans/{scene.plan.pk}/delete/", {}),
        "scan": (f"/tiers/{scene.nvme.pk}/scan/", {}),
        "tier-measure": (f"/tiers/{scene.nas.pk}/measure/", {}),
        "scan-cancel": (f"/scans/{scene.scans[2].pk}/cancel/", {}),
        "tier-schedule": (
            f"/tiers/{scene.nvme.pk}/",
            {"scan_cron": "0 3 * * *", "scan_time_zone": "UTC", "scanned_by": "agents"},
        ),
        "policy-create": (
            "/policies/new/",
            {
                "name": "second",
                "run": scene.moe.pk,
                "hot_tier": scene.nvme.pk,
                "cold_tier": scene.nas.pk,
                "keep_newest": "4",
                "time_zone": "UTC",
                "proof": "read_back",
                "where": "as_reached",
            },
        ),
        "policy-act": (f"/policies/{scene.policy.pk}/act/", {"plan_only": "0"}),
        "policy-run": (f"/policies/{scene.policy.pk}/run/", {}),
        "policy-delete": (f"/policies/{scene.policy.pk}/delete/", {}),
        "transfer-pause": (f"/transfers/{scene.transfers[0].pk}/pause/", {}),
        "transfer-resume": (f"/transfers/{scene.transfers[1].pk}/resume/", {}),
        "transfer-cancel": (f"/transfers/{scene.transfers[0].pk}/cancel/", {}),
        "audit-cancel": (f"/audits/{scene.running_audit.pk}/cancel/", {}),
        "repair-cancel": (f"/repairs/{scene.repair.pk}/cancel/", {}),
        "audit-policy-create": (
            "/audits/policies/new/",
            {
                "cluster": scene.east.pk,
                "name": "weekly",
                "mode": "full",
                "sample_percent": "10",
                "time_zone": "UTC",
                "missed": "skip",
                "where": "as_scanned",
                "at_once": "1",
            },
        ),
        "audit-policy-run": (f"/audits/policies/{scene.audit_policy.pk}/run/", {}),
        "audit-policy-delete": (f"/audits/policies/{scene.audit_policy.pk}/delete/", {}),
        "alert-rule": (
            f"/alerts/rules/{AlertRule.objects.get(run=scene.llama).pk}/",
            {"severity": "info", "threshold": "2d"},
        ),
        "alert-rule-create": (
            "/alerts/rules/new/?kind=tier_full",
            {"cluster": scene.east.pk, "enabled": "on", "severity": "info", "threshold": "0.8"},
        ),
        "alert-rule-delete": (f"/alerts/rules/{AlertRule.objects.get(run=scene.llama).pk}/delete/", {}),
        "silence-create": ("/alerts/silences/new/", {"cluster": scene.east.pk, "reason": "maintenance", "lasts": "2h"}),
        "silence-end": (f"/alerts/silences/{Silence.objects.get(ended_by='').pk}/end/", {}),
        "channel-create": ("/alerts/channels/new/?kind=webhook", CHANNEL),
        "channel-change": (f"/alerts/channels/{Channel.objects.get(name='fleet-events').pk}/", CHANNEL),
        "channel-rotate": (f"/alerts/channels/{Channel.objects.get(name='fleet-events').pk}/rotate/", {}),
        "channel-drop": (f"/alerts/channels/{Channel.objects.get(name='fleet-events').pk}/drop-old-key/", {}),
        "channel-test": (f"/alerts/channels/{Channel.objects.get(name='fleet-events').pk}/test/", {}),
        "channel-delete": (f"/alerts/channels/{Channel.objects.get(name='old-hook').pk}/delete/", {}),
        "delivery-replay": (f"/alerts/deliveries/{Delivery.objects.get(state='cancelled').pk}/replay/", {}),
        "acknowledge": (f"/alerts/{scene.alert.pk}/acknowledge/", {}),
        "agent": (f"/nodes/{scene.nodes[4].pk}/agent/approve/", {}),
        "join-token": (f"/clusters/{scene.east.pk}/join-token/", {"max_uses": "1", "hours": "1"}),
        "join-token-revoke": (f"/join-tokens/{JoinToken.objects.get().pk}/revoke/", {}),
        "disruption": (f"/clusters/{scene.east.pk}/disruption/", {"allow": "no"}),
        "cluster-cost": (f"/clusters/{scene.east.pk}/cost/", {"gpu_count": "512", "gpu_hour_cost": "2.75"}),
    }


OF_CHANNELS = {"channel-create", "channel-change", "channel-rotate", "channel-drop", "channel-delete"}
ADMIN_ONLY = OF_CHANNELS | {"tier-schedule", "agent", "join-token", "join-token-revoke", "disruption", "cluster-cost"}


def test_a_viewer_is_refused_every_action_and_nothing_changes(scene: Scene, signed_in: SignIn) -> None:
    client, before = signed_in("viewer"), ActivityEntry.objects.count()
    for name, (url, body) in actions_of(scene).items():
        answer = client.post(url, body)
        assert answer.status_code == 403, name
        assert b"needs the role" in answer.content, name
    assert ActivityEntry.objects.count() == before


def test_an_operator_is_refused_what_only_admins_may(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    for name in ADMIN_ONLY:
        url, body = actions_of(scene)[name]
        assert client.post(url, body).status_code == 403, name


def test_a_stranger_finds_nothing_to_act_on(scene: Scene, signed_in: SignIn) -> None:
    client, before = signed_in("stranger"), ActivityEntry.objects.count()
    for name, (url, body) in actions_of(scene).items():
        of_no_cluster = {"drills-stop", "drills-allow", "channel-test", "delivery-replay"} | OF_CHANNELS
        expected = (403, 404) if name in of_no_cluster else (404, 422)
        assert client.post(url, body).status_code in expected, name
    assert ActivityEntry.objects.count() == before


def test_a_visitor_is_asked_to_sign_in_first(scene: Scene) -> None:
    for name, (url, body) in actions_of(scene).items():
        answer = Client().post(url, body)
        assert answer.status_code == 302 and answer["Location"].startswith("/sign-in/"), name


def test_every_action_refuses_a_form_without_its_token(scene: Scene) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(scene.users["admin"])
    for name, (url, body) in actions_of(scene).items():
        assert client.post(url, body).status_code == 403, name


def test_actions_that_are_no_pages_answer_a_get_with_405(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("admin")
    for name in (
        "objectives",
        "audit",
        "plan-start",
        "scan",
        "tier-measure",
        "scan-cancel",
        "audit-cancel",
        "acknowledge",
        "agent",
        "disruption",
        "cluster-cost",
        "drills-allow",
    ):
        assert client.get(actions_of(scene)[name][0]).status_code == 405, name


def test_an_operator_starts_a_drill_and_lands_on_its_page(scene: Scene, signed_in: SignIn) -> None:
    url, body = actions_of(scene)["drill"]
    answer = signed_in("operator").post(url, {**body, "evict": "on", "max_mb_per_second": "500"})
    drill = Drill.objects.get(state="scheduled")
    assert answer["Location"] == f"/drills/{drill.pk}/"
    assert (drill.kind, drill.choice, drill.evict, drill.max_bytes_per_second) == (
        "reload",
        "latest",
        True,
        500_000_000,
    )
    assert drill.requested_by == "olga"


def test_a_bad_field_is_named_beside_the_field_and_starts_nothing(scene: Scene, signed_in: SignIn) -> None:
    before = Drill.objects.count()
    answer = signed_in("operator").post(
        "/drills/start/", {"run": scene.llama.pk, "kind": "herd", "choice": "latest", "ladder": "4, 2"}
    )
    assert answer.status_code == 422
    assert b"ascending" in answer.content
    answer = signed_in("operator").post("/drills/start/", {"run": scene.llama.pk, "kind": "reload", "choice": "named"})
    assert answer.status_code == 422 and b"Name the checkpoint" in answer.content
    assert Drill.objects.count() == before


def test_a_failover_is_previewed_before_it_ends_anything(scene: Scene, signed_in: SignIn) -> None:
    client, before = signed_in("operator"), Drill.objects.count()
    body = {"run": scene.llama.pk, "kind": "failover", "signal_name": "SIGTERM"}
    preview = client.post("/drills/start/", body)
    html = preview.content.decode()
    assert preview.status_code == 200 and Drill.objects.count() == before
    assert "launch-2" in html and "gpu-01" in html and "SIGTERM" in html and "12,480" in html
    confirmed = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html))
    confirmed.pop("csrfmiddlewaretoken", None)
    assert confirmed["confirmed"] == "yes"
    client.post("/drills/start/", confirmed)
    drill = Drill.objects.get(state="scheduled")
    assert (drill.kind, drill.signal_name) == ("failover", "SIGTERM")


def test_a_failover_is_refused_where_the_cluster_does_not_allow_disruption(scene: Scene, signed_in: SignIn) -> None:
    before = Drill.objects.count()
    body = {"run": scene.sft.pk, "kind": "failover", "confirmed": "yes"}
    answer = signed_in("operator").post("/drills/start/", body)
    assert answer.status_code == 403
    assert b"an admin can allow them" in answer.content
    assert Drill.objects.count() == before


def test_cancelling_asks_first_and_then_stops_the_drill(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    url = f"/drills/{scene.running.pk}/cancel/"
    assert b"Cancel Reload of step 12,400 on nvme?" in client.get(url).content
    scene.running.refresh_from_db()
    assert scene.running.cancel_requested_at is None
    client.post(url)
    scene.running.refresh_from_db()
    assert scene.running.cancel_requested_at is not None


def test_cancelling_a_finished_drill_says_that_there_is_nothing_to_cancel(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("operator").post(f"/drills/{scene.failed.pk}/cancel/")
    assert answer.status_code == 302
    assert "already finished" in told(answer)


def test_a_verify_before_any_seal_is_refused_with_what_to_do(scene: Scene, signed_in: SignIn) -> None:
    before = Audit.objects.count()
    answer = signed_in("operator").post(
        f"/checkpoints/{scene.damaged.checkpoint_id}/audit/", {"placement": scene.damaged.pk, "mode": "verify"}
    )
    assert answer.status_code == 302 and "seal" in told(answer).lower()
    assert Audit.objects.count() == before


def test_an_audit_of_a_copy_of_another_checkpoint_is_refused(scene: Scene, signed_in: SignIn) -> None:
    before = Audit.objects.count()
    answer = signed_in("operator").post(
        f"/checkpoints/{scene.good.checkpoint_id}/audit/", {"placement": scene.damaged.pk, "mode": "seal"}
    )
    assert "Choose one of this checkpoint's copies" in told(answer)
    assert Audit.objects.count() == before


def test_measuring_a_tier_goes_to_an_agent_and_is_seen_on_its_page(scene: Scene, signed_in: SignIn) -> None:
    browser = signed_in("operator")
    answer = browser.post(f"/tiers/{scene.nas.pk}/measure/")
    run = CeilingRun.objects.get()
    assert answer["Location"] == f"/tiers/{scene.nas.pk}/" and run.agent is not None
    assert "half a minute" in told(answer)
    html = browser.get(f"/tiers/{scene.nas.pk}/").content.decode()
    assert f"{run.agent.node.name} is measuring it" in html and "Measure now" not in html
    assert "Measure now" in browser.get(f"/tiers/{scene.nvme.pk}/").content.decode()


def test_a_scan_goes_to_an_agent_that_reaches_the_tier(scene: Scene, signed_in: SignIn) -> None:
    answer = signed_in("operator").post(f"/tiers/{scene.nas.pk}/scan/")
    scan = InventoryScan.objects.get(state="queued")
    assert answer["Location"] == f"/scans/{scan.pk}/" and scan.root == scene.nas.uri and scan.agent is not None
    assert scan.agent.node.name in told(answer)


def test_a_plan_shows_its_next_five_times_and_keeps_what_was_saved(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    body = {
        "run": scene.llama.pk,
        "name": "every hour",
        "cron": "0 * * * *",
        "time_zone": "Europe/Berlin",
        "missed": "run_once",
        "enabled": "on",
        "kind": "herd",
        "choice": "latest_verified",
        "ladder": "1 2 4",
    }
    answer = client.post("/plans/new/", body)
    plan = DrillPlan.objects.get(name="every hour")
    assert answer["Location"] == f"/plans/{plan.pk}/" and "fires next" in told(answer)
    assert plan.ladder == [1, 2, 4] and plan.next_at is not None
    html = client.get(f"/plans/{plan.pk}/").content.decode()
    assert len(re.findall(r"<li><time[^>]*>\w{3} \d{4}-\d\d-\d\d \d\d:00 UTC</time></li>", html)) == 5
    client.post(f"/plans/{plan.pk}/", {**body, "name": "every second hour", "cron": "0 */2 * * *", "enabled": ""})
    plan.refresh_from_db()
    assert (plan.name, plan.enabled, plan.next_at) == ("every second hour", False, None)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("cron", "every night", "five fields"),
        ("cron", "99 * * * *", "is not a schedule"),
        ("time_zone", "Mars/Olympus", "no time zone"),
        ("name", "nightly herd", "already has a plan named"),
    ],
)
def test_a_plan_with_a_bad_field_is_refused_beside_the_field(
    scene: Scene, signed_in: SignIn, field: str, value: str, sentence: str
) -> None:
    body = {"run": scene.llama.pk, "name": "new", "kind": "reload", "time_zone": "UTC", "missed": "skip", field: value}
    answer = signed_in("operator").post("/plans/new/", body)
    assert answer.status_code == 422
    assert sentence in answer.content.decode()
    assert DrillPlan.objects.count() == 1


def test_deleting_a_plan_keeps_its_drills(scene: Scene, signed_in: SignIn) -> None:
    before = Drill.objects.count()
    signed_in("operator").post(f"/plans/{scene.plan.pk}/delete/")
    assert not DrillPlan.objects.exists() and Drill.objects.count() == before


def test_objectives_are_saved_and_a_bad_one_is_refused_with_a_sentence(scene: Scene, signed_in: SignIn) -> None:
    client, url = signed_in("operator"), f"/runs/{scene.llama.pk}/objectives/"
    client.post(url, {"rto_objective_seconds": "75.5", "rpo_objective_seconds": "", "gpu_count": "64"})
    scene.llama.refresh_from_db()
    assert (scene.llama.rto_objective_seconds, scene.llama.rpo_objective_seconds) == (75.5, None)
    assert scene.llama.required_trust == "complete", "what a form does not say stays"
    client.post(url, {"rto_objective_seconds": "75.5", "required_trust": "sealed"})
    scene.llama.refresh_from_db()
    assert scene.llama.required_trust == "sealed"
    answer = client.post(url, {"rto_objective_seconds": "-3"})
    assert "rto_objective_seconds" in told(answer)
    scene.llama.refresh_from_db()
    assert scene.llama.rto_objective_seconds == 75.5


def test_acknowledging_returns_to_the_filtered_list_and_never_to_another_host(scene: Scene, signed_in: SignIn) -> None:
    client, url = signed_in("operator"), f"/alerts/{scene.alert.pk}/acknowledge/"
    answer = client.post(url, {"next": "/alerts/?state=open"})
    assert answer["Location"] == "/alerts/?state=open"
    scene.alert.refresh_from_db()
    assert (scene.alert.state, scene.alert.acknowledged_by) == (Alert.State.ACKNOWLEDGED, "olga")
    assert client.post(url, {"next": "https://evil.example/"})["Location"] == "/alerts/"


def test_a_join_token_is_shown_once_with_the_exact_command(scene: Scene, signed_in: SignIn) -> None:
    client, url = signed_in("admin"), f"/clusters/{scene.east.pk}/join-token/"
    answer = client.post(url, {"max_uses": "1", "hours": "2", "cidr": "10.0.0.0/8"})
    html = answer.content.decode()
    command = re.search(r'<code id="join-command">(.*?)</code>', html)
    assert command is not None
    words = shlex.split(unescape(command.group(1)))
    secret = words[0].removeprefix("MUSTER_JOIN_TOKEN=")
    assert (
        secret.startswith("mjt_")
        and words[1:4] == ["muster", "agent", "join"]
        and words[-4:] == ["&&", "muster", "agent", "run"]
    )
    parsed = join.make_context("join", words[4:-4]).params
    assert parsed["server"] == "http://testserver" and parsed["roots"] == (scene.nvme.uri, scene.nas.uri)
    assert answer["Cache-Control"] == "no-store"
    assert secret not in client.get(url).content.decode()
    refused = client.post(url, {"max_uses": "1", "hours": "2", "cidr": "everywhere"})
    assert refused.status_code == 422 and b"is no network" in refused.content


def test_an_admin_approves_drains_and_revokes_an_agent(scene: Scene, signed_in: SignIn) -> None:
    client, node = signed_in("admin"), scene.nodes[4]
    for verb, state in (("approve", Agent.State.ONLINE), ("revoke", Agent.State.REVOKED)):
        client.post(f"/nodes/{node.pk}/agent/{verb}/")
        assert Agent.objects.get(node=node).state == state
    client.post(f"/nodes/{scene.nodes[0].pk}/agent/drain/")
    assert Agent.objects.get(node=scene.nodes[0]).drain_requested_at is not None
    assert client.post(f"/nodes/{node.pk}/agent/dance/").status_code == 404


def test_disruption_is_allowed_and_forbidden_by_an_admin(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("admin")
    for allow, expected in (("no", False), ("yes", True)):
        client.post(f"/clusters/{scene.east.pk}/disruption/", {"allow": allow})
        scene.east.refresh_from_db()
        assert scene.east.allows_disruption is expected


def test_an_admin_gives_the_price_of_a_gpu_hour_and_a_bad_one_changes_nothing(scene: Scene, signed_in: SignIn) -> None:
    client, url = signed_in("admin"), f"/clusters/{scene.lab.pk}/cost/"
    client.post(url, {"gpu_count": "64", "gpu_hour_cost": "1.9"})
    scene.lab.refresh_from_db()
    assert (scene.lab.gpu_count, float(scene.lab.gpu_hour_cost)) == (64, 1.9)
    answer = client.post(url, {"gpu_count": "64", "gpu_hour_cost": "cheap"}, follow=True)
    assert b"Cost of a GPU-hour: Enter a number." in answer.content
    client.post(url, {"gpu_count": "", "gpu_hour_cost": ""})
    scene.lab.refresh_from_db()
    assert (scene.lab.gpu_count, scene.lab.gpu_hour_cost) == (None, None)


def test_the_switch_stops_every_drill_says_why_and_is_taken_back(scene: Scene, signed_in: SignIn) -> None:
    operator = signed_in("operator")
    assert b"Stop all drills?" in operator.get("/drills/stop/").content
    operator.post("/drills/stop/", {"reason": "the storage is being moved"})
    scene.running.refresh_from_db()
    assert scene.running.cancel_requested_at is not None
    html = signed_in("viewer").get("/drills/").content.decode()
    assert "stopped by olga: the storage is being moved" in html and "/drills/allow/" not in html
    refused = operator.post("/drills/start/", {"run": scene.llama.pk, "kind": "reload", "choice": "latest"})
    assert refused.status_code == 422 and b"All drills were stopped" in refused.content
    operator.post("/drills/allow/")
    assert "stopped by" not in operator.get("/drills/").content.decode()


def test_an_admin_sets_when_a_tier_is_scanned_and_is_told_of_a_bad_schedule(scene: Scene, signed_in: SignIn) -> None:
    url, body = actions_of(scene)["tier-schedule"]
    admin = signed_in("admin")
    answer = admin.post(url, {**body, "scan_time_zone": "Europe/Berlin"})
    assert answer["Location"] == url and "is scanned next at" in told(answer)
    page = admin.get(url).content.decode()
    assert "<code>0 3 * * *</code> in Europe/Berlin" in page and page.count("UTC</time>") >= 5
    refused = admin.post(url, {**body, "scan_cron": "whenever"})
    assert refused.status_code == 422 and "five fields" in refused.content.decode()
    scene.nvme.refresh_from_db()
    assert scene.nvme.scan_cron == "0 3 * * *"
    admin.post(url, {**body, "scan_cron": ""})
    scene.nvme.refresh_from_db()
    assert scene.nvme.next_scan_at is None


def test_an_operator_says_that_what_a_doubted_scan_did_not_find_is_gone(scene: Scene, signed_in: SignIn) -> None:
    client = signed_in("operator")
    page = client.get(f"/tiers/{scene.nas.pk}/").content.decode()
    assert "7 copies that were not found stay" in page and "They are gone" in page
    client.post(f"/tiers/{scene.nas.pk}/scan/", {"accepts_loss": "1"})
    assert InventoryScan.objects.get(state="queued").accepts_loss


def test_an_operator_stops_a_running_scan(scene: Scene, signed_in: SignIn) -> None:
    running = scene.scans[2]
    page = signed_in("operator").get(f"/scans/{running.pk}/").content.decode()
    assert "91,000 <small>45,500 a second</small>" in page and "<dt>folders left to list</dt><dd>9</dd>" in page
    signed_in("operator").post(f"/scans/{running.pk}/cancel/")
    running.refresh_from_db()
    assert running.state == "cancelled"


def test_a_preview_of_a_drill_tells_what_it_would_do_and_starts_nothing(scene: Scene, signed_in: SignIn) -> None:
    before = Drill.objects.count()
    body = {"run": scene.llama.pk, "kind": "reload", "choice": "latest", "preview": "yes"}
    html = signed_in("operator").post("/drills/start/", body).content.decode()
    assert "What it would do" in html and "Disrupts a job" in html
    assert Drill.objects.count() == before


def test_rules_are_saved_by_admins_and_a_bad_window_is_told_at_its_field(scene: Scene, signed_in: SignIn) -> None:
    url = f"/clusters/{scene.east.pk}/rules/"
    body = {"windows": "mon-fri 09:00-17:00\nsat 08:00-12:00", "time_zone": "Europe/Berlin", "breaker_failures": "3"}
    body |= {"needs_approval": "on", "max_tier_percent": "25", "protected_runs": scene.llama.name}
    assert signed_in("operator").post(url, body).status_code == 403
    assert signed_in("admin").post(url, body).status_code == 302
    rules = DrillRules.objects.get(cluster=scene.east)
    assert (rules.windows, rules.max_tier_ratio) == (["mon-fri 09:00-17:00", "sat 08:00-12:00"], 0.25)
    assert list(rules.protected_runs.all()) == [scene.llama]
    refused = signed_in("admin").post(url, {**body, "windows": "noon"})
    assert refused.status_code == 422 and b"is no window" in refused.content


def test_only_somebody_else_is_offered_to_approve_a_waiting_failover(scene: Scene, signed_in: SignIn) -> None:
    DrillRules.objects.create(cluster=scene.east, needs_approval=True)
    now = timezone.now()
    drill = Drill.objects.create(
        cluster=scene.east, run=scene.llama, kind="failover", requested_by="olga", created_at=now, next_attempt_at=now
    )
    assert b"/approve/" not in signed_in("operator").get(f"/drills/{drill.pk}/").content
    admin = signed_in("admin")
    assert b"/approve/" in admin.get(f"/drills/{drill.pk}/").content
    assert admin.post(f"/drills/{drill.pk}/approve/").status_code == 302
    drill.refresh_from_db()
    assert drill.approved_by == "ada"


def test_a_node_is_parked_after_a_question_and_a_refusal_is_told_there(scene: Scene, signed_in: SignIn) -> None:
    url = f"/clusters/{scene.east.pk}/nodes/gpu-1/park/"
    asked = signed_in("operator").get(url).content.decode()
    assert "Park gpu-1 as a spare?" in asked and "Runs there now" in asked
    assert signed_in("viewer").post(url).status_code == 403
    before = NodeAction.objects.count()
    assert signed_in("operator").post(url).status_code == 302
    assert NodeAction.objects.count() == before + 1
    action = NodeAction.objects.order_by("-created_at")[0]
    assert (action.node_name, action.what, action.requested_by) == ("gpu-1", "park", scene.users["operator"].username)
    again = signed_in("operator").post(url)
    assert again.status_code == 409 and b"at work on gpu-1 already" in again.content
    page = signed_in("viewer").get(f"/clusters/{scene.east.pk}/").content.decode()
    assert "Parked and brought back" in page and "Asked for" in page
    assert signed_in("operator").get(f"/clusters/{scene.east.pk}/nodes/gpu-77/park/").status_code == 404


def test_a_standby_drill_is_previewed_with_its_node_and_its_spare(scene: Scene, signed_in: SignIn) -> None:
    body = {"run": scene.llama.pk, "kind": "standby"}
    html = signed_in("operator").post("/drills/start/", body).content.decode()
    assert "Put a spare in on" in html
    assert "Would begin" in html
