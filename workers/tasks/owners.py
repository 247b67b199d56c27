"""Which service moves which kind of row forward. Fleet knows owners only by kind and id; this table joins them."""

from __future__ import annotations

from collections.abc import Callable

from apps.audits import repairs
from apps.audits import taking as audits
from apps.checkpoints import scans
from apps.dashboard.bulk import services as bulk
from apps.drills import engine as drills
from apps.drills import node_actions
from apps.storage import ceilings
from apps.transfers import moving as transfers

ADVANCE: dict[str, Callable[[str], None]] = {
    "scan": scans.advance,
    "transfer": transfers.advance,
    "audit": audits.advance,
    "repair": repairs.advance,
    "drill": drills.advance,
    "node_action": node_actions.advance,
    "ceiling": ceilings.advance,
    bulk.OWNER_KIND: bulk.advance,
}
"""Each takes the row's id, looks at the row and its tasks, and does what is due now; calling it twice is harmless."""

DUE: tuple[tuple[str, Callable[[], list[str]]], ...] = (
    ("scan", scans.due),
    ("transfer", transfers.due),
    ("audit", audits.due),
    ("repair", repairs.due),
    ("drill", drills.due),
    ("node_action", node_actions.due),
    ("ceiling", ceilings.due),
    (bulk.OWNER_KIND, bulk.due),
)
"""Each gives the ids of unfinished rows whose `next_attempt_at` has come."""
