"""Slurm through its own programs: they carry the site's authentication, and every version has them."""

from __future__ import annotations

import os
import re
import subprocess

from apps.fleet.schedulers import slurm_parsing as parsing
from apps.fleet.schedulers.base import SchedulerError, SchedulerJob, SchedulerNode, Snapshot

ANSWER_SECONDS = 10.0
"""A controller that is down makes its programs wait for minutes."""
REQUEUE_HOLD_CURE = (
    "Slurm holds a requeued job for one second more than AuthInfo's cred_expire (120 s by default); a lower "
    "cred_expire in slurm.conf on all nodes shortens it, and must still cover the longest prolog."
)
_NODE_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Slurm:
    """Asks the Slurm of one `slurm.conf`. Changing nodes needs a Slurm operator or administrator."""

    requeue_hold_cure = REQUEUE_HOLD_CURE

    def __init__(self, configuration: str) -> None:
        self._configuration = configuration
        self._environment = {**os.environ, "SLURM_CONF": configuration}

    def snapshot(self) -> Snapshot:
        return Snapshot(
            nodes=self._nodes(),
            jobs=parsing.parse_jobs(self._run("squeue", "--json")),
            partitions=parsing.parse_partitions(self._run("scontrol", "show", "partition", "-o")),
            version=parsing.parse_version(self._run("scontrol", "--version")),
        )

    def node(self, name: str) -> SchedulerNode:
        found = next((node for node in self._nodes() if node.name == name), None)
        if found is None:
            raise SchedulerError(f"Slurm knows no node {name}.")
        return found

    def job(self, job_id: str) -> SchedulerJob | None:
        jobs = parsing.parse_jobs(self._run("squeue", "--json", "--states=all"))
        return next((job for job in jobs if job.job_id == job_id), None)

    def drain(self, node: str, reason: str) -> None:
        self._update(node, "drain", reason)

    def fail(self, node: str, reason: str) -> None:
        self._update(node, "down", reason)

    def resume(self, node: str) -> None:
        if not self.node(node).usable:  # Slurm refuses to resume a node that is in use
            self._update(node, "resume", "")

    def requeue_hold_seconds(self) -> float | None:
        return parsing.parse_requeue_hold(self._run("scontrol", "show", "config"))

    def _nodes(self) -> tuple[SchedulerNode, ...]:
        # Up to 22.05 scontrol writes no JSON; from 23.02 on sinfo's JSON has groups of nodes instead of nodes.
        listed = self._run("sinfo", "--json")
        return parsing.parse_nodes(
            listed if parsing.lists_nodes(listed) else self._run("scontrol", "show", "nodes", "--json")
        )

    def _update(self, node: str, state: str, reason: str) -> None:
        if not _NODE_NAME.fullmatch(node):
            raise SchedulerError(f"{node!r} is not one node's name.")
        words = [f"nodename={node}", f"state={state}"]
        self._run("scontrol", "update", *words, *([f"reason={reason}"] if reason else []))

    def _run(self, *command: str) -> str:
        if not os.path.isfile(self._configuration):  # its programs would search the network for one, for half a minute
            raise SchedulerError(
                f"{self._configuration} is not a file: set MUSTER_SCHEDULERS to this Slurm's slurm.conf."
            )
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
            )
        except FileNotFoundError as error:
            raise SchedulerError(f"{command[0]} is not installed where Muster's workers run.") from error
        except subprocess.TimeoutExpired as error:
            raise SchedulerError(
                f"{command[0]} did not answer within {ANSWER_SECONDS:.0f} s; see whether slurmctld is up."
            ) from error
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
            raise SchedulerError(f"`{' '.join(command[:3])}` failed: {said}")
        return done.stdout
