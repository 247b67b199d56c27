"""The holder's view of a lease."""

from __future__ import annotations

from muster_agent.runtime.lease import Lease


def test_a_lease_counts_from_when_the_renewal_was_sent_not_answered() -> None:
    now = [100.0]
    lease = Lease(60.0, sent_mono=100.0, monotonic=lambda: now[0])
    now[0] = 130.0  # an answer that took 20 s
    lease.renew(60.0, sent_mono=110.0)
    now[0] = 169.9
    assert not lease.is_over
    now[0] = 170.0
    assert lease.is_over


def test_an_answer_that_overtakes_a_later_one_does_not_shorten_the_lease() -> None:
    now = [100.0]
    lease = Lease(60.0, sent_mono=100.0, monotonic=lambda: now[0])
    lease.renew(60.0, sent_mono=120.0)
    lease.renew(60.0, sent_mono=110.0)
    now[0] = 175.0
    assert not lease.is_over


def test_it_is_due_long_before_it_is_over() -> None:
    now = [100.0]
    lease = Lease(60.0, sent_mono=100.0, monotonic=lambda: now[0])
    assert not lease.is_due
    now[0] = 115.0
    assert lease.is_due
