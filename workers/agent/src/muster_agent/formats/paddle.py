"""State of Paddle beside the Trainer's own files, as PaddleNLP's Trainer saves it: `model_state.pdparams`,
`optimizer.pdopt`, `scheduler.pdparams`. They are bare pickles with their values inside, so only beginning and end are
looked at."""

from __future__ import annotations

from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.torch_archive import add_torch_shard

_ENDINGS = (".pdparams", ".pdopt")


def add_paddle(draft: Draft, folder: Folder) -> None:
    """Take the files with Paddle's endings into the draft."""
    for name in sorted(name for name in folder.files if name.endswith(_ENDINGS)):
        role = Role.OPTIMIZER if name.endswith(".pdopt") else _ROLES.get(name.partition(".")[0], Role.MODEL)
        add_torch_shard(draft, folder, name, role=role)
        if draft.roles is not None:
            draft.roles.add(role)


_ROLES = {"scheduler": Role.SCHEDULER, "scaler": Role.OTHER}
