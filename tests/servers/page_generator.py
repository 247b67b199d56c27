"""Emulated: the listing of a bucket of a million keys, worked out page by page, each as late as asked.

`runs/run-000/step-000000/__00_0.distcp` and so on: `RUNS` runs of `STEPS` steps of `FILES` objects. Only ListObjectsV2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

RUNS, STEPS, FILES = 100, 100, 100
_PAGE_KEYS = 1000
_ENTRY = (
    "<Contents><Key>{}</Key><LastModified>2026-11-30T10:11:12.000Z</LastModified>"
    "<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>4194304</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)


def key_of(number: int) -> str:
    """The key at this place in the order of all."""
    run, rest = divmod(number, STEPS * FILES)
    step, file = divmod(rest, FILES)
    return f"runs/run-{run:03d}/step-{step:06d}/__{file:02d}_0.distcp"


def first_above(text: str, count: int) -> int:
    """How many keys are not above `text`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if key_of(middle) <= text else (low, middle)
    return low


class Handler(BaseHTTPRequestHandler):
    count = RUNS * STEPS * FILES
    wait_seconds = 0.05
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:  # noqa: N802 - the name that the server looks for
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        ends_at = time.monotonic() + self.wait_seconds
        prefix = asked.get("prefix", "")
        begin = first_above(max(asked.get("continuation-token", asked.get("start-after", "")), prefix), self.count)
        end = first_above(prefix + "\x7f", self.count)
        delimiter = asked.get("delimiter")
        entries = list(self.folders(prefix, begin, end) if delimiter else map(key_of, range(begin, end)[:_PAGE_KEYS]))
        more = not delimiter and begin + len(entries) < end
        inside = "".join(map((_FOLDER if delimiter else _ENTRY).format, entries))
        token = f"<NextContinuationToken>{entries[-1]}</NextContinuationToken>" if more else ""
        body = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{inside}</ListBucketResult>"
        time.sleep(max(0.0, ends_at - time.monotonic()))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def folders(self, prefix: str, begin: int, end: int) -> Iterator[str]:
        """Those below the prefix that hold a key from `begin` on."""
        while begin < end:
            name = key_of(begin)[len(prefix) :].partition("/")[0]
            yield f"{prefix}{name}/"
            begin = first_above(f"{prefix}{name}/\x7f", self.count)


_FOLDER = "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--keys", type=int, default=RUNS * STEPS * FILES)
    options.add_argument("--wait-seconds", type=float, default=0.05)
    chosen = options.parse_args()
    Handler.count, Handler.wait_seconds = chosen.keys, chosen.wait_seconds
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
