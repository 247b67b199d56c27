"""The network between agents and the server: drops, delays, duplicates, reorders, and can be cut per host.

It stands where the agent's client has its connections (`Client._make_pool`, `Client._connection`); all above is real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from muster_agent.runtime.client import CALL_SECONDS, Client

from tests.simulation.world import Event, Host, World, current

if TYPE_CHECKING:
    from tests.simulation.server import Server


@dataclass(frozen=True, slots=True)
class Faults:
    """Ratios of requests that each befalls, one after the other; `delay_seconds` is the longest of a slow way."""

    request_lost_ratio: float = 0.0
    reply_lost_ratio: float = 0.0
    duplicate_ratio: float = 0.0
    slow_ratio: float = 0.0
    delay_seconds: float = 0.0


CALM = Faults()


@dataclass(frozen=True, slots=True)
class Response:
    """As urllib3 gives it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Exchange:
    """One request on its way; the first thing that happens to it, an answer or an error, is what its sender gets."""

    def __init__(self, network: Network, host: Host) -> None:
        self.network = network
        self.host = host
        self.ended = Event(network.world)
        self.response: Response | None = None
        self.error: OSError | None = None
        self.is_answerable = True

    def answer(self, response: Response) -> None:
        if self.is_answerable:
            self.network.carry(self, lambda: self._end(response=response))

    def break_off(self, error: OSError) -> None:
        """The server's side closed the connection; a cut keeps even that from being heard."""
        self.network.carry(self, lambda: self._end(error=error))

    def shutdown(self, _how: int = 0) -> None:
        """The sender's own side, as `socket.shutdown`."""
        self._end(error=ConnectionAbortedError("interrupted"))

    def wait(self, seconds: float) -> Response:
        """The answer. Raises OSError."""
        self.ended.wait(seconds)
        if self.response is not None:
            return self.response
        raise self.error or TimeoutError(f"no answer within {seconds} s")

    def _end(self, *, response: Response | None = None, error: OSError | None = None) -> None:
        if not self.ended.is_set():
            self.response, self.error = response, error
            self.ended.set()


class Network:
    def __init__(self, world: World, server: Server, random: Random) -> None:
        self.world = world
        self.server = server
        self.faults = CALM
        self.cut: set[str] = set()
        """Names of the hosts that nothing reaches and that reach nothing."""
        self._random = random
        self._sent: dict[str, Any] = {}

    def replay(self, target: str) -> None:
        """The latest request to `target` arrives once more, as one that something on the way had held up."""
        self._sent[target]()

    def send(self, host: Host, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        exchange = Exchange(self, host)
        faults = self.faults
        is_lost = self._random.random() < faults.request_lost_ratio
        exchange.is_answerable = self._random.random() >= faults.reply_lost_ratio
        if not is_lost:
            self.carry(exchange, lambda: self.server.accept(exchange, method, target, body, headers))

        def again() -> None:
            copy = Exchange(self, host)  # whose answer nobody waits for
            self.carry(copy, lambda: self.server.accept(copy, method, target, body, headers))

        self._sent[target] = again
        if self._random.random() < faults.duplicate_ratio:
            again()
        return exchange

    def carry(self, exchange: Exchange, arrive: Any) -> None:
        """One way: each takes its own time, so what was sent later may arrive earlier."""
        if exchange.host.name in self.cut:
            return
        slow = self._random.random() < self.faults.slow_ratio
        seconds = self._random.uniform(0.001, self.faults.delay_seconds if slow else 0.01)
        self.world.after(seconds, lambda: arrive() if exchange.host.name not in self.cut else None)


class SimulatedClient(Client):
    """The agent's client on the simulated network."""

    network: Network

    def _make_pool(self) -> Any:
        return _Pool()

    def _connection(self, timeout_seconds: float) -> Any:
        return _Connection(timeout_seconds)


class _Pool:
    def request(
        self, method: str, target: str, *, body: bytes, headers: Mapping[str, str], **_options: Any
    ) -> Response:
        return SimulatedClient.network.send(current().process.host, method, target, body, headers).wait(CALL_SECONDS)


class _Connection:
    """`sock` is what `Client.interrupt` shuts down."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self.sock: Exchange | None = None

    def request(self, method: str, target: str, *, body: bytes, headers: Mapping[str, str]) -> None:
        self.sock = SimulatedClient.network.send(current().process.host, method, urlsplit(target).path, body, headers)

    def getresponse(self) -> Response:
        assert self.sock is not None
        return self.sock.wait(self._timeout_seconds)

    def close(self) -> None:
        """Nothing is kept open between requests."""
