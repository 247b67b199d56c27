from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_listing import list_below
from muster_agent.storage.s3_pages import Page

from tests.servers.s3 import S3Server


def test_a_real_store_gives_every_key_once_to_several_at_once(any_s3_server: S3Server) -> None:
    names = [f"p/{run}/step-{step:02d}/{file}" for run in ("a b", "a+", "ä", "z") for step in range(6) for file in "xy"]
    keys = [*names, "p/z/", "p/a b", "p//odd", "q/other"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: any_s3_server.put(key, b"1"), keys))
    store, requests = connect(), []

    def ask(asked: dict[str, Any]) -> Page:
        requests.append(asked)
        return store._page({"Bucket": any_s3_server.bucket, "MaxKeys": 4, **asked})

    found = list_below(ask, {"Prefix": "p/"}, lambda: None)
    assert [one.key for one in found.objects] == sorted(set(keys) - {"q/other"})
    assert any("StartAfter" in asked and "Delimiter" not in asked for asked in requests)
    one = found.objects[0]
    assert (one.size_bytes, one.etag) == (1, '"c4ca4238a0b923820dcc509a6f75849b"')
