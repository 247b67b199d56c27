"""deploy/systemd: the units as systemd itself reads them, how far they are locked in, and the rules of the loader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.conftest import ROOT, Runner

UNITS = ROOT / "deploy/systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
MAX_EXPOSURE = 2.5


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they would be installed, with programs and folders that every machine has."""
    for path in UNITS.glob("*.*"):
        if path.suffix in {".service", ".target", ".timer"}:
            text = re.sub(r"/opt/muster/\.venv/bin/(python|muster)", "/bin/true", path.read_text())
            (tmp_path / path.name).write_text(re.sub(r"^WorkingDirectory=.*", "WorkingDirectory=/", text, flags=re.M))
    return tmp_path


@pytest.mark.slow
def test_systemd_has_nothing_to_say_about_the_units(installed: Path, run_program: Runner) -> None:
    done = run_program("systemd-analyze", "verify", "--man=no", *sorted(installed.iterdir()))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_mistake_in_a_unit_would_be_noticed(installed: Path, run_program: Runner) -> None:
    unit = installed / "muster-web.service"
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSytem=strict"))
    assert "ProtectSytem" in run_program("systemd-analyze", "verify", "--man=no", unit).stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVICES)
def test_the_services_are_locked_in(name: str, installed: Path, run_program: Runner) -> None:
    done = run_program("systemd-analyze", "security", "--offline=yes", "--no-pager", installed / name)
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= MAX_EXPOSURE


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_runs_as_root(name: str) -> None:
    assert re.search(r"^User=muster(-agent)?$", (UNITS / name).read_text(), flags=re.M)


def test_the_worker_is_given_longer_than_a_task_may_take() -> None:
    from django.conf import settings

    stop = re.search(r"^TimeoutStopSec=(\d+)$", (UNITS / "muster-worker.service").read_text(), flags=re.M)
    assert stop is not None
    assert int(stop[1]) > settings.CELERY_TASK_TIME_LIMIT


@pytest.mark.slow
def test_visudo_accepts_the_rule_of_the_loader(tmp_path: Path, run_program: Runner) -> None:
    rule = tmp_path / "rule"
    rule.write_text((UNITS / "muster-loader.sudoers").read_text())
    rule.chmod(0o440)
    done = run_program("visudo", "-c", "-f", rule)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_loader_s_drop_in_only_undoes_what_keeps_sudo_from_working(
    installed: Path, tmp_path: Path, run_program: Runner
) -> None:
    drop_in = (UNITS / "muster-agent.service.d/loader-compare.conf.example").read_text()
    folder = installed / "muster-agent.service.d"
    folder.mkdir()
    (folder / "loader-compare.conf").write_text(drop_in)
    done = run_program("systemd-analyze", "verify", "--man=no", installed / "muster-agent.service")
    assert (done.returncode, done.stderr) == (0, "")
    undone = set(re.findall(r"^(\w+)=", drop_in, flags=re.M))
    assert undone == {
        "NoNewPrivileges", "RestrictSUIDSGID", "CapabilityBoundingSet", "RestrictNamespaces", "SystemCallFilter",
    }  # fmt: skip


@pytest.mark.slow
def test_nginx_accepts_the_proxy_s_configuration(tmp_path: Path, run_program: Runner) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = run_program(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=muster.example",
        "-keyout", key, "-out", certificate,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    text = (ROOT / "deploy/nginx/muster.conf").read_text()
    text = text.replace("/etc/ssl/certs/muster.example.pem", str(certificate))
    text = text.replace("/etc/ssl/private/muster.example.key", str(key))
    text = re.sub(r"listen (80|443)", r"listen 127.0.0.1:1\1", text)
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{text}\n}}\n")
    done = run_program("nginx", "-t", "-c", whole, "-p", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_proxy_waits_longer_than_an_agent_s_poll() -> None:
    from django.conf import settings

    wait = re.search(r"proxy_read_timeout (\d+)s", (ROOT / "deploy/nginx/muster.conf").read_text())
    assert wait is not None
    assert int(wait[1]) > settings.AGENT_POLL_SECONDS + 10
