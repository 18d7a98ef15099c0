#!/bin/sh
# Tries the image that was built: three sites, a compute node of the small image where there is one, and an
# aggregator train a study, each in a container of its own, and the run is verified.
#
#   sh deploy/try-image.sh [IMAGE [NODE-IMAGE]]       # localhost/hubbub:VERSION localhost/hubbub-node:VERSION
#
# As root, with podman or docker (ENGINE=docker). Containers have no capability, a file system that is
# only read, and users whom no image knows. They share the host's network; the relay is on PORT of
# 127.0.0.1. A folder in TMPDIR is left where something fails. RUN gives `run` more options: in a machine
# without systemd and with old cgroups it went with
#   ENGINE="podman --runtime runc" RUN="--no-healthcheck --ulimit nofile=1024:1024 --ulimit nproc=999:999"
set -eu

here=$(dirname "$0")
cd "$here/.."
engine() { ${ENGINE:-podman} "$@"; }
version=$(sed -n 's/^VERSION = "\([^"]*\)".*/\1/p' src/hubbub/__init__.py)
image=${1:-localhost/hubbub:$version}
small=${2:-localhost/hubbub-node:$version}
scratch=$(mktemp -d)
silos="cleveland hungary va-long-beach"
nodes="node-1 node-2"
port=${PORT:-24222}
names="hubbub-try-$$"

fail() { echo "hubbub: $1; see $scratch" >&2; exit 1; }
user() { # each party has a user of its own, of no name
  number=20000
  for one in aggregator $silos $nodes; do
    number=$((number + 1))
    [ "$one" = "$1" ] && echo "$number:0"
  done
}
image_of() { case $1 in node-*) echo "$small" ;; *) echo "$image" ;; esac; }
party() { # party NAME [OPTION OF THE ENGINE ...] -- WORDS AFTER hubbub
  name=$1
  shift
  given=''
  while [ "$1" != -- ]; do given="$given $1"; shift; done
  shift
  # shellcheck disable=SC2086 # the options are words
  engine run --rm ${RUN:-} --user "$(user "$name")" --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges \
    --network host --volume "$scratch/$name:/var/lib/hubbub" --volume "$scratch/public:/public:ro" \
    $given "$(image_of "$name")" "$@"
}
end() {
  for one in aggregator $silos $nodes; do
    engine rm --force "$names-$one" > "$scratch/end.log" 2>&1 || true
  done
}
trap end EXIT

mkdir "$scratch/public"
chmod 755 "$scratch" "$scratch/public"
for one in aggregator $silos $nodes; do
  mkdir -m 0700 "$scratch/$one"
  chown "$(user "$one")" "$scratch/$one"
  case $one in
    aggregator) party "$one" -- keygen "$one" --role aggregator --relay "tls://127.0.0.1:$port" ;;
    node-*) party "$one" -- keygen "$one" --role node ;;
    *) party "$one" -- keygen "$one" ;;
  esac > "$scratch/$one.log"
  cp "$scratch/$one/hubbub-home/identity.toml" "$scratch/public/$one.toml"
done
echo "hubbub: six parties have keys"

identities=''
for one in aggregator $silos $nodes; do identities="$identities /public/$one.toml"; done
# shellcheck disable=SC2086
party aggregator -- roster $identities --out roster.toml --json > "$scratch/roster.json"
cp "$scratch/aggregator/roster.toml" "$scratch/public/roster.toml"
digest=$(sed -n 's/.*"digest": "\([0-9a-f]*\)".*/\1/p' "$scratch/roster.json")
sed "s/^# roster = .*/roster = \"$digest\"\ncompute_nodes = 2/" deploy/trial.toml > "$scratch/public/study.toml"
for one in aggregator $silos $nodes; do
  party "$one" -- approve /public/study.toml --roster /public/roster.toml --yes > "$scratch/$one.log"
done
echo "hubbub: all have approved the study"

for one in $silos $nodes; do
  party "$one" --detach --name "$names-$one" -- join > "$scratch/$one.log"
done
party aggregator --name "$names-aggregator" -- serve /public/study.toml &
serving=$!
for one in $silos $nodes; do # well while they are in the study, whose relay ends with it
  tries=0
  until engine exec "$names-$one" hubbub status --check hubbub-home > "$scratch/$one.log" 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || fail "expected $one to be well"
    sleep 1
  done
done
echo "hubbub: all are well"
wait $serving || fail "expected the study to be done"
engine kill --signal STOP "$names-cleveland" > "$scratch/kill.log"
sleep 45
engine exec "$names-cleveland" hubbub status --check --most-age 40 hubbub-home > "$scratch/cleveland.log" \
  && fail "expected a frozen party not to be well"
grep --quiet "wrote its status" "$scratch/cleveland.log" || fail "expected to hear how old its status is"
engine kill --signal CONT "$names-cleveland" > "$scratch/kill.log"
echo "hubbub: one that was frozen was noticed"
run=$(cd "$scratch/aggregator" && echo hubbub-home/runs/*)
party aggregator -- verify "$run" || fail "expected the run to verify"
for one in $silos; do
  [ -s "$scratch/$one/hubbub-home/ledger.sqlite" ] || fail "expected a ledger at $one"
done
end
trap - EXIT
rm -rf "$scratch"
echo "hubbub: the image works"
