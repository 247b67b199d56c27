"""Loaders that unpickle live in one program, which nothing imports and only `muster reload --compare` starts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

AGENT = Path(__file__).resolve().parents[2] / "workers/agent/src/muster_agent"
PROGRAM = AGENT / "peers/load.py"
OURS = [path for top in ("apps", "controlplane", "workers") for path in Path(AGENT.parents[3], top).rglob("*.py")]


def test_the_program_is_no_package_and_nothing_imports_it() -> None:
    assert not (PROGRAM.parent / "__init__.py").exists()
    importing = [path for path in OURS if re.search(r"(import|from)\s+muster_agent\.peers", path.read_text())]
    assert not importing


def test_only_the_comparison_starts_it() -> None:
    naming = {path.name for path in OURS if "load.py" in path.read_text() and path != PROGRAM}
    assert naming == {"compare.py"}


def test_it_loads_with_weights_only_and_imports_no_library_by_itself() -> None:
    tree = ast.parse(PROGRAM.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"importlib", "json", "os", "sys", "time"}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"]
    assert calls
    for call in calls:
        assert {word.arg: ast.unparse(word.value) for word in call.keywords}["weights_only"] == "True"


def test_agents_cannot_reach_the_comparison() -> None:
    reaching = [
        path for path in (AGENT / "tasks").rglob("*.py") if re.search(r"muster_agent\.(cli|peers)", path.read_text())
    ]
    assert not reaching
