#!/bin/sh
# Makes the secrets of compose.yaml in deploy/docker/secrets, once: files that exist stay as they are. The folder is for
# this user alone; the files in it can be read by anybody who gets at them, since each container mounts its own ones only
# and reads them as a user of its own.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
make() { # NAME VALUE
    [ -s "secrets/$1" ] || printf '%s' "$2" >"secrets/$1"
    chmod 0444 "secrets/$1"
}
make secret-key "$(random)"
make postgres-password "$(random)"
make database-url "postgresql://muster:$(cat secrets/postgres-password)@postgres:5432/muster"
echo "secrets are in $(pwd)/secrets; keep a copy of them where your backups are not" >&2
