"""How long it takes to tell of one checkpoint with 1,000 shards, through the whole application."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 40
SHARDS = 1000


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{Path(folder) / 'bench.sqlite3'}"
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        os.environ["MUSTER_API_RATE_PER_MINUTE"] = "0"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        measure()
    return 0


def measure() -> None:
    from django.test import Client

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import factories

    tier = factories.tier(factories.cluster())
    headers = {"Authorization": f"Bearer {factories.token(factories.user())}"}
    client, taken = Client(SERVER_NAME="127.0.0.1"), []
    for step in range(ROUNDS):
        body = json.dumps({"items": [told(tier.pk, step)]})
        begun = time.perf_counter()
        answer = client.post("/api/v1/checkpoints:batch", body, content_type="application/json", headers=headers)
        taken.append(time.perf_counter() - begun)
        assert answer.json()["created_count"] == 1, answer.content
    ordered = sorted(taken)
    p95 = ordered[int(0.95 * len(ordered)) - 1]
    print(f"{SHARDS} shards: median {statistics.median(taken) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, {ROUNDS} rounds")


def told(tier: str, step: int) -> dict[str, object]:
    shards = [{"path": f"rank-{rank:05d}.safetensors", "size_bytes": 1 << 30, "rank": rank} for rank in range(SHARDS)]
    base = {"tier": tier, "path": f"/ckpt/llama/step-{step}", "run": "llama", "step": step, "format": "safetensors"}
    return {**base, "world_size": SHARDS, "shards": shards}


if __name__ == "__main__":
    sys.exit(main())
