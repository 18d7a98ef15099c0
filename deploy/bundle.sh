#!/bin/sh
# Collects the release in dist/ and all that it needs into one file for machines without a network.
#
#   sh deploy/bundle.sh PIP PYTHON-VERSION      # as `make bundle` does, which made the release first
#
# dist/bundle/ is what the image and the packages are made of, too. The file beside it unpacks itself
# (makeself, of the Debian package of that name), compares its own SHA-256 first, and runs install.sh:
# sh hubbub-….run, with --node or a folder after --. Its digest is printed: compare that by another way.
set -eu

pip=$1 version=$2
here=$(dirname "$0")
cd "$here/.."
machine=$(uname -m)
folder=dist/bundle
rm -rf "$folder"
mkdir -p "$folder/wheels"
(cd dist && sha256sum --quiet --check SHA256SUMS)
cp dist/hubbub-*.whl dist/hubbub-*.cdx.json dist/requirements*.txt dist/SHA256SUMS "$folder"
cp deploy/install.sh LICENSE "$folder"
cp -R deploy docs "$folder"
rm -rf "$folder/docs/_build"
echo "$version" > "$folder/python-version"

# Packages for that Python, whichever runs this. PyTorch's own index has the build for CPUs; TORCH_INDEX
# names another, and where it is empty pip looks where it is told to anyway.
download() {
  "$pip" download --quiet --disable-pip-version-check --no-deps --require-hashes --dest "$folder/wheels" \
    --python-version "$version" --platform "manylinux_2_34_$machine" --platform "manylinux_2_28_$machine" \
    --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" "$@"
}
torch=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}
download --requirement "$folder/requirements-build.txt" --requirement "$folder/requirements.txt"
download ${torch:+--extra-index-url "$torch"} --requirement "$folder/requirements-torch.txt"
(cd "$folder" && find . -type f -print0 | sort -z | xargs -0 sha256sum) > dist/BUNDLE.sha256
mv dist/BUNDLE.sha256 "$folder"

if command -v makeself > /dev/null; then
  wheel=$(basename "$folder"/hubbub-*.whl)
  release=${wheel#hubbub-}
  out=dist/hubbub-${release%%-*}-linux-$machine-python$version.run
  makeself --quiet --sha256 --nomd5 --nocrc --gzip "$folder" "$out" \
    "hubbub ${release%%-*} for Python $version" sh ./install.sh
  sha256sum "$out"
else
  echo "hubbub: collected $folder; for one file of it: apt install makeself" >&2
fi
