"""What the demo does, step by step, through the REST API and the command line that users have."""

from __future__ import annotations

import json
import os
import subprocess
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from muster_agent.probes import page_cache

from apps.core import units
from deploy.demo.control_plane import ControlPlane, DemoFailure, Document, Refused
from deploy.demo.damage import flip_one_byte
from deploy.demo.nodes import MUSTER, NODE_NAMES, Nodes
from deploy.demo.terminal import Terminal
from deploy.demo.training_job import RUN_NAME, SAVE_EVERY_STEPS, TrainingJob

OBJECTIVE_SECONDS = 30.0
EQUAL_STEPS = 20
DRILL_SECONDS = 120.0
PROOF_SECONDS = 60.0
UNPROVEN = ("nothing_resumable", "not_proven", "stale_proof")


class Story:
    """Each method is one step of the demo and raises `DemoFailure` when it does not give what it should."""

    def __init__(self, control_plane: ControlPlane, terminal: Terminal, job: TrainingJob, nodes: Nodes) -> None:
        self._api = control_plane
        self._terminal = terminal
        self._job = job
        self._nodes = nodes
        self.drills: list[Document] = []
        self._last_problem = ""

    def register(self) -> None:
        self._terminal.step("Register a cluster, a storage tier and four nodes, each with a one-use join token")
        self._cluster = self._api.post("/clusters/", {"name": "demo", "allows_disruption": True})["id"]
        root = self._job.run_folder.parent
        tier = {"cluster": self._cluster, "name": "local", "kind": "local_nvme", "uri": str(root)}
        self._tier = self._api.post("/tiers/", tier)["id"]
        self._nodes.join_and_run(self._api, self._cluster, root)

        def all_online(page: Document) -> bool:
            return len([agent for agent in _agents(page) if agent["state"] == "online"]) == len(NODE_NAMES)

        self._api.wait("Four online agents", "/nodes/", all_online, seconds=30)
        self._terminal.fact(f"{', '.join(NODE_NAMES)} are online and may read {root}")

    def inventory(self, at_least: int) -> None:
        self._terminal.step(f"Inventory the run's folder on an agent, once {at_least} checkpoints are saved")
        self._wait_for_steps(at_least)
        self._scan()
        run = {"rto_objective_seconds": OBJECTIVE_SECONDS, "gpu_count": 4}
        self._api.patch(f"/runs/{RUN_NAME}/", run)
        for placement in self._placements():
            shards = f"{placement['shard_count']} shards, {units.size(placement['total_bytes'])}"
            self._terminal.fact(f"step {placement['step']}: {placement['status']}, {shards}")

    def seal(self) -> None:
        self._terminal.step("Seal them: digests of every 4 MiB, shard and tensor, written beside the data")
        for placement in self._unsealed():
            audit = self._audit(placement, "seal", "passed")
            rate = (audit["checked_bytes"] or 0) / (audit["seconds"] or 1)
            self._terminal.fact(f"step {placement['step']}: sealed at {units.rate(rate)}")

    def audit(self) -> None:
        self._terminal.step("Audit the newest: re-read every byte and compare")
        newest = self._placements()[0]
        audit = self._audit(newest, "verify", "passed")
        chunks = f"{audit['checked_chunks']} of {audit['total_chunks']} chunks"
        self._terminal.fact(f"step {newest['step']}: {chunks} equal, {units.size(audit['checked_bytes'])}")

    def reload_drill(self) -> None:
        self._terminal.step("Reload drill: four agents start together, each reads and verifies its rank's shards")
        drill = self._drill({"run": RUN_NAME, "kind": "reload", "choice": "latest_verified"})
        skew = f"start skew {1000 * (drill['start_skew_seconds'] or 0):.0f} ms"
        self._terminal.fact(f"{drill['outcome']}, {skew}, cached before the first read: {_cached(drill)}")

    def herd_drill(self) -> None:
        self._terminal.step("Herd ladder: 1, 2, then 4 clients at once")
        drill = self._drill({"run": RUN_NAME, "kind": "herd", "choice": "latest_verified", "ladder": [1, 2, 4]})
        self._terminal.fact(f"{drill['outcome']}, cached before the first read: {_cached(drill)}")
        for rung in drill["rungs"]:
            rate = units.rate(rung["bytes_per_second"])
            self._terminal.fact(f"{rung['client_count']} at once: {rate} together, balance {rung['jain_index']:.3f}")

    def damage(self) -> None:
        self._terminal.step("Flip one byte in the newest checkpoint, leaving its size and times as they were")
        newest = self._newest_sealed()
        shard = self._api.items(f"/checkpoints/{newest['checkpoint']}/shards/?limit=10")[-1]["path"]
        flipped = flip_one_byte(Path(newest["path"]), shard)
        self._terminal.fact(f"step {newest['step']}, {flipped.shard}, byte {flipped.offset_bytes}")
        self._audit(newest, "verify", "damaged")
        findings = self._api.items(f"/checkpoints/{newest['checkpoint']}/findings/")
        found = [one for one in findings if one["code"] == "digest_mismatch" and one["path"] == flipped.shard]
        if (
            not found
            or not found[0]["begin_byte"] <= flipped.offset_bytes < found[0]["end_byte"]
            or not found[0]["tensor"]
        ):
            raise DemoFailure(f"The audit did not name shard, byte range and tensor: {json.dumps(findings)}")
        finding = found[0]
        span = f"bytes {finding['begin_byte']} to {finding['end_byte']}"
        self._terminal.fact(f"audit: {finding['path']}, {span}, tensor {finding['tensor']}")
        self.damaged_step = int(newest["step"])

    def decide(self) -> None:
        self._terminal.step("Ask `muster resume-point`, as a launcher would")
        answer = self.resume_point()
        if answer["step"] != self.damaged_step - SAVE_EVERY_STEPS:
            raise DemoFailure(f"The decision is not the step before {self.damaged_step}: {json.dumps(answer)}")
        self.resume_step = int(answer["step"])
        self._terminal.fact(f"resume at step {answer['step']} ({answer['trust']}, from {answer['source']})")
        for skipped in answer["skipped"]:
            self._terminal.fact(f"passed over step {skipped['step']}: {'; '.join(skipped['reasons'])}")

    def failover_drill(self) -> None:
        self._terminal.step("Failover drill: kill the training process and time its way back")
        self._evict(self._job.run_folder / f"step-{self.resume_step}")
        body = {"run": RUN_NAME, "kind": "failover", "objective_seconds": OBJECTIVE_SECONDS}
        drill = self._drill(body)
        if drill["checkpoint_step"] != self.resume_step:
            raise DemoFailure(f"It resumed from step {drill['checkpoint_step']}, not from {self.resume_step}.")
        back = f"training again after {units.duration(drill['seconds'])}"
        self._terminal.fact(f"{drill['outcome']}: {back}, lost {drill['lost_steps']} steps")
        for phase, seconds in drill["phases"].items():
            self._terminal.fact(f"  {phase:<12} {units.duration(seconds)}")
        self._terminal.fact(f"  {'unattributed':<12} {units.duration(drill['unattributed_seconds'])}")

    def compare_losses(self) -> None:
        self._terminal.step(f"Compare the losses since then with those of an unbroken run, for {EQUAL_STEPS} steps")
        deadline = time.monotonic() + 90
        comparison = None
        while comparison is None or comparison.compared_steps < EQUAL_STEPS:
            if time.monotonic() > deadline:
                raise DemoFailure(f"Fewer than {EQUAL_STEPS} steps could be compared after 90 s: {comparison}")
            time.sleep(0.2)
            comparison = self._job.compare_with_reference(self.resume_step)
        if comparison.first_difference is not None:
            step, loss, reference = comparison.first_difference
            raise DemoFailure(f"The losses differ at step {step}: {loss} after the resume, {reference} unbroken.")
        self._terminal.fact(
            f"{comparison.compared_steps} steps after step {self.resume_step} are equal to the last digit"
        )

    def take_stock(self) -> None:
        self._terminal.step("Take stock: seal and verify what the resumed training has saved, and ask how ready it is")
        self._scan()
        deadline = time.monotonic() + PROOF_SECONDS
        while True:
            self.prove_newest()
            [row] = [row for row in self._api.items("/readiness/") if row["run_name"] == RUN_NAME]
            if row["verdict"] not in UNPROVEN or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        answer = row["decision"]
        self._terminal.fact(f"step {answer['step']}, {answer['trust']}; {len(answer['skipped'])} passed over")
        self._terminal.fact(f"{row['verdict']}: {row['sentence']}")
        if row["verdict"] in UNPROVEN:
            raise DemoFailure(f"The newest checkpoints were not proven within {PROOF_SECONDS:.0f} s: {row['sentence']}")

    def prove_newest(self) -> None:
        """Seal whatever was inventoried since, and verify the newest: as a job beside the training would."""
        for placement in self._unsealed():
            self._audit(placement, "seal", "passed")
        newest = next(iter(self._placements()), None)
        if newest is not None and newest["trust"] == "sealed":
            self._audit(newest, "verify", "passed")

    def keep_proven(self) -> None:
        """The same while the demo stays up; what the trainer removed meanwhile, or is being scanned, waits."""
        try:
            self.prove_newest()
        except DemoFailure as problem:
            if str(problem) != self._last_problem:
                self._terminal.fact(f"left for later: {problem}")
            self._last_problem = str(problem)

    def _evict(self, checkpoint: Path) -> None:
        """The trainer is about to read these files: from the disk, as after a real loss, not from memory."""
        files = [str(path) for path in checkpoint.iterdir()]
        page_cache.evict(files)
        self._terminal.fact(f"cached before the trainer reads: {units.percent(page_cache.cached_ratio(files))}")

    def resume_point(self) -> Document:
        command = [MUSTER, "resume-point", str(self._job.run_folder), "--require", "sealed", "--json"]
        done = subprocess.run(command, env=self.client_environment, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise DemoFailure(f"muster resume-point failed: {done.stderr.strip()}")
        answer: Document = json.loads(done.stdout)
        return answer

    client_environment: dict[str, str] = dict(os.environ)

    # -- parts -------------------------------------------------------------------------------------------------------
    def _wait_for_steps(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while len(list(self._job.run_folder.glob("step-*/checkpoint.json"))) < count:
            if time.monotonic() > deadline:
                raise DemoFailure(f"The trainer did not save {count} checkpoints within 120 s.")
            time.sleep(0.2)

    def _newest_sealed(self) -> Document:
        """A checkpoint that was saved just now, sealed: there is time for all that follows before the next save."""
        step = self._job.last_step()
        wanted = (step // SAVE_EVERY_STEPS + 1) * SAVE_EVERY_STEPS
        marker = self._job.run_folder / f"step-{wanted}" / "checkpoint.json"
        deadline = time.monotonic() + 90
        while not marker.exists():
            if time.monotonic() > deadline:
                raise DemoFailure(f"The trainer did not save step {wanted} within 90 s.")
            time.sleep(0.1)
        self._scan()
        for placement in self._unsealed():
            self._audit(placement, "seal", "passed")
        return next(placement for placement in self._placements() if placement["step"] == wanted)

    def _scan(self) -> None:
        scan = self._start_scan()
        done = self._api.wait("The inventory", f"/scans/{scan['id']}/", _ended, seconds=60)
        if done["state"] != "finished":
            raise DemoFailure(f"The inventory ended as {done['state']}: {done['error']}")

    def _start_scan(self) -> Document:
        """One scan of a root runs at a time, and a reported save starts one too: wait for it, since it may have begun
        before what is to be seen was there."""
        deadline = time.monotonic() + 30
        while True:
            try:
                scan: Document = self._api.post("/scans/", {"tier": self._tier})
                return scan
            except Refused as refusal:
                if refusal.status != HTTPStatus.CONFLICT or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _placements(self) -> list[Document]:
        """Complete ones of the run, newest step first."""
        page = self._api.items(f"/placements/?run={RUN_NAME}&status=complete&limit=50")
        return sorted(page, key=lambda placement: -int(placement["step"]))

    def _unsealed(self) -> list[Document]:
        return [placement for placement in self._placements() if placement["trust"] in {"listed", "complete"}]

    def _audit(self, placement: Document, mode: str, expected: str) -> Document:
        audit = self._api.post("/audits/", {"placement": placement["id"], "mode": mode})
        done = self._api.wait("The audit", f"/audits/{audit['id']}/", _ended, seconds=90)
        if done["outcome"] != expected:
            raise DemoFailure(f"{mode} of step {placement['step']} gave {done['outcome']}: {done['reason']}")
        return done

    def _drill(self, body: Document) -> Document:
        drill = self._api.post("/drills/", body)
        done = self._api.wait("The drill", f"/drills/{drill['id']}/", _ended, seconds=DRILL_SECONDS)
        self.drills.append(done)
        if done["outcome"] != "passed":
            raise DemoFailure(f"The {body['kind']} drill {done['outcome']}: {done['reason']}")
        return done


def _agents(page: Document) -> list[Document]:
    return [node["agent"] for node in page["items"] if node["agent"]]


def _ended(document: Document) -> bool:
    return document["state"] in {"finished", "failed", "cancelled"}


def _cached(drill: Document) -> str:
    return units.percent(drill["cached_ratio_before"])


def summary_rows(drills: list[Document]) -> list[list[str]]:
    """One row per drill: bytes, rate, phases, cached share, verdict."""
    return [_summary_row(drill) for drill in drills]


def _summary_row(drill: dict[str, Any]) -> list[str]:
    phases = drill["phases"].items()
    measured = [f"{phase} {units.duration(seconds)}" for phase, seconds in phases if seconds is not None]
    verdict = (
        drill["outcome"]
        if drill["objective_state"] == "none"
        else f"{drill['outcome']}, objective {drill['objective_state']}"
    )
    return [
        drill["kind"],
        str(drill["checkpoint_step"]),
        units.size(drill["total_bytes"]) if drill["total_bytes"] is not None else "-",
        units.rate(drill["bytes_per_second"]) if drill["bytes_per_second"] is not None else "-",
        units.duration(drill["seconds"]),
        _cached(drill) if drill["cached_ratio_before"] is not None else "-",
        verdict,
        ", ".join(measured),
    ]
