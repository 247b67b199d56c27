"""Reading objects by ranges, from a store that does everything wrong that stores do."""

from __future__ import annotations

import errno
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from muster_agent.reload.buffers import BufferRing
from muster_agent.storage import s3_source, s3_wire
from muster_agent.storage.s3_answers import ObjectPin, bare
from muster_agent.storage.s3_source import S3Reads, S3Shard
from muster_agent.storage.s3_urls import GivenUrls

from tests.agent.storage.scripted_store import ETAG, Answer, Asked, Script, ScriptedStore, end, refusal, reset

DATA = random.Random(7).randbytes(300_000)
BLOCK_BYTES = 64 * 1024


@pytest.fixture
def store() -> Iterator[ScriptedStore]:
    with ScriptedStore(DATA) as running:
        yield running


def reads_of(*stores: ScriptedStore) -> S3Reads:
    return S3Reads(GivenUrls({"a": [f"{one.url}/b/a?sig=s" for one in stores]}), first_wait_seconds=0.005)


def opened(reads: S3Reads, etag: str = ETAG) -> S3Shard:
    return reads.open("a", ObjectPin(len(DATA), bare(etag)), 0)


def read_all(shard: S3Shard) -> bytes:
    ring = BufferRing(1, BLOCK_BYTES)
    with ring.lend() as buffer:
        pieces = [
            bytes(buffer[: shard.read_into(buffer, offset, BLOCK_BYTES)])
            for offset in range(0, shard.size_bytes + 1, BLOCK_BYTES)
        ]
    ring.close()
    return b"".join(pieces)


def once(script: Script, otherwise: ScriptedStore, number: int = 1) -> Script:
    """The answer of `script` to request `number`; a good one to every other."""
    return lambda asked: script(asked) if asked.number == number else otherwise.good(asked)


def test_every_byte_comes_over_one_connection(store: ScriptedStore) -> None:
    reads = reads_of(store)
    assert read_all(opened(reads)) == DATA
    told = reads.evidence()
    assert (told["requests"], told["connections"], told["retries"]) == (5, 1, {})
    assert told["addresses"] == ["127.0.0.1"] and told["endpoints"] == [store.url]
    assert told["first_byte_seconds"] > 0 and told["signed_by"] == "control_plane"
    assert "sig=" not in str(told)
    assert store.asked[0].headers["if-match"] == ETAG and store.asked[0].target == "/b/a?sig=s"


def test_each_reader_has_a_connection_of_its_own(store: ScriptedStore) -> None:
    reads = reads_of(store)
    shard, together = opened(reads), threading.Barrier(4)

    def read() -> bytes:
        together.wait()
        return read_all(shard)

    with ThreadPoolExecutor(4) as pool:
        assert all(data == DATA for data in pool.map(lambda _: read(), range(4)))
    assert reads.evidence()["connections"] == 4


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda _s, _a: refusal(503, "SlowDown", Retry_After="0"), "503 SlowDown"),
        (lambda _s, _a: refusal(500, "InternalError"), "500"),
        (lambda _s, _a: refusal(429, "TooManyRequests"), "429"),
        (lambda _s, _a: refusal(400, "RequestTimeout"), "400"),
    ],
)
def test_what_may_pass_is_asked_for_again(store: ScriptedStore, fault: object, kind: str) -> None:
    store.script = once(lambda asked: fault(store, asked), store)  # type: ignore[operator]
    reads = reads_of(store)
    assert read_all(opened(reads)) == DATA
    assert reads.evidence()["retries"] == {kind: 1}


@pytest.mark.parametrize("ending", [end, reset])
def test_a_cut_body_goes_on_where_it_ended(store: ScriptedStore, ending: object) -> None:
    def cut(asked: Asked) -> Answer:
        answer = store.good(asked)
        answer.body, answer.then = answer.body[:40_000], ending  # type: ignore[assignment]
        return answer

    store.script = once(cut, store)
    reads = reads_of(store)
    assert read_all(opened(reads)) == DATA
    assert sum(reads.evidence()["retries"].values()) == 1
    if ending is end:
        assert store.asked[2].range == (BLOCK_BYTES + 40_000, 2 * BLOCK_BYTES - 1)


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_without_a_wait(store: ScriptedStore) -> None:
    def last(asked: Asked) -> Answer:
        answer = store.good(asked)
        answer.then = end
        return answer

    store.script = once(last, store)
    reads = reads_of(store)
    assert read_all(opened(reads)) == DATA
    assert reads.evidence()["retries"] == {} and reads.evidence()["connections"] == 2


