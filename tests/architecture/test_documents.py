"""Documents are kept true by comparing them with the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = [*ROOT.glob("apps/**/*.py"), *ROOT.glob("controlplane/*.py"), *ROOT.glob("workers/**/*.py")]


def sources() -> list[Path]:
    return [path for path in PRODUCT if "migrations" not in path.parts and "build" not in path.parts]


def test_every_environment_variable_of_the_settings_is_documented() -> None:
    code = (ROOT / "controlplane/settings.py").read_text()
    named = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', code))
    documented = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/settings.md").read_text()))
    assert named
    assert named <= documented


def test_every_system_check_is_documented() -> None:
    ids = set(re.findall(r'id="muster\.([EW]\d+)"', (ROOT / "apps/core/checks.py").read_text()))
    text = (ROOT / "docs/settings.md").read_text()
    assert ids
    assert all(identifier in text for identifier in ids)


def test_every_direct_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    wanted = [*project["project"]["dependencies"], *sum(extras, []), *project["dependency-groups"]["dev"]]
    names = {re.split(r"[~=<>\[]", requirement)[0] for requirement in wanted}
    reasons = (ROOT / "DECISIONS.md").read_text()
    assert sorted(name for name in names if name not in reasons) == []


def test_the_locks_hold_hashes_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-agent.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text


@pytest.mark.parametrize("limit", [400])
def test_no_module_is_too_long_to_read(limit: int) -> None:
    long = {
        str(path.relative_to(ROOT)): len(lines)
        for path in sources()
        if len(lines := path.read_text().splitlines()) > limit
        and not any("# Generated from" in one for one in lines[:4])
    }
    assert long == {}


def test_there_is_no_catch_all_module() -> None:
    assert [path for path in sources() if path.stem in {"utils", "helpers", "misc", "common"}] == []


def _failure_rows() -> list[list[str]]:
    text = (ROOT / "docs/protocol.md").read_text().split("## When things fail", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return rows[2:]


def test_every_row_of_the_protocols_failure_table_names_tests_that_exist() -> None:
    rows = _failure_rows()
    assert len(rows) >= 17
    for failure, *_, named in rows:
        tests = re.findall(r"`([\w/]+)::(\w+)`", named)
        assert tests, failure
        for path, test in tests:
            assert f"def {test}(" in (ROOT / f"tests/{path}.py").read_text(), f"{failure}: {path}::{test}"


def test_every_scripted_fault_of_the_simulation_is_in_the_failure_table() -> None:
    named = {test for row in _failure_rows() for test in re.findall(r"::(\w+)`", row[-1])}
    scripted = re.findall(r"^def (test_\w+)", (ROOT / "tests/simulation/test_failure_rows.py").read_text(), re.M)
    assert scripted
    assert set(scripted) <= named
