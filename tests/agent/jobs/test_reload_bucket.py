"""Reloads of checkpoints in a real bucket, with this node's credentials and with URLs that somebody else signed."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from muster_agent.jobs.reload import PreparedReload, prepare
from muster_agent.jobs.seal import seal
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.phases import STORAGE_PHASES
from muster_agent.protocol.results import ReloadReport
from muster_agent.protocol.wire import GivenObject, ReloadParams
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_urls import NodeSigned

from tests.agent.cancelling import PROMISED_SECONDS, seconds_to_stop
from tests.agent.checkpoint_factory import write_checkpoint
from tests.servers.fault_proxy import Fault, fault_proxy, gets
from tests.servers.s3 import S3Server

RANK_BYTES = 9 * 1024 * 1024 + 487


class Stored:
    """A sealed checkpoint of two ranks in a folder, and its copy in the bucket."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.server = server
        self.local = write_checkpoint(folder, 10, world_size=2, rank_bytes=RANK_BYTES)
        sealed = seal(str(self.local), write_beside=False).manifest
        assert sealed is not None
        self.manifest: Manifest = sealed
        self.place = server.put_folder(self.local, "run/step-10")

    @property
    def shards(self) -> tuple[str, ...]:
        return tuple(shard.path for shard in self.manifest.shards)

    def prepared(self, *endpoint_urls: str, **params: object) -> PreparedReload:
        asked = ReloadParams(path=self.place, **{"shards": (), "manifest": self.manifest, **params})  # type: ignore[arg-type]
        stores = [] if asked.objects else [connect(url) for url in endpoint_urls or (None,)]
        return prepare(asked, stores=stores)

    def report(self, *endpoint_urls: str, **params: object) -> ReloadReport:
        prepared = self.prepared(*endpoint_urls, **params)
        try:
            return prepared.run().report
        finally:
            prepared.close()

    def given(self, *, life_seconds: int = 60, only: str = "") -> dict[str, GivenObject]:
        """What a control plane would sign."""
        urls = NodeSigned([connect(self.server.url)], self.server.bucket, life_seconds=life_seconds)
        return {
            name: GivenObject(urls=(urls.url(f"run/step-10/{only or name}", 0) or "",), mtime_ns=0)
            for name in self.shards
        }


@pytest.fixture
def stored(tmp_path: Path, s3_server: S3Server) -> Stored:
    return Stored(tmp_path, s3_server)


def test_every_byte_is_read_and_verified_and_each_phase_is_told(tmp_path: Path, any_s3_server: S3Server) -> None:
    stored = Stored(tmp_path, any_s3_server)
    report = stored.report()
    assert report.verified is True and not report.findings
    assert (report.effective, report.requested, report.bytes) == ("s3", "auto", stored.manifest.total_bytes)
    assert sum(report.phases.values()) == pytest.approx(report.seconds)
    assert set(report.phases) <= {phase.value for phase in STORAGE_PHASES}
    assert (report.cache_state, report.cached_ratio_before) == ("cold", 0.0)
    assert report.evidence["server_cache"] == "unknown" and report.evidence["file_system"] == "s3"
    costs = report.evidence["s3"]
    assert costs["requests"] >= 2 and costs["first_byte_seconds"] > 0 and costs["signed_by"] == "node"
    assert ("tls" in costs) == any_s3_server.url.startswith("https")
    assert report.cpu_seconds > 0 and any_s3_server.bucket not in str(costs)


def test_two_shares_read_every_byte_once(stored: Stored) -> None:
    shares = [stored.report(share=(part, 2)) for part in range(2)]
    assert sum(report.bytes for report in shares) == stored.manifest.total_bytes
    assert not any(report.findings for report in shares)


def test_one_ranks_shards(stored: Stored) -> None:
    report = stored.report(ranks=(1,))
    assert report.verified is True and RANK_BYTES <= report.bytes < 2 * RANK_BYTES


def test_resident_bytes_are_those_of_the_objects(stored: Stored) -> None:
    prepared = stored.prepared(resident=True)
    report = prepared.run().report
    assert report.verified is True and prepared.resident is not None
    assert report.evidence["resident_bytes"] == stored.manifest.total_bytes
    assert report.evidence["resident_tensors"] == len(prepared.resident.tensors) > 0
    prepared.close()


def test_a_changed_byte_is_damage_in_its_range(stored: Stored) -> None:
    name = next(name for name in stored.shards if (stored.local / name).stat().st_size >= RANK_BYTES)
    data = bytearray((stored.local / name).read_bytes())
    data[5 * 1024 * 1024] ^= 1
    stored.server.put(f"run/step-10/{name}", bytes(data))
    report = stored.report()
    assert report.verified is not True
    assert [(found.path, found.begin_byte) for found in report.findings if found.begin_byte] == [
        (name, 4 * 1024 * 1024)
    ]


