#!/usr/bin/env bash
# Installs what building and testing need and what this machine lacks: PostgreSQL 15 or later (its server programs), git, a
# C compiler, make and ps, for the pull request's script curl and jq, for machines with a TPM swtpm and tpm2-tools,
# and for clocks that are wrong libfaketime. Rust itself is expected; rust-toolchain.toml names the version. Does nothing when nothing is missing.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }

have_postgres() {
    local dir
    for dir in ${BETTER_COMPUTE_PG_BINDIR:-} /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do
        [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && [ "$(major "$dir")" -ge 15 ] && return 0
    done
    command -v initdb >/dev/null && command -v postgres >/dev/null && [ "$(major "$(dirname "$(command -v postgres)")")" -ge 15 ]
}
major() { "$1/postgres" --version 2>/dev/null | sed -E 's/[^0-9]*([0-9]+).*/\1/' | grep -E '^[0-9]+$' || echo 0; }

missing=()
have_postgres || missing+=(postgresql)
command -v git >/dev/null || missing+=(git)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
command -v ps >/dev/null || missing+=(procps)
command -v curl >/dev/null || missing+=(curl)
command -v jq >/dev/null || missing+=(jq)
[ -n "$(find /usr/lib /usr/lib64 -name libfaketimeMT.so.1 2>/dev/null | head -1)" ] || missing+=(faketime)
command -v swtpm >/dev/null || missing+=(swtpm libtss2-tcti-swtpm0)
command -v tpm2_createek >/dev/null || missing+=(tpm2-tools)
command -v openssl >/dev/null || missing+=(openssl)
[ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/certs/ca-bundle.crt ] || missing+=(ca-certificates)

if ! command -v cargo >/dev/null; then
    say "error: no Rust toolchain. Install rustup from https://rustup.rs; rust-toolchain.toml picks the version."
    exit 1
fi
if [ ${#missing[@]} -eq 0 ]; then
    say "setup: nothing is missing"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo)
    else
        say "error: missing: ${missing[*]}"
        say "       as root, type:  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
        say "       without root, PostgreSQL can come from a package registry; point BETTER_COMPUTE_PG_BINDIR at its bin directory."
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null; then
    say "error: missing: ${missing[*]}; this script knows apt-get only, install them with this system's own tool"
    exit 1
fi
say "setup: installing ${missing[*]}"
# Debian also makes a cluster beside the server programs; it is not used.
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
have_postgres || { say "error: PostgreSQL 15 or later is still not found after installing"; exit 1; }
say "setup: done"
