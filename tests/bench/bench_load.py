"""What a thousand agents cost: idle, at hand-out, and in a drill with 120,000 events, over real HTTP.

    python -m tests.bench.bench_load [--agents 1000] [--idle 60] [--drill 60] [--checkpoints 10000] [--shards-each 100]

A PostgreSQL, a Redis, one web process, a worker and a beat of its own, and the agents' own client and poller in four
further processes, all on this machine: the times are those of all of them together. Prints a table.
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
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from servers.postgres import Postgres  # noqa: E402
from servers.valkey import Valkey  # noqa: E402

from tests.bench.load_agents import EVENTS  # noqa: E402

GENERATORS = 4
HAND_OUTS = 200
REGISTRATIONS = 40
RESUME_POINTS = 400
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = _options()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ml-", dir="/tmp")))
        postgres, valkey = Postgres(), Valkey()
        stack.callback(valkey.stop)
        stack.callback(postgres.stop)
        _set_up(postgres.url, valkey.url)
        bench = Bench(options, folder, stack)
        bench.pids = {"PostgreSQL": postgres.pid, "Redis": valkey.process.pid, **bench.pids}
        print("| what | measured |\n|---|---|")
        for part in (bench.start_all, bench.idle, bench.hand_out, bench.drill, bench.register, bench.resume_point):
            for what, measured in part():
                print(f"| {what} | {measured} |", flush=True)
        print(f"\n{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (("agents", 1000), ("idle", 60), ("drill", 60), ("checkpoints", 10_000), ("shards-each", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def _set_up(database_url: str, redis_url: str) -> None:
    os.environ |= {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "MUSTER_API_RATE_PER_MINUTE": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "workers/agent/src"), str(ROOT), str(ROOT / "tests")]),
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


class Bench:
    """Each part gives rows (what, measured) for the table."""

    def __init__(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self.options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = stack.enter_context((folder / "servers.log").open("ab"))
        self._stack = stack
        web = self._start("uvicorn", "controlplane.asgi:application", "--port", str(self.port), "--no-access-log")
        worker = self._start("celery", "-A", "controlplane", "worker", "-Q", "control", "-c", "1", "-l", "ERROR")
        schedule = str(folder / "beat")
        beat = self._start("celery", "-A", "controlplane", "beat", "-s", schedule, "-l", "ERROR")
        self.pids = {"web": web.pid, "worker": worker.pid, "beat": beat.pid}
        self._helpers = [worker, beat]
        self.generators: list[subprocess.Popen[str]] = []
        self._wait_for_web()

    # -- the parts -----------------------------------------------------------------------------------------------------
    def start_all(self) -> list[tuple[str, str]]:
        from apps.fleet.models import Agent

        quiet = self._cost(20)
        self._rss_before = self._rss()
        began = time.time()
        self._start_generators()
        self._ask("enrol")
        enrolled_seconds = time.time() - began
        Agent.objects.update(state=Agent.State.ONLINE)
        began = time.time()
        self._ask("poll")
        while len(self._merged("online")) < self.options.agents and time.time() - began < 300:
            time.sleep(1)
        last = max(self._merged("online").values()) - began
        return [
            (f"without agents: CPU, share of one core{_by_part(quiet)}", f"{sum(quiet.values()):.1%}"),
            (f"{self.options.agents:,} agents join, one request after another in each of {GENERATORS} processes",
             f"{enrolled_seconds:.0f} s"),
            (f"all start at the same moment: online, the last after (of {len(self._merged('online'))})",
             f"{last:.1f} s"),
        ]  # fmt: skip

    def idle(self) -> list[tuple[str, str]]:
        time.sleep(20)  # the second poll of each, which sets its clock, has gone
        cost, rss = self._cost(self.options.idle), self._rss()
        grown = sum(rss.values()) - sum(self._rss_before.values())
        return [
            (f"idle: CPU, share of one core{_by_part(cost)}", f"{sum(cost.values()):.1%}"),
            (f"idle: resident memory of all server processes{_by_part(rss, 1 << 20, ' MiB')}",
             f"{sum(rss.values()) / (1 << 20):.0f} MiB, {grown / (1 << 20):+.0f} by the agents"),
        ]  # fmt: skip

    def hand_out(self) -> list[tuple[str, str]]:
        made: dict[str, float] = {}
        for agent in random.Random(1).sample(self._agents(), min(HAND_OUTS, self.options.agents)):
            task_id = self._create_task(agent, "/load/now")
            made[task_id] = time.time()
            time.sleep(0.1)
        self._wait_for("ended", made, 60)
        received = self._merged("received")
        waits = [received[task_id] - at for task_id, at in made.items() if task_id in received]
        lost = len(made) - len(waits)
        return [(f"hand-out to a waiting agent, {len(made)} tasks ({lost} never came)", _quantiles(waits))]

    def drill(self) -> list[tuple[str, str]]:
        from django.db.models import Count

        from apps.fleet.models import AgentEvent, AgentTask

        before = self._counts()
        began = time.time()
        made = {self._create_task(agent, f"/load/drill/{self.options.drill}"): began for agent in self._agents()}
        created_seconds = time.time() - began
        cost_began, cpu = time.time(), self._cpu()
        self._wait_for("ended", made, self.options.drill * 5)
        ended, now = self._merged("ended"), self._counts()
        wall = max(ended.get(task_id, time.time()) for task_id in made) - began
        stored = AgentEvent.objects.filter(task__in=list(made))
        doubled = stored.values("task", "attempt", "seq").annotate(count=Count("pk")).filter(count__gt=1).count()
        again = AgentTask.objects.filter(pk__in=list(made), attempt__gt=1).count()
        done = AgentTask.objects.filter(pk__in=list(made), outcome="done").count()
        seconds = self._merged_list("events_seconds")
        share = sum(after - cpu[part] for part, after in self._cpu().items()) / (time.time() - cost_began)
        asked = {name: now[name] - before[name] for name in now}
        return [
            (f"drill of {self.options.drill} s on {len(made):,} agents: wall ({created_seconds:.0f} s to create it)",
             f"{wall:.1f} s"),
            ("tasks done, and those handed out again", f"{done:,} of {len(made):,}, {again}"),
            (f"of {EVENTS * len(made):,} events lost, doubled",
             f"{EVENTS * len(made) - stored.count():,}, {doubled:,}"),
            ("requests, cut off, tried again", f"{asked['requests']:,}, {asked['cut']:,}, {asked['tried_again']:,}"),
            ("a batch of 15 events", _quantiles(seconds)),
            ("CPU of the server processes meanwhile, share of one core", f"{share:.0%}"),
            ("what agents complained of", "; ".join(self._merged_list("problems")[:3]) or "nothing"),
        ]  # fmt: skip

    def register(self) -> list[tuple[str, str]]:
        from factories import cluster, tier, token, user

        headers = self._headers = {"Authorization": f"Bearer {token(user())}", "Content-Type": "application/json"}
        on, taken = tier(cluster("registered")), []
        for step in range(REGISTRATIONS):
            body = json.dumps({"items": [_told(on.pk, step)]})
            began = time.perf_counter()
            self._request("POST", "/api/v1/checkpoints:batch", headers, body)
            taken.append(time.perf_counter() - began)
        return [(f"register a checkpoint with 1,000 shards, {len(taken)} times", _quantiles(taken))]

    def resume_point(self) -> list[tuple[str, str]]:
        from django.core.management import call_command
        from django.db import connection
        from django.test import Client
        from django.test.utils import CaptureQueriesContext

        from apps.checkpoints.models import Checkpoint, Shard, TrainingRun

        self._stop_agents()
        call_command(
            "seed_fleet", "--beside-existing-rows", f"--checkpoints={self.options.checkpoints}",
            f"--shards-each={self.options.shards_each}",
        )  # fmt: skip
        names = list(TrainingRun.objects.filter(cluster__name__startswith="seeded-").values_list("name", flat=True))
        taken, chance = [], random.Random(1)
        for _turn in range(RESUME_POINTS):
            began = time.perf_counter()
            self._request("GET", f"/api/v1/runs/{chance.choice(names)}/resume-point", self._headers)
            taken.append(time.perf_counter() - began)
        client = Client(SERVER_NAME="127.0.0.1", headers=self._headers)
        client.get(f"/api/v1/runs/{names[0]}/resume-point")
        with CaptureQueriesContext(connection) as queries:
            client.get(f"/api/v1/runs/{names[0]}/resume-point")
        size = f"{Checkpoint.objects.count():,} checkpoints and {Shard.objects.count():,} shards"
        return [(f"resume-point GET over {size}", f"{_quantiles(taken)}, {len(queries)} queries")]

    # -- servers -------------------------------------------------------------------------------------------------------
    def _start(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=self._log, stderr=self._log
        )
        self._stack.callback(_end, process)
        return process

    def _wait_for_web(self) -> None:
        for _attempt in range(600):
            try:
                self._request("GET", "/healthz", {})
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("the web process did not answer")

    def _request(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
        return content

    def _cost(self, seconds: float) -> dict[str, float]:
        """Share of one core that each server process took in the next `seconds`."""
        before = self._cpu()
        time.sleep(seconds)
        return {part: (after - before[part]) / seconds for part, after in self._cpu().items()}

    def _cpu(self) -> dict[str, float]:
        return {part: _cpu_seconds(pid) for part, pid in self.pids.items()}

    def _rss(self) -> dict[str, float]:
        """Bytes; PostgreSQL's are proportional, since its processes share their buffers."""
        return {part: float(sum(_pss_bytes(one) for one in _tree(pid))) for part, pid in self.pids.items()}

    # -- agents --------------------------------------------------------------------------------------------------------
    def _start_generators(self) -> None:
        from apps.fleet.services import create_cluster, create_join_token

        cluster = create_cluster(name="load", actor="bench")
        _row, token = create_join_token(cluster=cluster, actor="bench", max_uses=self.options.agents)
        for number in range(GENERATORS):
            count = self.options.agents // GENERATORS + (number < self.options.agents % GENERATORS)
            arguments = ["--url", f"http://127.0.0.1:{self.port}", "--token", token, "--prefix", f"node-{number}"]
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.load_agents", *arguments, "--agents", str(count)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self._stack.callback(_end, process)
            self.generators.append(process)

    def _ask(self, command: str) -> list[dict[str, Any]]:
        for generator in self.generators:
            assert generator.stdin is not None
            generator.stdin.write(command + "\n")
            generator.stdin.flush()
        return [json.loads(generator.stdout.readline()) for generator in self.generators if generator.stdout]

    def _merged(self, name: str) -> dict[str, float]:
        return {key: value for told in self._ask("report") for key, value in told[name].items()}

    def _merged_list(self, name: str) -> list[Any]:
        return [value for told in self._ask("report") for value in told[name]]

    def _counts(self) -> dict[str, int]:
        told = self._ask("report")
        return {name: sum(one["counts"][name] for one in told) for name in told[0]["counts"]}

    def _wait_for(self, name: str, wanted: dict[str, float], seconds: float) -> None:
        ends_at = time.time() + seconds
        while time.time() < ends_at and not wanted.keys() <= self._merged(name).keys():
            time.sleep(1)

    def _stop_agents(self) -> None:
        for process in (*self.generators, *self._helpers):
            _end(process)

    @staticmethod
    def _agents() -> list[Any]:
        from apps.fleet.models import Agent

        return list(Agent.objects.filter(node__cluster__name="load").order_by("pk"))

    @staticmethod
    def _create_task(agent: Any, root: str) -> str:
        from muster_agent.protocol.wire import InventoryParams, TaskKind

        from apps.fleet.tasks import create_task

        params = InventoryParams(root=root)
        task = create_task(agent=agent, kind=TaskKind.INVENTORY, params=params, owner_kind="bench", owner_id="load")
        return str(task.pk)


def _told(tier_id: str, step: int) -> dict[str, object]:
    shards = [{"path": f"rank-{rank:05d}.safetensors", "size_bytes": 1 << 30, "rank": rank} for rank in range(1000)]
    base = {"tier": tier_id, "path": f"/ckpt/llama/step-{step}", "run": "llama", "step": step, "format": "safetensors"}
    return {**base, "world_size": 1000, "shards": shards}


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in _tree(int(child)))]


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, what lives below it, and what has ended below it."""
    ticks = 0
    for one in _tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_A_SECOND


def _pss_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def _by_part(values: dict[str, float], unit: float = 0.01, sign: str = " %") -> str:
    return f" ({', '.join(f'{part} {value / unit:.0f}{sign}' for part, value in values.items())})"


def _quantiles(seconds: Sequence[float]) -> str:
    if not seconds:
        return "nothing measured"
    ordered = sorted(seconds)
    p95 = ordered[-(-95 * len(ordered) // 100) - 1]
    return f"p50 {1000 * statistics.median(ordered):.0f} ms, p95 {1000 * p95:.0f} ms, worst {1000 * ordered[-1]:.0f} ms"


if __name__ == "__main__":
    main()
