#!/bin/sh
# Builds the image of a party from dist/bundle, without a network but for Debian's packages, and no registry.
#
#   sh deploy/image.sh [--node] [BASE]      # as `make image` does, which made the bundle first
#
# As root; apt install buildah mmdebstrap. Without a BASE the lowest layer is made here: what of Debian
# Python needs, each package checked with Debian's keys. Its suite has the bundle's Python: 3.11 is
# bookworm, 3.13 trixie. The build needs no container runtime (chroot), and its steps no network.
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

# What only those need who install packages or read manuals stays out. Debian's list of packages stays
# in, for whoever looks for known weaknesses.
debian() {
  mmdebstrap --quiet --mode=root --variant=essential --include=usr-is-merged,python3-venv,ca-certificates \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='chroot "$1" sh -c "dpkg-query --show --showformat \"\\\${Package}\n\" usrmerge perl \"libperl5*\" \"perl-modules*\" \"lib*-perl\" \"libgdbm*\" 2> /dev/null | xargs dpkg --purge"' \
    --customize-hook='rm -rf "$1"/usr/share/perl5 "$1"/usr/lib/*/gconv "$1"/var/cache/* "$1"/var/log/*' \
    "$1" "$scratch/base.tar"
  base=$(buildah from scratch)
  buildah add --quiet "$base" "$scratch/base.tar" / > /dev/null
  buildah config --cmd /bin/sh "$base"
  buildah commit --quiet --rm "$base" "localhost/hubbub-base:$1" > /dev/null
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

# Of Docker's format, since the other one has no health checks.
buildah bud --isolation chroot --network none --format docker --build-arg "BASE=$base" \
  --build-arg "NODE=$node" --file deploy/Containerfile --tag "$name:$version" .
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$name:$version"
