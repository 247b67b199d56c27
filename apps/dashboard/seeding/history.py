"""What was done: drills of plans, audits, scans, transfers, launches and their ends, alerts, and who asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from apps.accounts import activity
from apps.accounts.models import ActivityEntry
from apps.alerts.models import Alert
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan, Placement, RunAttempt, ScanChange, StepReport
from apps.core.models import Transition
from apps.dashboard.seeding.size import WHO, Size, batches, create
from apps.dashboard.seeding.storage import Ground
from apps.drills.models import Drill, DrillPlan, DrillRung, PlanOccurrence, RankResult
from apps.recovery.models import Incident, Recovery
from apps.transfers.models import Transfer

BETWEEN = timedelta(minutes=13)
CLIENTS = 4
_OUTCOMES = (("passed", 90), ("failed", 4), ("cancelled", 3), ("skipped", 2), ("lost", 1))
_STATES = ("scheduled", "preparing", "running", "validating", "finished")


def drills(size: Size, on: Ground, copies: Sequence[Placement], now: datetime, random: Random) -> None:
    """Each plan's due times with their drills, and what each client of these measured."""
    plans: list[DrillPlan] = create(
        DrillPlan,
        (
            DrillPlan(
                run=run,
                name="seeded-nightly",
                kind="reload",
                cron="0 3 * * *",
                enabled=False,
                created_by=WHO,
                created_at=now,
            )
            for run in on.runs
        ),
    )
    made: list[Drill] = create(
        Drill, (_drill(number, plans, size, copies, now, random) for number in range(size.drills))
    )
    create(
        PlanOccurrence,
        (
            PlanOccurrence(plan=drill.plan, planned_at=drill.created_at, drill=drill, created_at=drill.created_at)
            for drill in made
        ),
    )
    create(Transition, _transitions(made))
    measured = [drill for drill in made if drill.outcome == "passed"]
    rungs = create(DrillRung, (_rung(drill) for drill in measured))
    create(RankResult, _results(rungs, on, random))


