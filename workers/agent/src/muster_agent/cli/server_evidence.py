"""Asking the control plane what it knows of a run, within a fixed time and without ever failing a restart."""

from __future__ import annotations

import threading
from urllib.parse import quote

import msgspec

from muster_agent.cli.server import NoAnswer, get, refuse_other_addresses
from muster_agent.decide.evidence import ServerEvidence

BUDGET_SECONDS = 1.5
"""With the rest of the command, an answer comes within 2 s."""


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`predicted_seconds` is for the server's own choice, `path`."""

    evidence: tuple[ServerEvidence, ...] = ()
    predicted_seconds: float | None = None
    path: str | None = None


def ask_server(server: str, run: str, token: str | None, *, budget_seconds: float = BUDGET_SECONDS) -> ServerAnswer:
    """What the server knows of `run`. Raises NoAnswer after at most `budget_seconds`, name look-up included: the
    request runs in a thread of its own, which is left behind when it does not come back."""
    refuse_other_addresses(server)
    result: list[ServerAnswer | NoAnswer] = []

    def work() -> None:
        try:
            result.append(_request(server, run, token, budget_seconds))
        except NoAnswer as reason:
            result.append(reason)

    thread = threading.Thread(target=work, daemon=True, name="muster-server-evidence")
    thread.start()
    thread.join(budget_seconds)
    if not result:
        raise NoAnswer(f"{server} gave no answer within {budget_seconds:.1f} s")
    if isinstance(result[0], NoAnswer):
        raise result[0]
    return result[0]


def _request(server: str, run: str, token: str | None, budget_seconds: float) -> ServerAnswer:
    path = f"runs/{quote(run, safe='')}/resume-point?evidence=1"
    status, body = get(server, path, token, timeout_seconds=budget_seconds)
    return _understood(server, run, status, body)


def _understood(server: str, run: str, status: int, body: bytes) -> ServerAnswer:
    if status in (401, 403):
        raise NoAnswer(f"{server} refused the token ({status}); set MUSTER_TOKEN to one that may read runs")
    if status == 404:
        raise NoAnswer(f"{server} knows no run {run!r}")
    if status != 200:
        raise NoAnswer(f"{server} answered with status {status}")
    try:
        return msgspec.json.decode(body, type=ServerAnswer)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise NoAnswer(f"{server} gave an answer that is not understood") from error
