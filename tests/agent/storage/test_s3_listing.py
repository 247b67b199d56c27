from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.object_store import ObjectSeen
from muster_agent.jobs.control import Cancelled
from muster_agent.storage import s3_listing
from muster_agent.storage.s3_listing import list_below, list_in_turn
from muster_agent.storage.s3_pages import Page, parsed

EXAMPLES = int(os.environ.get("MUSTER_FUZZ_EXAMPLES", "60"))
DAY_NS = 1_700_000_000_000_000_000


class Keys:
    """A store of these keys that gives pages of a few; thread-safe."""

    def __init__(self, keys: Sequence[str], page_keys: int, *, starts_after: bool = True) -> None:
        self.keys, self.page_keys, self.starts_after = sorted(keys), page_keys, starts_after
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = self._now = 0
        self.wait_seconds = 0.0
        self._lock = threading.Lock()

    def ask(self, asked: dict[str, Any]) -> Page:
        with self._lock:
            self.requests.append(asked)
            self._now += 1
            self.most_at_once = max(self._now, self.most_at_once)
        time.sleep(self.wait_seconds)
        try:
            return self._page(asked)
        finally:
            with self._lock:
                self._now -= 1

    def _page(self, asked: dict[str, Any]) -> Page:
        after = asked.get("ContinuationToken") or (asked.get("StartAfter", "") if self.starts_after else "")
        entries = list(self._entries(asked["Prefix"], asked.get("Delimiter"), after))
        page = entries[: self.page_keys]
        token = page[-1] if len(entries) > len(page) else None
        objects = [ObjectSeen(one, 1, DAY_NS) for one in page if not asked.get("Delimiter") or not one.endswith("/")]
        return Page(objects, [one for one in page if asked.get("Delimiter") and one.endswith("/")], token, 5.0)

    def _entries(self, prefix: str, delimiter: str | None, after: str) -> Iterator[str]:
        last = ""
        for key in self.keys:
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            entry = prefix + rest.split("/", 1)[0] + "/" if delimiter and "/" in rest else key
            # as the stores do it: a folder counts as long as a key of it comes after
            if entry != last and (key > after) and not (delimiter and entry == after):
                last = entry
                yield entry


