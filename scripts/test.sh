#!/usr/bin/env bash
# Everything a change must pass, stage by stage, with the time each one takes. `scripts/test.sh rules unit` runs only those.
# Every temporary file goes below one directory, which must be empty in the end, like the list of our processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TMPDIR=$(mktemp -d /tmp/bc-test.XXXXXX)
export TMPDIR
chmod 755 "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto} INSTA_UPDATE=no
unset DATABASE_URL BETTER_COMPUTE_DATA BETTER_COMPUTE_URL BETTER_COMPUTE_CA BETTER_COMPUTE_TOKEN BCD_JOIN_TOKEN

nextest=no
cargo nextest --version >/dev/null 2>&1 && nextest=yes

# The same packages and features in every stage, so that nothing is built twice.
run_tests() { # nextest filter, then the arguments of cargo test
    local filter=$1
    shift
    if [ $nextest = yes ]; then
        cargo nextest run --workspace --locked -E "$filter"
    else
        cargo test --workspace --locked "$@"
    fi
}

stage_format() { cargo fmt --all --check; }
stage_lints() { cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; }
stage_build() { cargo build --workspace --all-targets --locked --quiet; }
stage_rules() { run_tests 'binary(rules)' --test rules; }
stage_unit() { run_tests 'not binary(it) and not binary(rules) and not package(store)' --lib --bins; }
stage_store() { run_tests 'package(store)' -p store; }
stage_e2e() { run_tests 'binary(it)' --test it; }
stage_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
    cargo test --workspace --doc --locked --quiet
}
stage_queries() { scripts/sqlx-prepare.sh --check; }
stage_leftovers() {
    local left=0
    if find "$TMPDIR" -mindepth 1 -maxdepth 2 | grep -q .; then
        echo "files left behind:" >&2
        find "$TMPDIR" -mindepth 1 -maxdepth 2 >&2
        left=1
    fi
    if pgrep -af "$TMPDIR" >&2; then
        echo "processes left behind (above)" >&2
        left=1
    fi
    return $left
}

stages=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(format lints build rules unit store e2e docs queries leftovers)
names=() times=()
total=$(date +%s)
for stage in "${stages[@]}"; do
    printf '\n==> %s\n' "$stage"
    begin=$(date +%s)
    if ! "stage_$stage"; then
        printf '\n==> %s FAILED after %ss\n' "$stage" "$(($(date +%s) - begin))" >&2
        exit 1
    fi
    names+=("$stage") times+=("$(($(date +%s) - begin))")
done
printf '\n'
for index in "${!names[@]}"; do
    printf '  %-10s %4ss  ok\n' "${names[$index]}" "${times[$index]}"
done
printf '  %-10s %4ss\n' total "$(($(date +%s) - total))"
