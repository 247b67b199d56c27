"""The control plane's settings with the protocol's times shortened, so that leases run out within a test."""

from __future__ import annotations

import os

from controlplane.settings import *  # noqa: F403

TASK_ACK_SECONDS = 2
TASK_LEASE_SECONDS = int(os.environ.get("MUSTER_CONTRACT_LEASE_SECONDS", "3"))
TASK_GRACE_SECONDS = 1
SCAN_SLICE_SECONDS = float(os.environ.get("MUSTER_CONTRACT_SLICE_SECONDS", "30"))
SCAN_LEASE_SECONDS = float(os.environ.get("MUSTER_CONTRACT_SCAN_LEASE_SECONDS", "120"))
AGENT_POLL_SECONDS = 5
AGENT_STALE_SECONDS = 6
AGENT_LOST_SECONDS = 10
TRANSFER_SLICE_SECONDS = float(os.environ.get("MUSTER_CONTRACT_TRANSFER_SLICE_SECONDS", "30"))
TRANSFER_LEASE_SECONDS = float(os.environ.get("MUSTER_CONTRACT_TRANSFER_LEASE_SECONDS", "120"))
TRANSFER_RETRY_SECONDS = float(os.environ.get("MUSTER_CONTRACT_TRANSFER_RETRY_SECONDS", "30"))