@pytest.mark.parametrize("off", [-100, 100])
def test_an_answer_of_another_length_is_not_taken(store: ScriptedStore, off: int) -> None:
    def wrong(asked: Asked) -> Answer:
        answer = store.good(asked)
        answer.headers["Content-Length"] = str(len(answer.body) + off)
        return answer

    store.script = once(wrong, store)
    reads = reads_of(store)
    assert read_all(opened(reads)) == DATA
    assert reads.evidence()["retries"] == {"wrong length": 1}


def test_another_range_than_asked_for_is_never_taken(store: ScriptedStore) -> None:
    def wrong(asked: Asked) -> Answer:
        first, last = asked.range or (0, 0)
        return store.good(Asked(asked.number, asked.target, {"range": f"bytes={first + 4096}-{last + 4096}"}))

    store.script = wrong
    with pytest.raises(OSError, match="of another length"):
        read_all(opened(reads_of(store)))


def test_a_store_without_ranges_is_refused_in_words(store: ScriptedStore) -> None:
    store.script = lambda _asked: Answer(200, {"ETag": ETAG, "Content-Length": str(len(DATA))}, DATA)
    with pytest.raises(OSError, match="does not read ranges"):
        read_all(opened(reads_of(store)))
    assert len(store.asked) == 1


def test_a_right_range_under_the_wrong_status_is_taken(store: ScriptedStore) -> None:
    def called_200(asked: Asked) -> Answer:
        answer = store.good(asked)
        answer.status = 200
        return answer

    store.script = called_200
    assert read_all(opened(reads_of(store))) == DATA


@pytest.mark.parametrize("etag", [ETAG, ""])
def test_an_object_that_is_written_again_is_told_and_never_mixed(store: ScriptedStore, etag: str) -> None:
    newer = bytes(len(DATA))
    store.script = lambda asked: store.good(asked) if asked.number < 2 else store.good(asked, newer, '"second"')
    shard = opened(reads_of(store), etag)
    with pytest.raises(OSError, match="written again") as told:
        read_all(shard)
    assert told.value.errno == errno.ESTALE


def test_a_store_that_does_not_heed_if_match_is_caught_by_its_own_etag(store: ScriptedStore) -> None:
    def heedless(asked: Asked) -> Answer:
        asked.headers.pop("if-match", None)
        return store.good(asked, bytes(len(DATA)), '"second"') if asked.number else store.good(asked)

    store.script = heedless
    with pytest.raises(OSError, match="written again"):
        read_all(opened(reads_of(store)))


def test_a_cut_body_is_not_finished_with_another_objects_bytes(store: ScriptedStore) -> None:
    def script(asked: Asked) -> Answer:
        if asked.number:
            return store.good(asked, bytes(len(DATA)), '"second"')
        answer = store.good(asked)
        answer.body, answer.then = answer.body[:1000], end
        return answer

    store.script = script
    with pytest.raises(OSError, match="written again"):
        read_all(opened(reads_of(store), etag=""))


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (refusal(404, "NoSuchKey"), FileNotFoundError, "does not have it"),
        (refusal(403, "AccessDenied"), PermissionError, "AccessDenied"),
        (refusal(403, "AccessDenied", "Request has expired"), PermissionError, "Request has expired"),
        (refusal(403, "InvalidObjectState"), OSError, "archive class"),
        (refusal(416, "InvalidRange"), OSError, "written again"),
        (refusal(301, "PermanentRedirect", Location="http://169.254.169.254/?x=secret"), OSError, "not followed"),
        (refusal(307, "TemporaryRedirect", Location="http://elsewhere.test/"), OSError, "not followed"),
        (refusal(400, "InvalidRequest"), OSError, "400 InvalidRequest"),
    ],
)
def test_what_will_not_pass_is_told_at_once(
    store: ScriptedStore, answer: Answer, kind: type[OSError], words: str
) -> None:
    store.script = lambda _asked: answer
    with pytest.raises(kind, match=words) as told:
        read_all(opened(reads_of(store)))
    assert len(store.asked) == 1 and "secret" not in str(told.value)


def test_a_storm_of_503_ends_after_some_attempts_and_names_the_store(store: ScriptedStore) -> None:
    store.script = lambda _asked: refusal(503, "SlowDown")
    reads = reads_of(store)
    with pytest.raises(OSError, match=rf"503 SlowDown, 8 times in .* from {store.url}"):
        read_all(opened(reads))
    assert reads.evidence()["retries"] == {"503 SlowDown": 7}


def test_an_endpoint_that_is_down_is_left_out_and_named(store: ScriptedStore) -> None:
    with ScriptedStore(DATA) as down:
        pass
    reads = reads_of(down, store)
    assert read_all(opened(reads)) == DATA
    assert list(reads.evidence()["endpoints_left_out"]) == [down.url]
    assert "no connection" in reads.evidence()["endpoints_left_out"][down.url]


