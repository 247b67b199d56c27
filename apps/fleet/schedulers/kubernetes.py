"""Kubernetes through its API server, with a bearer token: reading nodes and jobs, cordoning and tainting nodes."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from apps.fleet.schedulers import kubernetes_parsing as parsing
from apps.fleet.schedulers.base import SchedulerError, SchedulerJob, SchedulerNode, Snapshot

ANSWER_SECONDS = 10.0
_PAGE = 500


class Kubernetes:
    """Asks the API server that a kubeconfig in JSON names: `kubectl config view --raw --minify --flatten -o json`.

    Its user needs a token (or `tokenFile`) that may get, list and patch nodes and list jobs.
    """

    requeue_hold_cure = ""

    def __init__(self, kubeconfig: str) -> None:
        self._server, self._token, context = _read(kubeconfig)
        self._pool = urllib3.PoolManager(ssl_context=context, retries=False, timeout=ANSWER_SECONDS)

    def snapshot(self) -> Snapshot:
        version = self._call("GET", "/version")
        return Snapshot(
            nodes=parsing.parse_nodes(self._all("/api/v1/nodes")),
            jobs=parsing.parse_jobs(self._all("/apis/batch/v1/jobs")),
            version=str(version.get("gitVersion", "")),
        )

    def node(self, name: str) -> SchedulerNode:
        return parsing.parse_node(self._node(name))

    def job(self, job_id: str) -> SchedulerJob | None:
        namespace, _slash, name = job_id.partition("/")
        path = f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs/{quote(name, safe='')}"
        found = self._call("GET", path, missing_is_none=True)
        return parsing.parse_job(found) if found else None

    def drain(self, node: str, reason: str) -> None:
        self._patch(node, parsing.out_of_use(self._node(node), reason))

    def fail(self, node: str, reason: str) -> None:
        self._patch(node, parsing.out_of_use(self._node(node), reason, evict=True))

    def resume(self, node: str) -> None:
        self._patch(node, parsing.in_use(self._node(node)))

    def requeue_hold_seconds(self) -> float | None:
        return None

    def _node(self, name: str) -> dict[str, Any]:
        found = self._call("GET", f"/api/v1/nodes/{quote(name, safe='')}", missing_is_none=True)
        if not found:
            raise SchedulerError(f"Kubernetes knows no node {name}.")
        return found

    def _patch(self, name: str, patch: dict[str, Any]) -> None:
        self._call("PATCH", f"/api/v1/nodes/{quote(name, safe='')}", patch)

    def _all(self, path: str) -> dict[str, Any]:
        """Every item of a list, page by page."""
        items: list[Any] = []
        token = ""
        while True:
            page = self._call("GET", f"{path}?limit={_PAGE}" + (f"&continue={quote(token, safe='')}" if token else ""))
            items += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return {"items": items}

    def _call(
        self, method: str, path: str, patch: dict[str, Any] | None = None, *, missing_is_none: bool = False
    ) -> dict[str, Any]:
        """The answer; an empty one for what is not there, where that is asked for."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if patch is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        body = json.dumps(patch).encode() if patch is not None else None
        try:
            answer = self._pool.request(method, self._server + path, body=body, headers=headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise SchedulerError(f"{self._server} does not answer: {error}") from error
        if answer.status == 404 and missing_is_none:
            return {}
        document = _decoded(answer.data)
        if answer.status >= 300:
            said = document.get("message") or answer.reason
            hint = " Somebody changed the node meanwhile; it is tried again." if answer.status == 409 else ""
            raise SchedulerError(f"{method} {urlsplit(path).path} gave {answer.status}: {said}.{hint}")
        return document


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _read(path: str) -> tuple[str, str, ssl.SSLContext]:
    """Server, token and whom to trust. Raises SchedulerError."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        server = str(cluster["server"]).rstrip("/")
        token = user.get("token") or Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
        authority = base64.b64decode(cluster.get("certificate-authority-data", "")).decode("ascii")
        context = ssl.create_default_context(cadata=authority or None)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise SchedulerError(
            f"{path} is no kubeconfig in JSON with a token ({error!r}): make one with "
            "`kubectl config view --raw --minify --flatten -o json`."
        ) from error
    if urlsplit(server).scheme != "https" and urlsplit(server).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SchedulerError(f"{path} names {server}: a token is only sent over https.")
    return server, token, context
