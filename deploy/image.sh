#!/bin/sh
# Builds the image of a party from dist/bundle, without a network but for Debian's packages, and no registry.
#
#   sh deploy/image.sh [--node] [BASE]      # as `make image` does, which made the bundle first
#
# As root; apt install buildah mmdebstrap. Without a BASE the lowest layer is made here: what of Debian
# Python needs, each package checked with Debian's keys. Its suite has the bundle's Python: 3.11 is
# bookworm, 3.13 trixie; buildah rmi localhost/hubbub-base:SUITE has it made anew. The build needs no
# container runtime (chroot), and its steps have no network.
set -eu

node='' name=hubbub
if [ "${1:-}" = --node ]; then
  node=--node name=hubbub-node
  shift
fi
here=$(dirname "$0")
cd "$here/.."
version=$(basename dist/bundle/hubbub-*.whl)
version=${version#hubbub-} version=${version%%-*}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# dpkg knows two ways to have a merged /usr: the one that is a flag, and the one that is perl.
cat > "$scratch/purge" << 'EOF'
#!/bin/sh
chroot "$1" dpkg-query --show --showformat '${Package}\n' \
  | grep --extended-regexp '^(usrmerge|perl|perl-modules.*|libperl.*|lib.*-perl|libgdbm.*)$' \
  | xargs --no-run-if-empty chroot "$1" dpkg --purge
EOF
chmod +x "$scratch/purge"

# What only those need who install packages or read manuals stays out. Debian's list of packages stays
# in, for whoever looks for known weaknesses.
debian() {
  mmdebstrap --quiet --mode=root --variant=essential --include=usr-is-merged,python3-venv,libstdc++6,binutils,ca-certificates \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook="$scratch/purge" \
    --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
    "$1" "$scratch/base.tar"
  made=$(buildah from scratch)
  buildah add --quiet "$made" "$scratch/base.tar" / > /dev/null
  buildah config --cmd /bin/sh "$made"
  buildah commit --quiet --rm "$made" "localhost/hubbub-base:$1" > /dev/null
}

base=${1:-}
if [ -z "$base" ]; then
  case $(cat dist/bundle/python-version) in
    3.11) suite=bookworm ;;
    3.13) suite=trixie ;;
    *) echo "hubbub: expected a bundle for Python 3.11 or 3.13, which Debian has, or a BASE" >&2; exit 2 ;;
  esac
  base=localhost/hubbub-base:$suite
  buildah inspect --type image "$base" > /dev/null 2>&1 || debian "$suite"
fi

buildah inspect --type image "$base" > /dev/null 2>&1 || buildah pull "$base"
# Of Docker's format, since the other one has no health checks; in a network of nobody else.
unshare --net buildah bud --isolation chroot --pull-never --format docker --build-arg "BASE=$base" \
  --build-arg "NODE=$node" --file deploy/Containerfile --tag "$name:$version" .
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$name:$version"
