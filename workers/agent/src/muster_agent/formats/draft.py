"""What a format reader says about one checkpoint before anything is concluded from it: facts only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from muster_agent.formats.base import Finding, Role, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import FileSeen


@dataclass(slots=True)
class Draft:
    """`committed` is True or False where the format has a commit marker, else None. `roles` is None where the metadata
    could not say what is inside. `undecided` is the reason why nothing can be concluded about the bytes."""

    format: str
    committed: bool | None = None
    shards: list[ShardEntry] = field(default_factory=list)
    tensors: list[TensorRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    roles: set[Role] | None = field(default_factory=set)
    step: int | None = None
    world_size: int | None = None
    dp: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    must_match: tuple[str, ...] = ()
    settling: bool = False
    """A name or a file that only a running save leaves says that this one has not ended, or was abandoned."""
    temporary_is_recent: bool = False
    """A file under a name that only an unfinished copy or save has was written just now."""
    undecided: str | None = None
    structure_known: bool = False
    """What is said about the bytes holds even where a pickle among them asks for code."""
    withheld: bool = False
    """Metadata was refused before its end, so that it says nothing of the bytes."""
    not_resumable_reasons: list[str] = field(default_factory=list)
    marker: str = ""
    """The name of the commit marker that is not there, where the format's reader can tell."""
    step_source: str = ""
    """Which file says the step, where it is one of several."""
    number_is_no_step: bool = False
    """The number in its name counts something else, such as epochs, in a folder that counts steps."""


def lone_file(format_name: str, name: str, seen: FileSeen) -> Draft:
    """The draft of a checkpoint that is one file of weights; it has a finding already where the file is empty."""
    draft = Draft(format_name, roles=None)
    draft.shards.append(ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.MODEL))
    if not seen.size_bytes:
        draft.findings.append(finding("shard_empty", path=name, detail=f"{name} has 0 bytes"))
    return draft


def nest(draft: Draft, inner: Draft, folder_name: str) -> None:
    """Take the draft of the sub-folder `folder_name` into its parent's: paths get its name in front. What the two say
    of commit, step and layout stays the caller's to weigh."""
    under = f"{folder_name}/"
    replace = msgspec.structs.replace
    draft.shards.extend(replace(shard, path=under + shard.path) for shard in inner.shards)
    draft.tensors.extend(replace(tensor, shard=under + tensor.shard) for tensor in inner.tensors)
    draft.findings.extend(
        found if found.path.startswith("/") or "://" in found.path else replace(found, path=under + found.path)
        for found in inner.findings
    )
    draft.roles = None if draft.roles is None or inner.roles is None else draft.roles | inner.roles
    draft.undecided = draft.undecided or inner.undecided
    draft.settling = draft.settling or inner.settling
    draft.structure_known = draft.structure_known or inner.structure_known
    draft.withheld = draft.withheld or inner.withheld
    draft.not_resumable_reasons.extend(inner.not_resumable_reasons)


_ROLE_WORDS: dict[str, Role] = {
    "optimizer": Role.OPTIMIZER,
    "optimizers": Role.OPTIMIZER,
    "optim": Role.OPTIMIZER,
    "optimizer_state": Role.OPTIMIZER,
    "optimizer_states": Role.OPTIMIZER,
    "opt_state": Role.OPTIMIZER,
    "optimizer_state_dict": Role.OPTIMIZER,
    "last_optimizer_state": Role.OPTIMIZER,
    "rng": Role.RNG,
    "rng_state": Role.RNG,
    "rng_states": Role.RNG,
    "rngs": Role.RNG,
    "prng_key": Role.RNG,
    "random_state": Role.RNG,
    "dataloader": Role.DATALOADER,
    "data_loader": Role.DATALOADER,
    "dataloader_state": Role.DATALOADER,
    "loader": Role.DATALOADER,
    "data_iter": Role.DATALOADER,
    "sampler": Role.DATALOADER,
    "scheduler": Role.SCHEDULER,
    "lr_scheduler": Role.SCHEDULER,
    "lr_schedulers": Role.SCHEDULER,
    "schedulers": Role.SCHEDULER,
    "opt_param_scheduler": Role.SCHEDULER,
    "train_state": Role.OTHER,
    "trainer": Role.OTHER,
    "step": Role.OTHER,
    "global_step": Role.OTHER,
    "iteration": Role.OTHER,
    "epoch": Role.OTHER,
}


def role_of(tensor: str, wrappers: Collection[str] = ()) -> Role:
    """The role of a tensor by the first part of its name that tells one: `optimizer.exp_avg.w`, `optimizer_0.w` and
    `state.optimizers.w` are optimizer state; else model. `wrappers`: first parts that tell nothing (`wrappers_of`)."""
    head = tensor.split(".", 1)[0].split("/", 1)[0]
    if head in wrappers or _is_wrapper(head):
        head = tensor.partition(".")[2].split(".", 1)[0]
    return _role_of_word(head) or Role.MODEL


def _role_of_word(word: str) -> Role | None:
    word = word.lower()
    return _ROLE_WORDS.get(word) or _ROLE_WORDS.get(word.rstrip("0123456789").rstrip("_"))


def wrappers_of(names: Iterable[str]) -> frozenset[str]:
    """First parts below which both a model and its optimizer lie, as in `training.model.w` and `training.optimizer.w`:
    the name that somebody gave to the one object which holds all state."""
    inside: dict[str, set[str]] = {}
    for name in names:
        head, _dot, rest = name.partition(".")
        inside.setdefault(head, set()).add(rest.partition(".")[0])
    return frozenset(
        head
        for head, words in inside.items()
        if _role_of_word(head) is None
        and not words.isdisjoint(_MODEL_WORDS)
        and any(_role_of_word(word) is Role.OPTIMIZER for word in words)
    )


_MODEL_WORDS = frozenset({"model", "models", "model_state_dict", "module", "net", "network", "params", "state_dict"})


def roles_of(names: Collection[str]) -> set[Role]:
    """The roles of many tensors; as role_of, at the cost of one look-up per distinct first part."""
    by_head = {name.split(".", 1)[0]: name for name in names}
    wrapped = (name for name in names if _is_wrapper(name.split(".", 1)[0])) if any(map(_is_wrapper, by_head)) else ()
    return {role_of(name) for name in (*by_head.values(), *wrapped)}


def _is_wrapper(head: str) -> bool:
    """Whether the first part of a name only says that all state lies in one object: Composer's `state`, the `app` of
    PyTorch's own example; Megatron numbers the parts of a composed optimizer (`chained_0.optimizer.exp_avg.w`)."""
    return head in _WRAPPERS or head.startswith("chained_")


_WRAPPERS = frozenset({"state", "app"})


_ORDER = list(Role)


def first_role(roles: set[Role], default: Role = Role.OTHER) -> Role:
    """The one role of a shard that holds several: the first in Role's order."""
    return min(roles, key=_ORDER.index, default=default)
