"""Every page over 10,000 checkpoints, 1,000,000 shards, 10,000 drills and 1,000 nodes, for four users at once.

    python -m tests.bench.bench_pages [--users 4] [--rounds 6] [--checkpoints 10000] [--shards-each 100] ...

A PostgreSQL of its own is seeded (`manage.py seed_fleet`), and one web process serves it, as in docs/deployment.md.
Each user asks for all pages in an own order, one after the other on one connection, `rounds` times. Users, server and
database share the machine, so the milliseconds are those of all three together; queries and kilobytes are exact.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from servers.postgres import Postgres  # noqa: E402

SIZES = ("checkpoints", "shards_each", "drills", "nodes")


def main() -> None:
    options = _options()
    postgres = Postgres()
    try:
        environment = {
            **os.environ,
            "DATABASE_URL": postgres.url,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "workers/agent/src"), str(ROOT), str(ROOT / "tests")]),
        }
        began = time.monotonic()
        sizes = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in SIZES]
        _run(environment, "seed", *sizes)
        print(f"seeded in {time.monotonic() - began:.0f} s", file=sys.stderr)
        looked = json.loads(_run(environment, "look").splitlines()[-1])
        told = json.loads(_run(environment, "session").splitlines()[-1])
        times = _serve_and_ask(environment, told["cookie"], list(looked), options)
        _print(looked, times, options)
    finally:
        postgres.stop()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    for name, count in zip(SIZES, (10_000, 100, 10_000, 1_000), strict=True):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=count)
    return parser.parse_args()


def _run(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "tests.servers.seeded_pages", *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _serve_and_ask(
    environment: dict[str, str], cookie: str, urls: list[str], options: argparse.Namespace
) -> dict[str, list[float]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "controlplane.asgi:application", "--port", str(port), "--no-access-log"]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        try:
            _wait(port)
            return _ask(port, cookie, urls, options)
        finally:
            server.terminate()
            server.wait(20)


def _wait(port: int) -> None:
    for _attempt in range(300):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the web process did not answer")


def _ask(port: int, cookie: str, urls: list[str], options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of every answer by its address; the first round only warms up."""
    times: dict[str, list[float]] = {url: [] for url in urls}
    lock, barrier, wrong = threading.Lock(), threading.Barrier(options.users), list[str]()

    def user(number: int) -> None:
        order = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for turn in range(options.rounds + 1):
            barrier.wait()
            for url in order.sample(urls, len(urls)):
                began = time.perf_counter()
                connection.request("GET", url, headers={"Cookie": cookie})
                answer = connection.getresponse()
                answer.read()
                took = time.perf_counter() - began
                with lock:
                    if answer.status != 200:
                        wrong.append(f"{url}: {answer.status}")
                    if turn:
                        times[url].append(took)

    threads = [threading.Thread(target=user, args=(number,)) for number in range(options.users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise RuntimeError("not every page was given: " + ", ".join(sorted(set(wrong))[:5]))
    return times


def _print(looked: dict[str, Any], times: dict[str, list[float]], options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    print(
        f"{options.users} users, {options.rounds} rounds, {options.checkpoints:,} checkpoints of {options.shards_each} "
        f"shards, {options.drills:,} drills, {options.nodes:,} nodes; {os.cpu_count()} CPUs, load average {load:.1f}\n"
    )
    print("| page | p50 ms | p95 ms | worst ms | queries | KB |\n|---|---|---|---|---|---|")
    for url, seen in sorted(times.items(), key=lambda item: -_p95(item[1])):
        page = looked[url]
        p50, p95, worst = (1000 * value for value in (statistics.median(seen), _p95(seen), max(seen)))
        shown = url if len(url) < 70 else url[:66] + "..."
        print(f"| `{shown}` | {p50:.0f} | {p95:.0f} | {worst:.0f} | {page['queries']} | {page['bytes'] / 1000:.0f} |")
    every = sorted(value for seen in times.values() for value in seen)
    print(f"\nall {len(every)} answers: p50 {1000 * statistics.median(every):.0f} ms, p95 {1000 * _p95(every):.0f} ms")


def _p95(values: list[float]) -> float:
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]


if __name__ == "__main__":
    main()
