#!/usr/bin/env bash
# Makes images under the names that the Dockerfile, the compose file and the manifests ask for, out of Debian's packages:
# for a machine that cannot pull any, so that our own files can be tried there as they are. For tests alone.
#
#   tests/deploy/stand_ins/make.sh        as root, with podman and debootstrap; what is there already is left alone
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
debian=localhost/stand-in-debian:bookworm

if ! podman image exists "$debian"; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  debootstrap --variant=minbase --include=ca-certificates bookworm "$folder" >&2
  rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
  tar -C "$folder" -c . | podman import --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$debian" >/dev/null
fi

stand_in() { # stand_in CONTAINERFILE IMAGE
  podman image exists "$2" || podman build --network=host --tag "$2" --file "$here/$1.Containerfile" "$here" >&2
  echo "$2"
}

stand_in python docker.io/library/python:3.11-slim-bookworm
stand_in postgres docker.io/library/postgres:17-bookworm
stand_in valkey docker.io/valkey/valkey:8-bookworm
stand_in haproxy docker.io/library/haproxy:3.2
stand_in prometheus docker.io/prom/prometheus:v3.5.0
