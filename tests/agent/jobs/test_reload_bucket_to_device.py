"""Objects of a bucket into a GPU's memory, on the stand-in for the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.jobs.test_reload_bucket import Stored
from tests.agent.reload.gpu_stand_in import Count, StandIn
from tests.servers.s3 import S3Server


@pytest.fixture
def stored(tmp_path: Path, s3_server: S3Server) -> Stored:
    return Stored(tmp_path, s3_server)


def test_objects_go_through_pinned_memory_to_the_device_and_are_proven_on_the_way(stored: Stored, gpu: StandIn) -> None:
    report = stored.report(device="cuda:0")
    assert (report.effective, report.verified, report.bytes) == ("host_bounce", True, stored.manifest.total_bytes)
    assert report.evidence["into_host"] == "s3" and report.evidence["s3"]["requests"] >= len(stored.shards)
    assert report.evidence["copied_bytes"] == report.bytes and report.evidence["pinned"] is True
    assert sum(report.phases.values()) == pytest.approx(report.seconds)
    assert gpu.count(Count.COPIES) > 0 and gpu.count(Count.UNPINNED_COPIES) == 0


def test_a_device_keeps_the_bytes_of_the_objects(stored: Stored, gpu: StandIn) -> None:
    prepared = stored.prepared(device="cuda:0", resident=True)
    report = prepared.run().report
    assert report.verified is True and prepared.on_device is not None
    assert report.evidence["device_bytes"] == stored.manifest.total_bytes
    prepared.close()


def test_gds_from_a_bucket_is_refused_in_words_and_takes_the_ring(stored: Stored, gpu: StandIn) -> None:
    report = stored.report(backend="gds")
    assert report.effective == "host_bounce" and "gds was asked for, but" in report.reason
    assert "bucket" in report.reason


def test_a_changed_byte_is_found_before_the_device_has_it(stored: Stored, gpu: StandIn) -> None:
    name = max(stored.shards, key=lambda one: (stored.local / one).stat().st_size)
    data = bytearray((stored.local / name).read_bytes())
    data[5 << 20] ^= 1
    stored.server.put(f"run/step-10/{name}", bytes(data))
    report = stored.report(device="cuda:0")
    assert report.verified is not True
    assert name in {found.path for found in report.findings}


def test_a_device_that_is_not_there_leaves_the_objects_in_host_memory(
    stored: Stored,
) -> None:
    report = stored.report(device="cuda:3")
    assert report.effective == "s3" and "cuda:3 was asked for, but" in report.reason
    assert report.verified is True


def test_the_ring_that_was_asked_for_is_not_called_refused(stored: Stored, gpu: StandIn) -> None:
    report = stored.report(backend="host_bounce")
    assert report.effective == "host_bounce" and "was asked for" not in report.reason
