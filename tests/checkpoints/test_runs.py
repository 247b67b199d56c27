"""Runs by name."""

from __future__ import annotations

import factories
import pytest

from apps.checkpoints import runs
from apps.core.errors import InvalidInput

pytestmark = pytest.mark.django_db


def test_a_run_is_made_once_per_cluster_and_name() -> None:
    east, west = factories.cluster(), factories.cluster("west")
    first = runs.get_or_create_run(cluster=east, name="llama")
    assert runs.get_or_create_run(cluster=east, name="llama") == first
    assert runs.get_or_create_run(cluster=west, name="llama") != first


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0b", "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        runs.get_or_create_run(cluster=factories.cluster(), name=name)


def test_a_field_that_is_not_changeable_is_refused() -> None:
    run = factories.run(factories.cluster())
    with pytest.raises(InvalidInput, match="no changeable field 'name'"):
        runs.update_run(run=run, actor="olga", name="other")