def test_readers_spread_over_the_endpoints(store: ScriptedStore) -> None:
    with ScriptedStore(DATA) as other:
        shard = opened(reads_of(store, other))
        together = threading.Barrier(4)

        def read(_number: int) -> bytes:
            together.wait()
            return read_all(shard)

        with ThreadPoolExecutor(4) as pool:
            assert all(data == DATA for data in pool.map(read, range(4)))
        assert (store.connections, other.connections) == (2, 2)


def test_no_endpoint_left_is_an_error_that_names_one() -> None:
    with ScriptedStore(DATA) as down:
        pass
    with pytest.raises(OSError, match=rf"no connection was made.* from {down.url}"):
        read_all(opened(reads_of(down)))


def test_a_silent_store_is_given_up_on_and_asked_elsewhere(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_wire, "SILENCE_SECONDS", 0.1)
    with ScriptedStore(DATA) as hangs:
        hangs.script = lambda asked: Answer(206, {"Content-Length": "0"}, before=lambda: time.sleep(5))
        reads = reads_of(hangs, store)
        assert read_all(opened(reads)) == DATA
    assert reads.evidence()["retries"]["silent"] >= 1


def test_closing_ends_a_read_that_hangs(store: ScriptedStore) -> None:
    began = threading.Event()

    def hang(asked: Asked) -> Answer:
        return Answer(206, {}, before=lambda: (began.set(), time.sleep(30)))

    store.script = hang
    reads = reads_of(store)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_all, opened(reads))
        assert began.wait(5)
        reads.close()
        with pytest.raises(OSError):
            reading.result(5)


def test_closing_ends_a_wait_between_attempts(store: ScriptedStore) -> None:
    store.script = lambda _asked: refusal(503, "SlowDown", Retry_After="8")
    reads = reads_of(store)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_all, opened(reads))
        while not store.asked:
            time.sleep(0.01)
        reads.close()
        with pytest.raises(OSError, match="ended"):
            reading.result(5)


def test_attempts_end_before_the_engine_gives_the_reader_up(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_source, "RANGE_SECONDS", 0.0)
    store.script = lambda _asked: refusal(503, "SlowDown")
    with pytest.raises(OSError, match="1 times"):
        read_all(opened(reads_of(store)))


def test_looking_tells_size_and_etag_without_the_bytes(store: ScriptedStore) -> None:
    pin = reads_of(store).look("a")
    assert (pin.size_bytes, pin.etag) == (len(DATA), bare(ETAG))
    assert store.asked[0].range == (0, 0)


def test_looking_at_an_empty_object(store: ScriptedStore) -> None:
    store.data = b""
    assert reads_of(store).look("a").size_bytes == 0


def test_an_object_without_a_url_is_not_there(store: ScriptedStore) -> None:
    with pytest.raises(FileNotFoundError):
        reads_of(store).look("b")


ODD_NAMES = ["Content-Length", "Content-Range", "ETag", "Transfer-Encoding", "Retry-After"]
ODD_VALUES = ["", "0", "-1", "9" * 30, "9" * 5000, "\xb2", "bytes */0", "bytes 0-1/2", ETAG, "chunked"]


def test_any_answer_at_all_is_an_error_or_the_right_bytes(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers and bodies out of order, in any mixture: never a wrong byte, never a traceback of another kind."""
    monkeypatch.setattr(s3_source, "ATTEMPTS", 2)
    chance = random.Random(int(os.environ.get("MUSTER_FUZZ_SEED", "11")))

    def odd(asked: Asked) -> Answer:
        answer = store.good(asked)
        for _ in range(chance.randrange(3)):
            answer.headers[chance.choice(ODD_NAMES)] = chance.choice(ODD_VALUES)
        answer.status = chance.choice([answer.status] * 6 + [200, 204, 206, 301, 403, 416, 503])
        answer.body = chance.choice([answer.body] * 3 + [b"", answer.body[:7], answer.body + b"x"])
        answer.then = chance.choice([lambda _c: None, end, end, end])
        return answer

    monkeypatch.setattr(s3_wire, "SILENCE_SECONDS", 0.05)
    store.script = odd
    for _ in range(int(os.environ.get("MUSTER_FUZZ_EXAMPLES", "60"))):
        try:
            assert read_all(opened(reads_of(store))) == DATA
        except OSError as error:
            assert error.strerror


def test_a_name_that_nobody_knows_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_arguments: object, **_more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(s3_wire.socket, "getaddrinfo", unknown)
    reads = S3Reads(GivenUrls({"a": ["http://nowhere.invalid/b/a"]}), first_wait_seconds=0.001)
    with pytest.raises(OSError, match="Name or service not known"):
        read_all(opened(reads))
