"""A real API server of Kubernetes for tests: etcd and kube-apiserver on loopback, over TLS, with RBAC, no kubelets.

No package has the program: `make test-k8s` builds it from Debian's source and names it in MUSTER_KUBE_APISERVER. The
fixture `kube_api` gives one to each test file.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.servers.daemons import end, free_ports

PROGRAM = "MUSTER_KUBE_APISERVER"
START_SECONDS = 60.0


class KubeApi:
    """`call` speaks as the cluster's admin; `kubeconfig(token)` is the file of somebody else."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder = folder
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.admin_token = secrets.token_hex(16)
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._make_keys()
        (folder / "tokens.csv").write_text(f"{self.admin_token},admin,admin,system:masters\n")
        self._http = urllib3.PoolManager(ca_certs=str(folder / "tls.crt"), retries=False, timeout=20.0)
        try:
            self._start_etcd()
            self._start_server(program)
        except BaseException:
            self.stop()
            raise

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and document."""
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": kind}
        answer = self._http.request(method, self.url + path, body=json.dumps(body) if body else None, headers=headers)
        return answer.status, json.loads(answer.data)

    def apply(self, document: dict[str, Any], path: str) -> tuple[int, Any]:
        """As `kubectl apply --server-side --field-manager=tests` does it; JSON is YAML too."""
        return self.call("PATCH", f"{path}?fieldManager=tests", document, "application/apply-patch+yaml")

    def resources(self, version: str) -> dict[str, dict[str, Any]]:
        """What the server has of an apiVersion, by kind; empty where it does not know the version."""
        status, found = self.call("GET", f"/api/{version}" if version == "v1" else f"/apis/{version}")
        listed = found["resources"] if status == 200 else []
        return {one["kind"]: one for one in listed if "/" not in one["name"]}

    def kubeconfig(self, token: str) -> str:
        authority = base64.b64encode((self.folder / "tls.crt").read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        path = self.folder / f"kubeconfig-{secrets.token_hex(4)}.json"
        path.write_text(json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": {"token": token}}]}))
        return str(path)

    def stop(self) -> None:
        with ExitStack() as stack:
            for daemon in self._daemons:
                stack.callback(end, daemon)
        self._daemons.clear()

    def _make_keys(self) -> None:
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-days", "2"]
        files = ["-keyout", str(self.folder / "tls.key"), "-out", str(self.folder / "tls.crt")]
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files],
            check=True, capture_output=True,
        )  # fmt: skip

    def _start_etcd(self) -> None:
        urls = [f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port)]
        listen = [f"--listen-client-urls={urls[0]}", f"--advertise-client-urls={urls[0]}"]
        peer = [f"--listen-peer-urls={urls[1]}", f"--initial-advertise-peer-urls={urls[1]}"]
        name = ["--name=only", f"--initial-cluster=only={urls[1]}", f"--data-dir={self.folder / 'etcd'}"]
        self._spawn("etcd", ["etcd", *name, *listen, *peer, "--unsafe-no-fsync"])

    def _start_server(self, program: str) -> None:
        key, certificate = (str(self.folder / f"tls.{end}") for end in ("key", "crt"))
        self._spawn(
            "apiserver",
            [
                program,
                f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
                f"--secure-port={self.port}",
                "--bind-address=127.0.0.1",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.96.0.0/16",
                # What gives pods and accounts their parts is a controller, and none runs here.
                "--disable-admission-plugins=ServiceAccount",
            ],
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._daemons[-1].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"kube-apiserver does not answer:\n{self._last_words()}")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            headers = {"Authorization": f"Bearer {self.admin_token}"}
            return self._http.request("GET", f"{self.url}/readyz", headers=headers).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def _spawn(self, name: str, command: list[str]) -> None:
        # Without setpriv a killed test process would leave them behind.
        with open(self.folder / f"{name}.log", "ab") as log:
            wrapped = ["setpriv", "--pdeathsig", "KILL", *command]
            self._daemons.append(subprocess.Popen(wrapped, cwd=self.folder, stdout=log, stderr=log))

    def _last_words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("*.log")))


@pytest.fixture(scope="module")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    program = os.environ.get(PROGRAM, "")
    if not program:
        pytest.skip("no real API server of Kubernetes: run `make test-k8s`")
    assert shutil.which("etcd"), "install Debian's package etcd-server"
    running = KubeApi(tmp_path_factory.mktemp("kube"), program)
    yield running
    running.stop()