def _drill(
    number: int, plans: Sequence[DrillPlan], size: Size, copies: Sequence[Placement], now: datetime, random: Random
) -> Drill:
    plan = plans[number % len(plans)]
    copy = copies[(number % len(plans)) * size.steps + number // len(plans) % size.steps]
    at = now - BETWEEN * number
    outcome = random.choices([word for word, _weight in _OUTCOMES], [weight for _word, weight in _OUTCOMES])[0]
    seconds = random.lognormvariate(4.6, 0.5) if outcome == "passed" else None
    late = seconds is not None and seconds > 300
    return Drill(
        kind=random.choices(("reload", "herd", "failover"), (80, 15, 5))[0],
        cluster_id=plan.run.cluster_id,
        run=plan.run,
        plan=plan,
        placement=copy,
        tier_id=copy.tier_id,
        state="finished",
        outcome=outcome,
        objective_seconds=300.0,
        objective_state="none" if seconds is None else "breached" if late else "met",
        reason="" if outcome == "passed" else "made up by seed_fleet",
        checkpoint_step=copy.checkpoint.step,
        total_bytes=copy.total_bytes if seconds else None,
        seconds=seconds,
        bytes_per_second=copy.total_bytes / seconds if seconds else None,
        phases=_phases(seconds) if seconds else {},
        cached_ratio_before=0.0 if seconds else None,
        requested_by=WHO,
        created_at=at,
        started_at=at + timedelta(seconds=2),
        finished_at=at + timedelta(seconds=(seconds or 1) + 4),
    )


def _phases(seconds: float) -> dict[str, float]:
    shares = {"resolve": 0.02, "allocate": 0.04, "read": 0.7, "verify": 0.1, "materialize": 0.14}
    return {phase: seconds * share for phase, share in shares.items()}


def _transitions(made: Sequence[Drill]) -> Iterator[Transition]:
    for drill in made:
        before = ""
        for order, state in enumerate(_STATES):
            yield Transition(
                owner_kind="drill",
                owner_id=drill.pk,
                old=before,
                new=state,
                at=drill.created_at + timedelta(seconds=order),
                processed_at=drill.finished_at,
            )
            before = state


def _rung(drill: Drill) -> DrillRung:
    return DrillRung(
        drill=drill,
        order=0,
        client_count=CLIENTS,
        placement=drill.placement,
        seconds=drill.seconds,
        total_bytes=drill.total_bytes,
        bytes_per_second=drill.bytes_per_second,
        jain_index=0.98,
        started_at=drill.started_at,
        finished_at=drill.finished_at,
    )


def _results(rungs: Sequence[DrillRung], on: Ground, random: Random) -> Iterator[RankResult]:
    for rung in rungs:
        for rank in range(CLIENTS):
            seconds = (rung.seconds or 1) * (1 - 0.05 * rank)
            share = (rung.total_bytes or 0) // CLIENTS
            yield RankResult(
                rung=rung,
                rank=rank,
                ranks=[rank],
                node=random.choice(on.nodes),
                task_id="",
                outcome="done",
                bytes=share,
                seconds=seconds,
                bytes_per_second=share / seconds,
                started_at=rung.started_at,
                phases=_phases(seconds),
                requested="auto",
                effective="host_direct",
                cache_state="cold",
                cached_ratio_before=0.0,
            )


def audits(copies: Sequence[Placement], now: datetime, random: Random) -> None:
    """One of every second copy."""
    create(
        Audit,
        (
            Audit(
                placement=copy,
                mode=random.choice(("seal", "verify")),
                state="finished",
                outcome="damaged" if copy.status == "corrupt" else "passed",
                checked_bytes=copy.total_bytes,
                seconds=copy.total_bytes / 5e9,
                requested_by=WHO,
                created_at=now - timedelta(minutes=7 * number),
                started_at=now - timedelta(minutes=7 * number),
                finished_at=now - timedelta(minutes=7 * number - 1),
            )
            for number, copy in enumerate(copies[::2])
        ),
    )


def scans(on: Ground, copies: Sequence[Placement], now: datetime) -> None:
    """A scan for every hundred copies, which found these."""
    for number, begin in enumerate(range(0, len(copies), 100)):
        tier = on.tiers[on.clusters[number % len(on.clusters)].pk][1]
        at = now - timedelta(hours=number)
        scan = InventoryScan.objects.create(
            tier=tier,
            root=tier.uri,
            state="finished",
            checkpoint_count=100,
            new_count=100,
            requested_by=WHO,
            created_at=at,
            started_at=at,
            finished_at=at + timedelta(seconds=9),
        )
        found = copies[begin : begin + 100]
        create(
            ScanChange,
            (ScanChange(scan=scan, placement=copy, kind="appeared", after={"status": copy.status}) for copy in found),
        )


def transfers(on: Ground, copies: Sequence[Placement], now: datetime) -> None:
    """One of every tenth copy, done."""
    create(
        Transfer,
        (
            Transfer(
                cluster_id=copy.tier.cluster_id,
                checkpoint=copy.checkpoint,
                kind="copy",
                source=copy,
                target_tier=on.tiers[copy.tier.cluster_id][1],
                target_path=f"{copy.path}.copy",
                state="done",
                total_bytes=copy.total_bytes,
                copied_bytes=copy.total_bytes,
                proven_bytes=copy.total_bytes,
                requested_by=WHO,
                created_at=now - timedelta(minutes=11 * number),
                finished_at=now - timedelta(minutes=11 * number - 2),
            )
            for number, copy in enumerate(copies[::10])
        ),
    )


def launches(size: Size, on: Ground, now: datetime, random: Random) -> None:
    """Each run's launches, of which all but the newest ended in an incident."""
    for run in on.runs:
        made: list[RunAttempt] = create(RunAttempt, (_launch(run, back, size, now) for back in range(5)))
        create(StepReport, (step for attempt in made for step in _steps(attempt)))
        ended = [attempt for attempt in made if attempt.ended_at]
        incidents = create(Incident, (_incident(attempt) for attempt in ended))
        create(
            Recovery,
            (
                Recovery(
                    incident=incident,
                    state="resumed",
                    time_to_resume_seconds=random.uniform(60, 400),
                    lost_steps=random.randrange(STEP_SPAN),
                    phases=_phases(100.0),
                    created_at=incident.created_at,
                    closed_at=incident.created_at,
                )
                for incident in incidents
            ),
        )


STEP_SPAN = 50


def _launch(run: Any, back: int, size: Size, now: datetime) -> RunAttempt:
    started = now - timedelta(days=back + 1)
    return RunAttempt(
        run=run,
        launch_id=f"seeded-{back}",
        last_step=500 * size.steps + 20 - back * STEP_SPAN,
        started_at=started,
        ended_at=started + timedelta(hours=23) if back else None,
        last_report_at=started + timedelta(hours=23),
    )


def _steps(attempt: RunAttempt) -> Iterator[StepReport]:
    last = attempt.last_step or STEP_SPAN
    for back in range(STEP_SPAN):
        yield StepReport(
            attempt=attempt, step=last - back, at=attempt.last_report_at - timedelta(seconds=2 * back), loss=2.1
        )


def _incident(attempt: RunAttempt) -> Incident:
    at = attempt.ended_at or attempt.started_at
    return Incident(run=attempt.run, ended_attempt=attempt, fault_at=at, detected_at=at, detail="seeded", created_at=at)


def alerts_and_activity(size: Size, on: Ground, now: datetime, random: Random) -> None:
    create(
        Alert,
        (
            Alert(
                cluster=random.choice(on.clusters),
                rule=random.choice(("damage", "agent_lost", "drill_failed")),
                subject_kind="seeded",
                subject_id=f"seeded-{number}",
                state="open" if number < 40 else "resolved",
                summary=f"Alert {number} made up by seed_fleet.",
                opened_at=now - timedelta(minutes=17 * number),
                resolved_at=None if number < 40 else now,
            )
            for number in range(size.drills // 5)
        ),
    )
    entries = (
        ActivityEntry(
            at=now - timedelta(minutes=number), actor=WHO, action="drill.create", target_kind="drill", target_id="-"
        )
        for number in reversed(range(2 * size.drills))
    )
    for batch in batches(entries):
        activity.append(batch)