NAMES = st.lists(st.sampled_from(["a", "b", "a-", "z", "0"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=EXAMPLES)
@given(keys=st.sets(NAMES, max_size=120), page_keys=st.integers(1, 7), starts_after=st.booleans())
def test_every_key_comes_once_and_in_order_however_the_keys_lie(
    keys: set[str], page_keys: int, starts_after: bool
) -> None:
    keys = {f"p/{key}" for key in keys}
    store = Keys([*keys, "o/x", "q/x"], page_keys, starts_after=starts_after)
    found = list_below(store.ask, {"Prefix": "p/"}, lambda: None)
    assert [one.key for one in found.objects] == sorted(keys)
    assert found.server_unix_seconds == 5.0


def test_a_listing_of_one_page_costs_one_request() -> None:
    store = Keys([f"p/step-{step}/x" for step in range(9)], 10)
    assert len(list_below(store.ask, {"Prefix": "p/"}, lambda: None).objects) == 9
    assert len(store.requests) == 1


def test_many_pages_are_asked_for_at_once_and_few_in_vain() -> None:
    store = Keys(
        [f"p/run-{run:02d}/step-{step:03d}/{file}" for run in range(4) for step in range(50) for file in range(10)], 20
    )
    store.wait_seconds = 0.005
    assert len(list_below(store.ask, {"Prefix": "p/"}, lambda: None).objects) == 2000
    assert store.most_at_once == s3_listing.STREAMS
    assert len(store.requests) < 2 * 100


def test_one_large_folder_among_small_ones_is_divided_too() -> None:
    keys = [f"p/small-{number:02d}/x" for number in range(30)]
    keys += [f"p/a-large/step-{step:04d}/{file}" for step in range(200) for file in range(10)]
    store = Keys(keys, 20)
    store.wait_seconds = 0.005
    list_below(store.ask, {"Prefix": "p/"}, lambda: None)
    assert store.most_at_once == s3_listing.STREAMS


def test_a_folder_without_folders_is_listed_in_turn_and_the_search_for_borders_gets_rarer() -> None:
    store = Keys([f"p/{number:05d}" for number in range(2000)], 10)
    assert len(list_below(store.ask, {"Prefix": "p/"}, lambda: None).objects) == 2000
    assert len(store.requests) < 200 + 12


def test_being_told_to_stop_ends_the_listing() -> None:
    store = Keys([f"p/run-{number:03d}/x" for number in range(2000)], 10)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        list_below(store.ask, {"Prefix": "p/"}, check)
    assert len(store.requests) < 20


def test_a_page_that_cannot_be_had_is_an_error_and_no_shorter_listing() -> None:
    store = Keys([f"p/run-{number:03d}/x" for number in range(2000)], 10)

    def ask(asked: dict[str, Any]) -> Page:
        if len(store.requests) > 30:
            raise OSError(5, "the store answered 503 SlowDown, 6 times")
        return store.ask(asked)

    with pytest.raises(OSError, match="SlowDown"):
        list_below(ask, {"Prefix": "p/"}, lambda: None)


@pytest.mark.parametrize("lister", [list_below, list_in_turn])
def test_a_store_that_goes_in_circles_is_an_error(lister: Any) -> None:
    page = Page([ObjectSeen("p/a", 1, DAY_NS)], [], "again")
    with pytest.raises(OSError, match="not where"):
        lister(lambda _asked: page, {"Prefix": "p/"}, lambda: None)


# -- pages -------------------------------------------------------------------------------------------------------------
HEAD = '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
ONE = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-30T15:15:54.394Z</LastModified>"
    "<ETag>&quot;abc&quot;</ETag><Size>7</Size><StorageClass>{kind}</StorageClass>{more}</Contents>"
)
RESTORED = (
    "<RestoreStatus><IsRestoreInProgress>{}</IsRestoreInProgress>"
    "<RestoreExpiryDate>2099-01-01T00:00:00.000Z</RestoreExpiryDate></RestoreStatus>"
)


def page(inside: str, head: str = HEAD) -> Page | None:
    return parsed(f"{head}{inside}</ListBucketResult>".encode())


@pytest.mark.parametrize("head", [HEAD, "<ListBucketResult>"])
def test_a_page_is_read_with_and_without_its_name_space(head: str) -> None:
    got = page(ONE.format(key="a&amp;b", kind="STANDARD", more="") + "<IsTruncated>false</IsTruncated>", head)
    assert got is not None and got.token is None
    (one,) = got.objects
    assert one == ObjectSeen("a&b", 7, 1_796_051_754_394_000_000, '"abc"', False)


def test_names_are_decoded_only_where_the_store_says_that_they_are_coded() -> None:
    one = ONE.format(key="100%2541+b", kind="STANDARD", more="")
    folders = "<CommonPrefixes><Prefix>x%20y/</Prefix></CommonPrefixes>"
    coded, plain = page(f"<EncodingType>url</EncodingType>{one}{folders}"), page(one + folders)
    assert coded is not None and (coded.objects[0].key, coded.prefixes) == ("100%41 b", ["x y/"])
    assert plain is not None and (plain.objects[0].key, plain.prefixes) == ("100%2541+b", ["x%20y/"])


@pytest.mark.parametrize(
    ("kind", "more", "archived"),
    [
        ("STANDARD", "", False),
        ("GLACIER", "", True),
        ("GLACIER_IR", "", False),
        ("DEEP_ARCHIVE", RESTORED.format("true"), True),
        ("DEEP_ARCHIVE", RESTORED.format("false"), False),
    ],
)
def test_what_must_be_restored_first_is_archived(kind: str, more: str, archived: bool) -> None:
    got = page(ONE.format(key="a", kind=kind, more=more))
    assert got is not None and got.objects[0].is_archived is archived


def test_the_token_is_where_a_listing_goes_on() -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t&lt;</NextContinuationToken>"
    got = page(more)
    assert got is not None and got.token == "t<"
    unclear = page("<IsTruncated>true</IsTruncated>")
    assert unclear is not None and unclear.token == ""


def test_what_is_no_listing_is_left_to_the_client() -> None:
    assert parsed(b"<Error><Code>SlowDown</Code></Error>") is None
