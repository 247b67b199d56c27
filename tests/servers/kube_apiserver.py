"""A real kube-apiserver with its etcd for tests, where somebody has built one: no package registry carries the program.

Debian's source package `kubernetes` has it (deploy/kubernetes/build-apiserver.sh). MUSTER_KUBE_APISERVER names the
program, MUSTER_ETCD an etcd that is not on the PATH.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

TOKEN = "a-token-for-tests"
START_SECONDS = 120.0


class KubeApiServer:
    """`url` and `kubeconfig()` reach it; `call` speaks to it as an administrator."""

    def __init__(self, folder: Path, program: str, etcd: str) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        client, peer, secure = _free_ports(3)
        self.url = f"https://127.0.0.1:{secure}"
        subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
        store = f"http://127.0.0.1:{client}"
        listen = ["--listen-client-urls", store, "--advertise-client-urls", store]
        peers = ["--listen-peer-urls", f"http://127.0.0.1:{peer}", "--unsafe-no-fsync"]
        self._start("etcd", [etcd, "--data-dir", str(folder / "etcd"), *listen, *peers])
        keys = [f"--service-account-{what}key-file={folder}/sa.key" for what in ("", "signing-")]
        options = [
            f"--etcd-servers={store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--cert-dir={folder}/certs",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ]
        self._start("kube-apiserver", [program, *options, *keys])
        self._pool = urllib3.PoolManager(cert_reqs="CERT_NONE", retries=False, timeout=10.0)
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self._wait()

    def kubeconfig(self, token: str = TOKEN) -> str:
        """The path of one in JSON, with the server's own certificate as authority."""
        authority = base64.b64encode((self.folder / "certs" / "apiserver.crt").read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        path = self.folder / f"kubeconfig-{token}.json"
        path.write_text(json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": {"token": token}}]}))
        return str(path)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        data = json.dumps(body) if body is not None else None
        answer = self._pool.request(method, self.url + path, body=data, headers=headers)
        assert answer.status < 300, answer.data.decode()
        return json.loads(answer.data)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(20)

    def _start(self, name: str, command: list[str]) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._processes):
                log = (self.folder / "kube-apiserver.log").read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"kube-apiserver is not ready:\n{log}")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            return self._pool.request("GET", f"{self.url}/readyz", headers=headers).status == 200
        except urllib3.exceptions.HTTPError:
            return False


@pytest.fixture(scope="module")
def kube_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    program = os.environ.get("MUSTER_KUBE_APISERVER", "")
    etcd = os.environ.get("MUSTER_ETCD") or shutil.which("etcd")
    if not program or not etcd:
        pytest.skip("no kube-apiserver: build one (deploy/kubernetes/build-apiserver.sh), name it in "
                    "MUSTER_KUBE_APISERVER, and install etcd-server")  # fmt: skip
    running = KubeApiServer(tmp_path_factory.mktemp("kube"), program, etcd)
    yield running
    running.stop()


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _number in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
