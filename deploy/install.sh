#!/bin/sh
# Installs hubbub from the folder that this file lies in, without a network.
#
#   sh install.sh [--node] [FOLDER]     # FOLDER: /opt/hubbub; --node: a compute node, without torch
#
# The folder is what `make bundle` collected. Every file is compared with its hash before anything of
# it runs, and pip compares the packages again, with the hashes of the release. PYTHON names another
# interpreter than python3; it must be the version that the packages were collected for.
set -eu

python=${PYTHON:-python3}
locks="requirements.txt requirements-torch.txt"
if [ "${1:-}" = --node ]; then
  locks=requirements-node.txt
  shift
fi
to=${1:-/opt/hubbub}

here=$(dirname "$0")
cd "$here"
sha256sum --quiet --check BUNDLE.sha256
wanted=$(cat python-version)
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$wanted" != "$found" ]; then
  echo "hubbub: expected Python $wanted, for which this bundle was made, found $found as '$python'; name another: PYTHON=python$wanted" >&2
  exit 2
fi

"$python" -m venv "$to"
install() { "$to/bin/python" -m pip --isolated install --quiet --no-cache-dir --disable-pip-version-check --no-index --find-links wheels "$@"; }
install --require-hashes --requirement requirements-build.txt
for lock in $locks; do
  install --require-hashes --no-build-isolation --requirement "$lock"
done
install --no-deps hubbub-*.whl
"$to/bin/python" -m pip check
"$to/bin/hubbub" --version
