"""Messages of `/agent/v1/`. Times are Unix seconds as the server's clock has them; durations from monotonic clocks.

Unknown fields are ignored on receipt (a newer peer may add some); unknown task kinds are refused as `unsupported`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.copies import CopyCursor, CopyOrder, RemovalOrder
from muster_agent.protocol.results import CeilingReport, ReloadReport
from muster_agent.protocol.stores import StoreAt

PROTOCOL_VERSION = 1
SUPPORTED_PROTOCOLS = (1,)
MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of one request, also once unpacked."""


class TaskKind(StrEnum):
    INVENTORY = "inventory"
    SEAL = "seal"
    VERIFY = "verify"
    RELOAD = "reload"
    CEILING = "ceiling"
    DISRUPT = "disrupt"
    PROBE = "probe"
    COPY = "copy"
    BANDWIDTH = "bandwidth"
    LOADER_COMPARE = "loader_compare"


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    pass


# -- enrolment ---------------------------------------------------------------------------------------------------------
class EnrolRequest(_Message, frozen=True, kw_only=True):
    join_token: str
    node_name: str
    machine_id: str
    nonce: str
    """Made once per enrolment and kept on disk: the same nonce again buys the same agent; a lost reply is harmless."""
    agent_version: str
    protocols: tuple[int, ...]
    facts: dict[str, Any] = {}


class EnrolReply(_Message, frozen=True, kw_only=True):
    agent_id: str
    credential: str
    state: str
    server_unix_seconds: float


# -- poll: heartbeat, hand-out and cancel channel ----------------------------------------------------------------------
class RunningTask(_Message, frozen=True, kw_only=True):
    task_id: str
    attempt: int
    cancelling: bool = False
    """The agent knows already that it shall stop; the server need not answer a poll at once to say so again."""


class PollRequest(_Message, frozen=True, kw_only=True):
    boot_id: str
    seq: int
    free_slots: int
    running: tuple[RunningTask, ...] = ()
    draining: bool = False
    agent_version: str = ""
    protocol: int = PROTOCOL_VERSION
    wall_unix_seconds: float = 0.0
    clock_offset_seconds: float | None = None
    """Server clock minus this node's, by the agent's own estimate; None until it has one."""
    facts: dict[str, Any] | None = None
    """Sent on the first poll of a boot and when they change: roots, mounts, cpu, gpu."""
    wait_seconds: float = 50.0


class TaskOrder(_Message, frozen=True, kw_only=True):
    task_id: str
    attempt: int
    kind: str
    params: dict[str, Any]
    lease_seconds: float
    has_barrier: bool = False


class PollReply(_Message, frozen=True, kw_only=True):
    server_unix_seconds: float
    tasks: tuple[TaskOrder, ...] = ()
    cancel: tuple[str, ...] = ()
    drain: bool = False
    state: str = "online"
    next_poll_seconds: float = 0.0


# -- task life ---------------------------------------------------------------------------------------------------------
class AckRequest(_Message, frozen=True, kw_only=True):
    attempt: int


class AckReply(_Message, frozen=True, kw_only=True):
    server_unix_seconds: float
    lease_seconds: float


class ReadyRequest(_Message, frozen=True, kw_only=True):
    """`wait_seconds`: how long the server may hold the answer until the barrier opens."""

    attempt: int
    wait_seconds: float = 25.0


class ReleaseRequest(_Message, frozen=True, kw_only=True):
    """A draining agent hands a task back."""

    attempt: int
    reason: str = ""


class ReleaseReply(_Message, frozen=True, kw_only=True):
    state: str


class TaskEvent(_Message, frozen=True, kw_only=True):
    """`kind`: progress, phase (with `edge` begin or end), log, or injected."""

    seq: int
    kind: str
    at_unix_seconds: float
    mono_seconds: float
    phase: str | None = None
    edge: str | None = None
    rank: int | None = None
    done_bytes: int | None = None
    total_bytes: int | None = None
    message: str | None = None
    data: dict[str, Any] = {}


class EventBatch(_Message, frozen=True, kw_only=True):
    attempt: int
    events: tuple[TaskEvent, ...]
    dropped: int = 0
    """Progress events thrown away because the spool was full; counted, never silent."""


class EventReply(_Message, frozen=True, kw_only=True):
    acked_seq: int
    cancel: bool
    lease_seconds: float
    server_unix_seconds: float | None = None


