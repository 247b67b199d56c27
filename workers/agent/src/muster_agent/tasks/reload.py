"""Task kind `reload`: everything up to the first read before the barrier, the reading after it."""

from __future__ import annotations

import msgspec

from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.reload import NotCold
from muster_agent.jobs.reload import prepare as prepare_reload
from muster_agent.jobs.selection import ShardsNotFound
from muster_agent.protocol.wire import ReloadBody, ReloadParams
from muster_agent.reload.gpu.device import DeviceUnavailable
from muster_agent.reload.memory import NoRoom
from muster_agent.reload.shared import NotShared
from muster_agent.tasks.bucket import stores_for
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: ReloadParams, context: TaskContext) -> Run:
    path = context.roots.resolve_checkpoint(params.path)
    own_limit = context.limits.max_bytes_per_second
    rates = [rate for rate in (params.max_bytes_per_second, own_limit) if rate is not None]
    wanted = msgspec.structs.replace(params, path=path, max_bytes_per_second=min(rates, default=None))
    try:
        prepared = prepare_reload(wanted, stores=() if wanted.objects else stores_for(path, params.store))
    except (CheckpointNotFound, ShardsNotFound) as error:
        raise TaskFailed("checkpoint_not_found", str(error)) from error
    except ValueError as error:
        raise TaskFailed("not_possible_here", str(error)) from error
    except RootUnreadable as error:
        raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error

    def run() -> ReloadBody:
        context.reporter.begin("read")
        try:
            body = prepared.run(context.control)
        except (CheckpointNotFound, ShardsNotFound) as error:
            raise TaskFailed("checkpoint_not_found", str(error)) from error
        except RootUnreadable as error:
            raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error
        except (NotCold, NoRoom, NotShared, DeviceUnavailable) as error:
            raise TaskFailed("not_possible_here", str(error)) from error
        finally:
            prepared.close()
        started = body.started_unix_seconds + context.clock_offset_seconds()
        return msgspec.structs.replace(body, started_unix_seconds=started)

    return run
