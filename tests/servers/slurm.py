"""A real Slurm for tests: one controller and some nodes on this machine, on loopback, in a folder of its own.

`Slurm(folder)` starts munge, slurmctld and a slurmd per node (Debian's build takes `slurmd -N name`) without systemd,
cgroups or system files; `stop()` ends them all. The fixture `slurm` gives one to each test file.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.servers.daemons import end, free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "munged")
PACKAGES = "slurmctld slurmd slurm-client munge"
START_SECONDS = 30.0
CPUS_PER_NODE = 8

_CONFIGURATION = """\
ClusterName=demo
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire={cred_expire_seconds}
CredType=cred/munge
SlurmctldPort={controller_port}
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
MpiDefault=none
SwitchType=switch/none
ReturnToService=1
SlurmdTimeout=30
KillWait=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
RebootProgram=/bin/true
GresTypes=gpu
{nodes}
PartitionName=train Nodes={first}-[1-{node_count}] Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """`environment` is what its programs need; `run("scontrol", ...)` gives their output.

    `cred_expire_seconds` is also what holds a requeued job back before it may start again (Slurm's own default: 120).
    """

    def __init__(
        self, folder: Path, *, node_count: int = 4, gpus_per_node: int = 0, cred_expire_seconds: int = 5
    ) -> None:
        self.folder = folder
        self.cred_expire_seconds = cred_expire_seconds
        self.node_names = [f"gpu-{number}" for number in range(1, node_count + 1)]
        self.configuration = folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool", "log"):
            (folder / name).mkdir()
        ports = free_ports(node_count + 1)
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={socket.gethostname().split('.')[0]} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={CPUS_PER_NODE} RealMemory=1000 Feature=rack-{number // 2} Gres=gpu:{gpus_per_node} State=UNKNOWN"
            for number, (name, port) in enumerate(zip(self.node_names, ports[1:], strict=True))
        )
        self.configuration.write_text(
            _CONFIGURATION.format(
                host=socket.gethostname().split(".")[0],
                user="root" if os.getuid() == 0 else os.environ.get("USER", "nobody"),
                folder=folder,
                cred_expire_seconds=cred_expire_seconds,
                controller_port=ports[0],
                nodes=nodes if gpus_per_node else nodes.replace(" Gres=gpu:0", ""),
                first="gpu",
                node_count=node_count,
            )
        )
        self._write_gpus(gpus_per_node)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def run(self, *command: str) -> str:
        """The standard output of one of Slurm's programs; CalledProcessError where it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def submit(self, script: Path, *arguments: str, **environment: str) -> str:
        """sbatch it; gives the job's id."""
        command = ["sbatch", "--parsable", *arguments, str(script)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout.strip()

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            job for job in json.loads(self.run("squeue", "--json"))["jobs"] if str(job["job_id"]) == job_id
        )
        return found

    def kill_node(self, name: str) -> None:
        """The node's own daemon dies; what it had started is left alone."""
        self._daemons.pop(name).kill()

    def start_node(self, name: str) -> None:
        self._spawn(name, ["slurmd", "-D", "-N", name])

    def wait_for_state(self, word: str, *, count: int, seconds: float = START_SECONDS) -> None:
        """Until so many nodes are in the state that sinfo calls `word`."""
        deadline = time.monotonic() + seconds
        while True:
            states = self._states()
            if sum(state == word for state in states) == count:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"not {count} nodes {word} after {seconds} s but {states}:\n{self._logs()}")
            time.sleep(0.1)

    def stop(self) -> None:
        with ExitStack() as stack:
            for process in self._daemons.values():
                stack.callback(end, process)
        self._daemons.clear()

    def _start(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        munge = [f"--key-file={key}", f"--socket={self.folder}/munge.sock", f"--seed-file={self.folder}/munge.seed"]
        munge += [f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/log/munged.log"]
        self._spawn("munged", ["munged", "--foreground", "--force", "--num-threads=2", *munge])
        deadline = time.monotonic() + START_SECONDS
        while not (self.folder / "munge.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.configuration)])
        for name in self.node_names:
            self.start_node(name)
        self.wait_for_state("idle", count=len(self.node_names))

    def _spawn(self, name: str, command: list[str]) -> None:
        with open(self.folder / "log" / f"{name}.log", "ab") as log:
            self._daemons[name] = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def _states(self) -> list[str]:
        command = ["sinfo", "-h", "-N", "-o", "%T"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stdout.split()

    def _logs(self) -> str:
        return "\n".join(path.read_text()[-1500:] for path in sorted((self.folder / "log").iterdir()))

    def _write_gpus(self, gpus_per_node: int) -> None:
        """Stand-ins for /dev/nvidia*: slurmd only counts them."""
        lines = ""
        for number in range(gpus_per_node):
            (self.folder / f"gpu{number}").touch()
        if gpus_per_node:
            files = f"{self.folder}/gpu[0-{gpus_per_node - 1}]"
            lines = f"NodeName=gpu-[1-{len(self.node_names)}] Name=gpu File={files}\n"
        (self.folder / "gres.conf").write_text(lines)


def require_programs() -> None:
    """Skip, or fail in CI, where Slurm cannot be started here."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if not missing:
        return
    reason = f"the program {missing[0]} is missing: install Debian's packages {PACKAGES}"
    if os.environ.get("MUSTER_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Four idle nodes without GPUs; a requeued job is held for about 5 s."""
    require_programs()
    # In /tmp itself: munge refuses a socket below a folder that others may write, and its path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="msl-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        running = Slurm(Path(folder))
        try:
            yield running
        finally:
            running.stop()