class ReadyReply(_Message, frozen=True, kw_only=True):
    """Answer to the barrier: `start_unix_seconds` is set once the quorum is ready; `abort` says why it never will."""

    server_unix_seconds: float
    start_unix_seconds: float | None = None
    abort: str | None = None


class TaskResult(_Message, frozen=True, kw_only=True):
    """`outcome`: done, failed, cancelled or unsupported. `body` is the task kind's result type, None unless done."""

    outcome: str
    body: dict[str, Any] | None = None
    error: str | None = None
    error_code: str | None = None


class ResultReply(_Message, frozen=True, kw_only=True):
    """`late`: the attempt had been given up; the result is kept and shown, and does not count."""

    state: str
    late: bool = False


# -- typed parameters and results by kind ------------------------------------------------------------------------------
class InventoryParams(_Message, frozen=True, kw_only=True):
    root: str
    """Absolute path on the node, inside one of the agent's configured roots."""
    store: StoreAt = StoreAt()
    known: bool = True
    """False: read every checkpoint again, also where its files are as this lister knows them."""
    settle_seconds: float = 2.0
    """What looks unfinished and may be being written is looked at twice, so far apart."""


class RootMark(_Message, frozen=True, kw_only=True):
    """Tells one root from another at the same path, such as a mount point from what was mounted there."""

    mount_point: str
    device: int
    inode: int


class InventoryBody(_Message, frozen=True, kw_only=True):
    root: str
    checkpoints: tuple[ShardMap, ...]
    """Newest step first, without tensors (`ShardMap.tensors` is empty here)."""
    manifests: dict[str, Manifest] = {}
    """Manifests found beside the data, by checkpoint path: a lost control-plane database is rebuilt from them."""
    findings: tuple[Finding, ...] = ()
    """About the root itself: pointers, leftovers, what could not be listed."""
    pointers: tuple[Pointer, ...] = ()
    """What the frameworks' own latest-files say."""
    root_mark: RootMark | None = None
    entries: int | None = None
    """Names seen in all folders that were listed; None from an agent that does not count. So for the next two."""
    unchanged: int | None = None
    """Checkpoints that were as this lister knew them, so that only their folders were listed."""
    seconds: float | None = None
    clock: str = "local"
    """Whose clock ages were judged by: `storage`, or `local` where the storage does not tell its own."""


class SealParams(_Message, frozen=True, kw_only=True):
    path: str
    store: StoreAt = StoreAt()
    write_beside: bool = True


class SealBody(_Message, frozen=True, kw_only=True):
    manifest: Manifest | None
    """None where the bytes were refused; `findings` says why."""
    manifest_path: str | None
    seconds: float
    findings: tuple[Finding, ...] = ()


class VerifyParams(_Message, frozen=True, kw_only=True):
    path: str
    store: StoreAt = StoreAt()
    manifest: Manifest | None
    """None only for a look without reading data."""
    sample_ratio: float = 1.0
    """0: no data is read, only sizes and metadata are looked at."""
    seed: int = 0
    turn: int = 0
    """Which stretch of the order that `seed` gives: turns in a row read different chunks until all were read."""
    max_bytes_per_second: int | None = None
    through_cache: bool = False  # see `jobs.chunks.read_shards`


class VerifyBody(_Message, frozen=True, kw_only=True):
    verified: bool | None
    """True: every byte looked at is equal; False: damage, see findings; None: could not be looked at."""
    checked_bytes: int
    checked_chunks: int
    total_chunks: int
    seconds: float
    fingerprint: str
    """Of the files as they lay when they were read; evidence holds only for it."""
    findings: tuple[Finding, ...] = ()
    read_xxh3_128: str = ""
    """Over the digests of the chunks that were read, in the order of paths and chunks: after a full verification that
    passed it is the manifest's `root_xxh3_128`."""


class GivenObject(_Message, frozen=True, kw_only=True):
    """An object that the control plane lets a node read for a while. `urls` are signed, one per endpoint, and secret:
    they are made when the task is handed out, and never stored or logged. Size and time are as the inventory has
    them: a listing's times are finer than those of an answer."""

    urls: tuple[str, ...]
    size_bytes: int | None = None
    mtime_ns: int = 0


