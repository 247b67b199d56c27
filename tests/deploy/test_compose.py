"""deploy/docker: the compose file as docker-compose itself reads it, its secrets, and what the image is made of."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import ROOT, Runner

DOCKER = ROOT / "deploy/docker"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of deploy/docker where it may write, at the same depth as in a checkout."""
    shutil.copytree(DOCKER, tmp_path / "deploy/docker", ignore=shutil.ignore_patterns("secrets"))
    return tmp_path


@pytest.fixture
def services(checkout: Path, run_program: Runner) -> dict[str, Any]:
    done = run_program(
        "docker-compose", "-f", checkout / "deploy/docker/compose.yaml", "config", MUSTER_HOST="m.example"
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return told


@pytest.mark.slow
def test_docker_compose_accepts_the_file(services: dict[str, Any]) -> None:
    assert set(services) == {"migrate", "web", "worker", "beat", "postgres", "redis"}


@pytest.mark.slow
def test_every_service_that_stays_up_has_a_health_check_and_comes_back(services: dict[str, Any]) -> None:
    staying = {name: service for name, service in services.items() if name != "migrate"}
    assert all("healthcheck" in service for service in staying.values())
    assert all(service["restart"] == "unless-stopped" for service in staying.values())


@pytest.mark.slow
def test_the_services_wait_for_the_migrations(services: dict[str, Any]) -> None:
    for name in ("web", "worker", "beat"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"


@pytest.mark.slow
def test_secrets_are_files_and_nothing_but_loopback_is_published(services: dict[str, Any]) -> None:
    for service in services.values():
        assert not [name for name in service.get("environment", {}) if re.search("PASSWORD$|SECRET_KEY$", name)]
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(str(port).startswith("127.0.0.1:") or port.get("host_ip") == "127.0.0.1" for port in published)


@pytest.mark.slow
def test_without_the_hosts_name_it_says_what_is_missing(checkout: Path, run_program: Runner) -> None:
    done = run_program("docker-compose", "-f", checkout / "deploy/docker/compose.yaml", "config")
    assert done.returncode != 0
    assert "the name that browsers and agents use" in done.stderr


def make_secrets(folder: Path) -> dict[str, str]:
    subprocess.run(["sh", folder / "make-secrets.sh"], check=True, capture_output=True)
    return {path.name: path.read_text() for path in (folder / "secrets").iterdir()}


def test_secrets_are_made_once_for_this_user_alone(checkout: Path) -> None:
    folder = checkout / "deploy/docker"
    made = make_secrets(folder)
    assert make_secrets(folder) == made
    assert len(made["secret-key"]) >= 50
    assert made["postgres-password"] in made["database-url"]
    assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700


def test_every_setting_of_the_compose_file_is_one() -> None:
    documented = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/settings.md").read_text()))
    for service in yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"].values():
        for name in service.get("environment", {}):
            if name.startswith(("MUSTER_", "DATABASE_", "REDIS_")):
                assert name.removesuffix("_FILE") in documented or name in documented


# -- the image ---------------------------------------------------------------------------------------------------------


def build_context(target: Path) -> Path:
    """What a build is sent: the tracked files that .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().split()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    refused = [line for line in lines if line[0] not in "!*" or line.startswith("**/")]
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        inside = any(name == one or name.startswith(f"{one}/") for one in allowed)
        if (
            inside
            and not any(fnmatch.fnmatch(name, one.removeprefix("**/")) for one in refused)
            and (ROOT / name).exists()
        ):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target


@pytest.mark.slow
def test_the_image_holds_all_that_the_server_needs(tmp_path: Path) -> None:
    """What the build runs, and what the containers start, from the files of the build alone."""
    context = build_context(tmp_path)
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "DATABASE_", "PYTHONPATH"))
    }
    hashed = {
        **clean,
        "MUSTER_HASHED_STATIC": "true",
        "DATABASE_URL": f"sqlite:///{tmp_path}/db.sqlite3",
        "PYTHONPATH": f"{context}/workers/agent/src",
    }
    for arguments in (
        ["manage.py", "collectstatic", "--noinput", "--skip-checks", "--verbosity", "0"],
        ["manage.py", "migrate", "--verbosity", "0"],
        ["-c", "import controlplane.asgi, workers.tasks.control"],
    ):
        done = subprocess.run([sys.executable, *arguments], cwd=context, env=hashed, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]


def test_every_file_that_the_dockerfile_copies_is_sent_to_the_build(tmp_path: Path) -> None:
    context = build_context(tmp_path)
    text = (DOCKER / "Dockerfile").read_text()
    sources = re.findall(r"^COPY (?!--from)(\S+) ", text, flags=re.M)
    assert sources
    assert all((context / source).exists() for source in sources)


def test_nothing_in_the_images_is_installed_without_its_hash_and_neither_runs_as_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    for line in re.findall(r"pip install .*", text):
        assert "--require-hashes" in line or "--no-deps --no-build-isolation ./workers/agent" in line
    for stage in ("agent", "server"):
        final = text.split(f"AS {stage}\n")[1].split("\nFROM ")[0]
        assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", final, flags=re.M)


def test_the_version_of_the_images_is_muster_s_own() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), flags=re.M)
    assert version is not None
    named = re.findall(r"muster(?:-agent)?:(?:\$\{MUSTER_VERSION:-)?([\d.]+)", "".join(
        path.read_text() for path in [*(ROOT / "deploy/kubernetes").glob("*.yaml"), *DOCKER.glob("*")] if path.is_file()
    ))  # fmt: skip
    assert named
    assert set(named) == {version[1]}
