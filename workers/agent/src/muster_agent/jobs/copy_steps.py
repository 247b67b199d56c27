"""The steps of a transfer, one at a time: what a Celery worker does in its slices, and an agent in its tasks. Each may
be repeated after a crash, by whoever goes on."""

from __future__ import annotations

from collections.abc import Callable

from muster_agent.formats.base import ShardMap
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy import CopyJob, Save
from muster_agent.jobs.copy_posix import PosixTarget
from muster_agent.jobs.copy_removal import Stores
from muster_agent.jobs.copy_s3 import S3Target
from muster_agent.jobs.copy_source import require_whole
from muster_agent.jobs.copy_target import CopyTarget
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.protocol.copies import CopyCursor, CopyOrder


def job_of(order: CopyOrder, cursor: CopyCursor, stores: Stores, save: Save = lambda: None) -> CopyJob:
    """The copy at work, into a folder or a bucket, from a folder or a bucket."""
    store = stores(order.target, order.target_store)
    target: CopyTarget = S3Target(order, store) if store and is_bucket(order.target) else PosixTarget(order)
    return CopyJob(order, cursor, target, save, store=stores(order.source, order.source_store))


def begin(job: CopyJob, control: JobControl) -> None:
    """Look at both tiers, and list what is to be copied."""
    job.look()
    job.survey(control.check)
    failpoint("copy.surveyed")


def copy(job: CopyJob, control: JobControl) -> None:
    """Bring the bytes over."""
    job.look()
    job.copy(control)


def prove(job: CopyJob, control: JobControl) -> None:
    """Prove what was brought over."""
    job.look()
    job.prove(control)


def switch(job: CopyJob, control: JobControl) -> None:
    """Put the copy in its place, where it must read as a complete checkpoint."""
    job.look()
    if not job.is_proven:
        raise CopyTrouble("proof_failed", "the copy is not proven any more")
    job.switch()


def discard(job: CopyJob, control: JobControl) -> None:
    """Remove what an unfinished copy left."""
    job.discard()


STEPS: dict[str, Callable[[CopyJob, JobControl], None]] = {
    "planned": begin,
    "copying": copy,
    "proving": prove,
    "switching": switch,
    "discarding": discard,
}
"""By the state of the transfer."""


def copy_at(order: CopyOrder, stores: Stores) -> ShardMap:
    """How the copy reads in its place. Raises CopyTrouble unless it is complete."""
    return require_whole(order.target, stores(order.target, order.target_store))