class ReloadParams(_Message, frozen=True, kw_only=True):
    path: str
    store: StoreAt = StoreAt()
    shards: tuple[str, ...]
    """Relative paths this node reads; with `ranks` naming whose they are."""
    ranks: tuple[int, ...] = ()
    manifest: Manifest | None = None
    backend: str = "auto"
    device: str = "auto"
    resident: bool = False
    """Keep every byte in host memory, with the tensors as views; otherwise each block is read over the last."""
    ranks_on_host: int | None = None
    """Read every byte once into shared memory, from where so many processes of this host take all of them."""
    share: tuple[int, int] | None = None
    """(part, parts): of all these bytes, only this reader's even share; None reads everything."""
    cold_required: bool = False
    """Refuse to time a read of bytes that are cached, or of which that is not known."""
    evict: bool = True
    max_bytes_per_second: int | None = None
    objects: dict[str, GivenObject] = {}
    """Where `path` lies in a bucket: each of `shards`, to be read without credentials of this node. Empty: it signs its
    requests itself."""


class ReloadBody(_Message, frozen=True, kw_only=True):
    report: ReloadReport
    started_unix_seconds: float
    """When this node's reading began, on the server's clock; the spread over nodes is the start skew."""
    fingerprint: str


class CeilingParams(_Message, frozen=True, kw_only=True):
    """Read the largest files under `root` in several ways, each for at most `seconds_per_try`."""

    root: str
    store: StoreAt = StoreAt()
    seconds_per_try: float = 3.0


class CeilingBody(_Message, frozen=True, kw_only=True):
    report: CeilingReport


class DisruptParams(_Message, frozen=True, kw_only=True):
    """Break one worker of a run on this node. `fault`:

    process: `signal_name` to a process of the agent's own user that the trainer's hook registered (`pid`, else the
    lowest rank). exception: the hook of such a process raises at its next step, where the trainer opted in.
    link: run what the node's own configuration calls `link`, which undoes itself.
    """

    run: str
    attempt: str
    fault: str = "process"
    signal_name: str = "SIGKILL"
    pid: int | None = None
    link: str = ""


class DisruptBody(_Message, frozen=True, kw_only=True):
    """`injected_unix_seconds`: the signal or the command; for an exception when the process was asked, and its own
    record `fault_injected` says when it raised. `undone_after_seconds`: what the configuration says of the link."""

    injected_unix_seconds: float
    pid: int | None = None
    signal_name: str = ""
    undone_after_seconds: float | None = None


class CopyParams(_Message, frozen=True, kw_only=True):
    """One step of a transfer, or as much of it as fits into `seconds`. `step` is the transfer's state (`planned`,
    `copying`, `proving`, `switching`), with `copy`; `discarding`, with `copy`; or `retiring`, with `removal`."""

    step: str
    asked_unix_seconds: float
    """When the rules of a removal were asked, by the server's clock: an old answer is not acted upon."""
    cursor: CopyCursor
    copy: CopyOrder | None = None
    removal: RemovalOrder | None = None
    seconds: float = 120.0


class CopyBody(_Message, frozen=True, kw_only=True):
    """`state`: ended; going_on (its time was over, or it was told to stop); stays (a removal that something speaks
    against, as `problem` says); trouble (`problem_code`); asked_too_long_ago."""

    state: str
    cursor: CopyCursor
    seconds: float
    shard_map: ShardMap | None = None
    """How the copy reads in its place after the switch, without tensors."""
    problem_code: str = ""
    problem: str = ""
    findings: tuple[Finding, ...] = ()


# -- what training hooks report, forwarded by the agent ----------------------------------------------------------------
class HookRecord(_Message, frozen=True, kw_only=True):
    """`kind`: process_started, process_ended, phase, step, save_started, save_finished, failure_detected,
    launch_started, resumed_from, fault_injected. (`source`, `seq`) is unique, so sending twice is harmless."""

    source: str
    seq: int
    kind: str
    run: str
    attempt: str
    at_unix_seconds: float
    mono_seconds: float
    pid: int | None = None
    rank: int | None = None
    step: int | None = None
    loss: float | None = None
    phase: str | None = None
    edge: str | None = None
    data: dict[str, Any] = {}


class HookBatch(_Message, frozen=True, kw_only=True):
    records: tuple[HookRecord, ...]


class HookReply(_Message, frozen=True, kw_only=True):
    accepted: int
