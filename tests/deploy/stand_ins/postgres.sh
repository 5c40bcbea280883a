#!/usr/bin/env bash
# As much of the official image's entrypoint as we rely on: a cluster, its owner with a password, and one database.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
  install -d -o postgres -g postgres -m 0700 "$PGDATA"
  install -d -o postgres -g postgres /var/run/postgresql
  # Whoever else may read the secret, the server's own user may.
  install -o postgres -m 0400 "$POSTGRES_PASSWORD_FILE" /tmp/password
  exec env POSTGRES_PASSWORD_FILE=/tmp/password setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
  createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl -D "$PGDATA" -m fast -w stop
fi
exec "$@" -D "$PGDATA" -c "listen_addresses=*"
