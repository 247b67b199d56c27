"""A real S3 server for tests: a throw-away Ceph (one monitor, one memory-backed OSD, one RADOS gateway) on loopback.

`Ceph` is the server; `joined()` shares one among the processes of a test run: the first starts a supervisor, and the
supervisor ends once no process holds the users' lock any more, however they ended. `python -m tests.servers.ceph` runs
one until Ctrl-C, for benches and by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import urllib3

from tests.servers.daemons import free_ports

PROGRAMS = ("ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin", "openssl", "setpriv")
PACKAGES = "radosgw ceph-mon ceph-osd ceph-common openssl"
CLASSES = ("STANDARD_IA", "GLACIER")
"""Storage classes beside STANDARD. They are kept and listed; nothing has to be restored."""
START_SECONDS = 180
ATTEMPTS = 2
STORE_BYTES = int(os.environ.get("MUSTER_TEST_S3_BYTES", 8 * 1024**3))

_CONFIGURATION = """\
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor_port}
public addr = 127.0.0.1
ms bind ipv6 = false
ms mon cluster mode = crc
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
pid file =
log file = {folder}/log/$name.log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon max pg per osd = 1000
mon data = {folder}/mon
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = {store_bytes}
osd data = {folder}/osd
osd class load list = *
osd class default list = *
osd heartbeat grace = 60
osd crush update on start = false
osd class update on start = false
rgw dns name =
rgw enable usage log = false
rgw lc debug interval = 10
rgw mp lock max time = 20
rgw gc obj min wait = 1
rgw gc processor period = 10
rgw gc processor max time = 10
rgw frontends = beast endpoint=127.0.0.1:{http_port} ssl_endpoint=127.0.0.1:{tls_port} ssl_certificate={certificate}
[client.rgw]
rgw data = {folder}/rgw
"""


@dataclass(frozen=True)
class Endpoints:
    """How a running server is reached. The keys are made at its start and known to nothing else."""

    url: str
    tls_url: str
    ca_path: str
    access_key: str
    secret_key: str


def missing_programs() -> list[str]:
    """What is not installed of the programs that the server needs."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


class Ceph:
    """`start()`, then `endpoints`, then `stop()`. The daemons die with this process, whatever ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._configuration = folder / "ceph.conf"
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.endpoints: Endpoints

    def start(self) -> None:
        """Raises RuntimeError or CalledProcessError where a daemon does not come up."""
        for name in ("mon", "osd", "run", "log", "rgw"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        monitor_port, http_port, tls_port = free_ports(3)
        fsid = str(uuid.uuid4())
        self._configuration.write_text(
            _CONFIGURATION.format(
                folder=self.folder,
                fsid=fsid,
                monitor_port=monitor_port,
                http_port=http_port,
                tls_port=tls_port,
                certificate=self._certificate(),
                store_bytes=STORE_BYTES,
            )
        )
        self._start_monitor(fsid, monitor_port)
        self._start_osd()
        access_key, secret_key = self._make_user()
        self._start_gateway(f"http://127.0.0.1:{http_port}")
        self.endpoints = Endpoints(
            url=f"http://127.0.0.1:{http_port}",
            tls_url=f"https://127.0.0.1:{tls_port}",
            ca_path=str(self.folder / "certificate.pem"),
            access_key=access_key,
            secret_key=secret_key,
        )

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()  # everything is in memory: nothing is worth a clean end
            daemon.wait()
        self._daemons.clear()

    def kill_gateway(self) -> None:
        """`kill -9` of what speaks S3; what it has stored stays."""
        gateway = self._daemons.pop()
        gateway.kill()
        gateway.wait()

    def start_gateway(self) -> None:
        self._start_gateway(self.endpoints.url)

    def check(self) -> None:
        """Raises RuntimeError where a daemon has ended."""
        for daemon in self._daemons:
            if daemon.poll() is not None:
                raise RuntimeError(f"a daemon of the S3 server ended: {daemon.args}\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(_tail(path) for path in sorted((self.folder / "log").glob("*.out")))

    def _certificate(self) -> Path:
        """Key and certificate in one file, as the gateway wants them, and the certificate alone, for clients."""
        key, certificate, both = (self.folder / f"{name}.pem" for name in ("key", "certificate", "both"))
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        _run("openssl", "req", "-x509", *curve, "-keyout", str(key), "-out", str(certificate), *subject)
        both.touch(0o600)
        both.write_text(key.read_text() + certificate.read_text())
        return both

    def _start_monitor(self, fsid: str, port: int) -> None:
        monmap = str(self.folder / "monmap")
        _run("monmaptool", "--create", "--clobber", "--addv", "a", f"[v1:127.0.0.1:{port}]", "--fsid", fsid, monmap)
        self._ceph("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap)
        self._daemon("ceph-mon", "-i", "a")

    def _start_osd(self) -> None:
        _until("the monitor", lambda: bool(self._answer("osd", "create")), self.check)
        self._ceph("ceph-osd", "-i", "0", "--mkfs")
        self._ceph("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=localhost")
        self._daemon("ceph-osd", "-i", "0")
        _until("the OSD", lambda: "1 up" in self._answer("osd", "stat"), self.check)

    def _make_user(self) -> tuple[str, str]:
        keys = secrets.token_hex(10).upper(), secrets.token_hex(20)
        as_admin = ("radosgw-admin", "-n", "client.rgw")
        names = ["--uid=tests", "--display-name=tests"]
        self._ceph(*as_admin, "user", "create", *names, f"--access-key={keys[0]}", f"--secret-key={keys[1]}")
        for one in CLASSES:
            where = ["--placement-id=default-placement", f"--storage-class={one}"]
            self._ceph(*as_admin, "zonegroup", "placement", "add", "--rgw-zonegroup=default", *where)
            pool = "--data-pool=default.rgw.buckets.data"
            self._ceph(*as_admin, "zone", "placement", "add", "--rgw-zone=default", *where, pool)
        return keys

    def _start_gateway(self, url: str) -> None:
        self._daemon("radosgw", "-n", "client.rgw")
        _until("the gateway", lambda: _answers(url), self.check)

    def _daemon(self, *command: str) -> None:
        # Without setpriv a killed supervisor would leave them behind.
        wrapped = ["setpriv", "--pdeathsig", "KILL", *command, "-f", "-c", str(self._configuration)]
        with open(self.folder / "log" / f"{command[0]}.out", "wb") as log:
            self._daemons.append(subprocess.Popen(wrapped, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _ceph(self, *command: str) -> None:
        _run(*command, "-c", str(self._configuration))

    def _answer(self, *question: str) -> str:
        """What the cluster answers; empty where it does not, within some seconds."""
        command = ["ceph", "-c", str(self._configuration), "--connect-timeout", "10", *question]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""


def _run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")


def _until(what: str, is_up: Callable[[], bool], check: Callable[[], None]) -> None:
    ends_at = time.monotonic() + START_SECONDS / 3
    while not is_up():
        check()
        if time.monotonic() > ends_at:
            raise RuntimeError(f"{what} of the S3 server did not come up within {START_SECONDS / 3:.0f} s")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", url, retries=False, timeout=2.0).status == 200
    except urllib3.exceptions.HTTPError:
        return False


# -- one server for all processes of a test run ------------------------------------------------------------------------
@contextlib.contextmanager
def joined(folder: Path) -> Iterator[Endpoints]:
    """The server of this folder, started by whoever comes first. Raises RuntimeError where it does not start."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "users", "wb") as users:
        with _locked(folder / "gate"):
            fcntl.flock(users, fcntl.LOCK_SH)
            if not (folder / "state.json").exists():
                _start_supervisor(folder)
        yield _wait_for_state(folder)


