"""Four nodes on one machine: each a real agent process with its own state folder, joined by its own one-use token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deploy.demo.control_plane import ControlPlane, DemoFailure
from deploy.embedded import Children

NODE_NAMES = ("node-1", "node-2", "node-3", "node-4")
MUSTER = str(Path(sys.executable).parent / "muster")


class Nodes:
    """`join_and_run` for every node; `hook_folder` is where the trainer on node-1 leaves its records."""

    def __init__(self, folder: Path, children: Children, environment: dict[str, str]) -> None:
        self._folder = folder
        self._children = children
        self._environment = environment
        self.hook_folder = folder / "hooks-node-1"
        self.hook_folder.mkdir(parents=True, exist_ok=True)

    def join_and_run(self, control_plane: ControlPlane, cluster_id: str, root: Path) -> None:
        for name in NODE_NAMES:
            token = control_plane.post("/join-tokens/", {"cluster": cluster_id})["secret"]
            self._join(control_plane.url, name, token, root)
            self._children.start(f"agent-{name}", [MUSTER, "agent", "run", *self._state(name)], self._of(name))

    def _join(self, url: str, name: str, token: str, root: Path) -> None:
        command = [MUSTER, "agent", "join", "--server", url, "--root", str(root), "--name", name, *self._state(name)]
        environment = {**self._of(name), "MUSTER_JOIN_TOKEN": token}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoFailure(f"{name} could not join: {done.stderr.strip()}")

    def _state(self, name: str) -> list[str]:
        return ["--state-dir", str(self._folder / name)]

    def _of(self, name: str) -> dict[str, str]:
        hooks = self.hook_folder if name == NODE_NAMES[0] else self._folder / f"hooks-{name}"
        return {**self._environment, "MUSTER_HOOK_DIR": str(hooks)}
