#!/usr/bin/env bash
# Makes images under the names that the Dockerfile, the compose file and the manifests ask for, out of Debian's packages:
# for a machine that cannot pull any, so that our own files can be tried there as they are. For tests alone.
#
#   tests/deploy/stand_ins/make.sh REGISTRY    as root, with podman and debootstrap; what is there already is left alone
#
# REGISTRY is where podman would look for the images: whose host stands before their names.
set -euo pipefail
registry=$1
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
  local image=$registry/$2
  podman image exists "$image" || podman build --network=host --tag "$image" --file "$here/$1.Containerfile" "$here" >&2
  echo "$image"
}

stand_in python library/python:3.11-slim-bookworm
stand_in postgres library/postgres:17-bookworm
stand_in valkey valkey/valkey:8-bookworm
stand_in haproxy library/haproxy:3.2
stand_in prometheus prom/prometheus:v3.5.0