def _start_supervisor(folder: Path) -> None:
    (folder / "state.json").write_text("{}")
    command = [sys.executable, "-m", "tests.servers.ceph", str(folder)]
    root = Path(__file__).resolve().parents[2]
    with open(folder / "supervisor.out", "wb") as log:
        subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _wait_for_state(folder: Path) -> Endpoints:
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        state = json.loads((folder / "state.json").read_text())
        if "failed" in state:
            raise RuntimeError(state["failed"])
        if state:
            return Endpoints(**state)
        time.sleep(0.1)
    raise RuntimeError(f"the S3 server did not start within {START_SECONDS} s:\n{_tail(folder / 'supervisor.out')}")


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:] if path.exists() else ""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _supervise(folder: Path) -> None:
    """Run the server of `folder` until nobody holds its users' lock."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then let go of the lock
    for attempt in range(ATTEMPTS):  # another process may take a free port first
        ceph = Ceph(folder / f"ceph-{attempt}")
        try:
            ceph.start()
            _tell(folder, asdict(ceph.endpoints))
            break
        except (RuntimeError, OSError) as error:
            ceph.stop()
            if attempt + 1 == ATTEMPTS:
                _tell(folder, {"failed": str(error)})
    while not _is_left(folder):
        time.sleep(0.5)
    ceph.stop()
    shutil.rmtree(folder, ignore_errors=True)


def _tell(folder: Path, state: dict[str, str]) -> None:
    (folder / "state.new").write_text(json.dumps(state))
    os.replace(folder / "state.new", folder / "state.json")


def _is_left(folder: Path) -> bool:
    """Whether every user is gone; from then on a newcomer starts a server of its own."""
    with _locked(folder / "gate"), open(folder / "users", "wb") as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        (folder / "state.json").unlink()
        return True


def main(arguments: list[str]) -> None:
    if arguments:
        _supervise(Path(arguments[0]))
        return
    with tempfile.TemporaryDirectory(prefix="mc-", dir="/tmp") as folder:
        ceph = Ceph(Path(folder))
        try:
            ceph.start()
            print(json.dumps(asdict(ceph.endpoints), indent=1), flush=True)
            signal.pause()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        finally:
            ceph.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
