"""Join tokens: what each buys, and the error of each that buys nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from live import LiveAgent, LiveServer
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.retry import Conflicted, CredentialRefused, Refused, ServerError, TaskGone
from raw import RawAgent, enrolment


def client(server: LiveServer) -> Client:
    return Client(server.url, credential=lambda: "", clock=ServerClock(), agent_version="0.1.0")


def token(server: LiveServer, **fields: object) -> str:
    made: str = server.call("join_token", server.call("cluster", "contract"), **fields)
    return made


def test_a_lost_enrolment_reply_is_asked_for_again_and_gives_the_same_agent(server: LiveServer) -> None:
    agent = RawAgent(server)
    first = agent.id, agent.credential
    agent.poll()
    agent.take(agent.client.enrol(agent.request))  # the used-up token still answers its own nonce
    assert (agent.id, agent.credential) == first
    agent.poll()


def test_another_nonce_on_the_same_machine_buys_another_credential(server: LiveServer) -> None:
    agent = RawAgent(server)
    first = agent.credential
    agent.take(agent.client.enrol(enrolment(token(server), agent.name, nonce="made-anew")))
    assert agent.credential != first
    agent.poll()
    agent.credential = first
    with pytest.raises(CredentialRefused) as refused:
        agent.poll()
    assert refused.value.code == "credential_unknown"


def test_a_join_token_that_is_not_known_is_refused(server: LiveServer) -> None:
    with pytest.raises(CredentialRefused) as refused:
        client(server).enrol(enrolment("mjt_never-made", "nobody"))
    assert refused.value.code == "join_token_unknown"


def test_a_used_join_token_admits_no_second_node(server: LiveServer) -> None:
    used = token(server)
    client(server).enrol(enrolment(used, "first-of-two"))
    with pytest.raises(Conflicted) as refused:
        client(server).enrol(enrolment(used, "second-of-two"))
    assert refused.value.code == "join_token_used"


def test_a_join_token_for_another_network_is_refused(server: LiveServer) -> None:
    with pytest.raises(TaskGone) as refused:
        client(server).enrol(enrolment(token(server, cidr="10.1.0.0/16"), "elsewhere"))
    assert refused.value.code == "join_token_address"
    assert "127.0.0.1" in str(refused.value)


def test_expired_and_revoked_join_tokens_say_which_they_are(server: LiveServer) -> None:
    expired = token(server)
    server.call("expire_join_tokens")
    with pytest.raises(TaskGone) as late:
        client(server).enrol(enrolment(expired, "late"))
    assert late.value.code == "join_token_expired"
    revoked = token(server)
    server.call("revoke_join_tokens")
    with pytest.raises(TaskGone) as refused:
        client(server).enrol(enrolment(revoked, "late"))
    assert refused.value.code == "join_token_revoked"


def test_of_two_nodes_that_race_for_the_last_use_one_gets_it(server: LiveServer) -> None:
    last, outcomes, together = token(server), [], threading.Barrier(8)

    def join(number: int) -> None:
        together.wait()
        try:
            client(server).enrol(enrolment(last, f"racer-{number}"))
            outcomes.append("joined")
        except ServerError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=join, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["join_token_used"] * 7 + ["joined"]


def test_a_fleet_token_admits_many_who_wait_for_approval(server: LiveServer) -> None:
    agent = RawAgent(server, token=token(server, max_uses=3))
    task = agent.inventory()
    waiting = agent.poll()
    assert (waiting.state, waiting.tasks) == ("pending", ())
    server.call("approve", agent.id)
    assert [order.task_id for order in agent.poll().tasks] == [task]


def test_another_machine_does_not_take_over_a_working_nodes_name(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll()
    other = enrolment(token(server), agent.name, machine_id="another machine", nonce="another")
    with pytest.raises(Conflicted) as refused:
        client(server).enrol(other)
    assert refused.value.code == "node_name_taken"
    server.call("revoke", agent.id)
    assert client(server).enrol(other).agent_id == agent.id


def test_a_bad_node_name_or_protocol_is_refused_with_what_is_wrong(server: LiveServer) -> None:
    with pytest.raises(Refused):
        client(server).enrol(enrolment(token(server), "no spaces please"))
    with pytest.raises(Conflicted) as refused:
        client(server).enrol(enrolment(token(server), "from-the-future", protocols=(7,)))
    assert refused.value.code == "incompatible"


def test_the_command_line_says_why_joining_failed(
    server: LiveServer, make_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agent = make_agent("cli-join")
    assert (agent.state / "credential").stat().st_mode & 0o777 == 0o600
    assert (agent.state / "config.json").stat().st_mode & 0o777 == 0o600
    again = ["join", "--server", server.url, "--name", "cli-join-2", "--root", str(tmp_path)]
    assert "already" in agent.muster(*again, code=5)
    agent.state = tmp_path / "second"
    assert "used up" in agent.muster(*again, code=4)
    assert "plain http is only for loopback" in agent.muster(*again[:2], "http://10.0.0.1", *again[3:], code=2)
    assert "no answer" in agent.muster(*again[:2], "http://127.0.0.1:9", *again[3:], code=9)
    agent.environment["MUSTER_JOIN_TOKEN"] = "mjt_wrong"
    assert "not known here" in agent.muster(*again, code=4)
    agent.environment["MUSTER_JOIN_TOKEN"] = ""
    assert "no join token" in agent.muster(*again, code=2)
    assert not (tmp_path / "second" / "credential").exists()
