#!/usr/bin/env bash
# Installs the pinned commit, and makes a data folder with an account, credit and the key that definition.json declares.
# It runs before anything is measured.
set -euo pipefail

REPOSITORY="REPOSITORY"
COMMIT="COMMIT"

folder="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
sudo -n DEBIAN_FRONTEND=noninteractive apt-get install -y -q build-essential git make python3-dev python3-venv

[ -d "$folder/src" ] || git clone -q "$REPOSITORY" "$folder/src"
git -C "$folder/src" fetch -q origin
git -C "$folder/src" checkout -q "$COMMIT"
make -C "$folder/src" setup
(cd "$folder/src" && .venv/bin/python -m bench.onthebench.prepare "$folder")
