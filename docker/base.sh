#!/usr/bin/env bash
# Make a base image from Debian's packages where no image registry is reachable: `docker/base.sh localhost/arf-python`.
# Needs debootstrap, buildah and root. MIRROR names another mirror than debootstrap's own. The image trusts the certificate authorities that this machine trusts.
set -euo pipefail

name=${1:?usage: docker/base.sh NAME}
suite=${SUITE:-bookworm}
tree=$(mktemp -d)
trap 'rm -rf --one-file-system "$tree"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3-minimal,python3,python3-pip "$suite" "$tree" ${MIRROR:+"$MIRROR"}
umount --quiet "$tree/proc" "$tree/sys" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/ca-certificates.crt"
rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/usr/share/{doc,man,locale}

container=$(buildah from scratch)
buildah copy --quiet "$container" "$tree" /
buildah commit --quiet --format docker --rm "$container" "$name"
