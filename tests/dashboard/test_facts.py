"""Node facts in words."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.scene import Scene
from django.test import Client

from apps.dashboard.facts import readable
from apps.fleet.models import Node


def test_what_an_agent_tells_reads_as_words_and_sizes() -> None:
    facts = {
        "memory_bytes": 25_276_514_304,
        "allows_disrupt": True,
        "roots": ["/ckpt", "/nas"],
        "file_systems": {"/ckpt": "ext4"},
        "cpu_count": 96,
        "kernel": "6.1.0",
        "rack_name": None,
        "gpus": [],
    }
    assert readable(facts) == [
        ("May read", ("/ckpt", "/nas")),
        ("File systems", ("/ckpt: ext4",)),
        ("CPUs", ("96",)),
        ("Memory", ("23.5 GiB",)),
        ("Kernel", ("6.1.0",)),
        ("Lets drills end processes", ("yes",)),
        ("Rack name", ("not told",)),
        ("Gpus", ("none",)),
    ]


def test_the_node_page_shows_them_so(scene: Scene, signed_in: Callable[[str], Client]) -> None:
    Node.objects.filter(pk=scene.nodes[0].pk).update(facts={"roots": ["/ckpt"], "allows_disrupt": False})
    html = signed_in("viewer").get(f"/nodes/{scene.nodes[0].pk}/").content.decode()
    assert "<dt>May read</dt><dd>/ckpt</dd>" in html
    assert "<dt>Lets drills end processes</dt><dd>no</dd>" in html