def test_a_shard_that_is_overwritten_while_it_is_read_is_told_and_the_others_finish(stored: Stored) -> None:
    name = stored.shards[-1]
    newer = bytes((stored.local / name).stat().st_size)
    with fault_proxy(stored.server.url) as proxy:
        proxy.add(Fault(gets(name), times=1, before=lambda: stored.server.put(f"run/step-10/{name}", newer)))
        report = stored.report(proxy.url, shards=stored.shards, manifest=None)
    assert [found.path for found in report.findings] == [name] and "written again" in report.findings[0].detail
    assert report.bytes >= stored.manifest.total_bytes - len(newer)


def test_a_shard_that_is_gone_is_missing(stored: Stored) -> None:
    stored.server.delete(f"run/step-10/{stored.shards[-1]}")
    report = stored.report(shards=stored.shards)
    assert report.verified is False
    assert [(found.code, found.path) for found in report.findings] == [("shard_missing", stored.shards[-1])]


def test_readers_spread_over_endpoints_and_a_dead_one_is_named(stored: Stored) -> None:
    with fault_proxy(stored.server.url) as gone:
        pass
    with fault_proxy(stored.server.url) as other:
        report = stored.report(stored.server.url, other.url, gone.url)
        assert any(asked.kind == "get" for asked in other.asked)
    assert report.verified is True
    assert list(report.evidence["s3"]["endpoints_left_out"]) == [gone.url]


def test_another_backend_than_the_bucket_allows_is_told(stored: Stored) -> None:
    report = stored.report(backend="host_direct")
    assert report.effective == "s3" and report.reason.startswith("host_direct was asked for, but")


def test_given_urls_need_no_credentials(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = stored.given()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    prepared = stored.prepared(shards=stored.shards, objects=objects)
    body = prepared.run()
    prepared.close()
    assert body.report.verified is True and body.report.evidence["s3"]["signed_by"] == "control_plane"
    assert body.report.bytes == stored.manifest.total_bytes
    assert "Signature" not in msgspec.json.encode(body).decode()


def test_a_given_time_is_kept_where_the_answer_agrees_with_it(stored: Stored) -> None:
    listed = {one.path: one for one in stored.prepared().place.stat_all(stored.shards)}
    objects = {
        name: msgspec.structs.replace(given, mtime_ns=listed[name].mtime_ns) for name, given in stored.given().items()
    }
    prepared = stored.prepared(shards=stored.shards, objects=objects)
    found = {one.path: one for one in prepared.place.stat_all(stored.shards)}
    prepared.close()
    assert {path: (one.size_bytes, one.mtime_ns) for path, one in found.items()} == {
        path: (one.size_bytes, one.mtime_ns) for path, one in listed.items()
    }


def test_given_urls_that_have_expired_are_refused_in_words(stored: Stored) -> None:
    objects = stored.given(life_seconds=1)
    time.sleep(2.1)
    report = stored.report(shards=stored.shards, objects=objects, manifest=None)
    assert {found.code for found in report.findings} == {"permission_denied"}
    assert "Signature=" not in str(report)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/other/run/step-10/x?X-Amz-Signature=s",
        "http://127.0.0.1:1/{bucket}/run/step-11/x",
        "http://127.0.0.1:1/{bucket}/run/step-10/../step-11/x",
        "http://127.0.0.1:1/{bucket}/run/step-10/%2e%2e/step-11/x",
        "http://{bucket}.s3.test/run/step-11/x",
        "file:///etc/passwd",
    ],
)
def test_a_given_url_of_something_else_is_not_followed(stored: Stored, url: str) -> None:
    name = stored.shards[0]
    objects = {name: GivenObject(urls=(url.replace("{bucket}", stored.server.bucket),))}
    report = stored.report(shards=(name,), objects=objects, manifest=None)
    assert [found.code for found in report.findings] == ["path_unsafe"] and report.bytes == 0


def test_cancelling_takes_a_second_at_most_though_the_store_hangs(stored: Stored) -> None:
    with fault_proxy(stored.server.url) as proxy:
        proxy.add(Fault(gets(), skip=1, wait_seconds=15))
        prepared = stored.prepared(proxy.url, shards=stored.shards)
        assert seconds_to_stop(prepared.run, cancel_after_seconds=0.5) <= PROMISED_SECONDS
