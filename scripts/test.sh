#!/usr/bin/env bash
# Everything a change must pass, stage by stage, with the time each one takes. `scripts/test.sh rules unit` runs only those.
# Every temporary file goes below one directory, which must be empty in the end, like the list of our processes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TMPDIR=$(mktemp -d /tmp/bc-test.XXXXXX)
export TMPDIR
chmod 755 "$TMPDIR"
trap 'stop_postgres; rm -rf "$TMPDIR"' EXIT
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto} INSTA_UPDATE=no
unset DATABASE_URL BETTER_COMPUTE_DATA BETTER_COMPUTE_URL BETTER_COMPUTE_CA BETTER_COMPUTE_TOKEN BCD_JOIN_TOKEN

nextest=no
cargo nextest --version >/dev/null 2>&1 && nextest=yes

# nextest builds the same packages with the same features in every stage, so that nothing is built twice.
run_tests() { # nextest's filter, then the arguments of cargo test
    local filter=$1
    shift
    if [ $nextest = yes ]; then
        cargo nextest run --workspace --locked -E "$filter"
    else
        cargo test --locked "$@"
    fi
}

# One PostgreSQL for all tests of this run that ask for a database, each in a clone of its own; durability is not wanted.
start_postgres() {
    [ -z "${BETTER_COMPUTE_TEST_PG:-}" ] || return 0
    bindir=${BETTER_COMPUTE_PG_BINDIR:-$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -V | tail -1)}
    [ -x "$bindir/initdb" ] || bindir=$(dirname "$(command -v initdb)")
    pg=$TMPDIR/postgres
    mkdir "$pg"
    as=()
    if [ "$(id -u)" = 0 ]; then
        chown postgres: "$pg"
        as=(setpriv --reuid=postgres --regid=postgres --clear-groups)
    fi
    (
        cd "$pg"
        "${as[@]}" "$bindir/initdb" -U tests --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync --no-instructions -D "$pg/data" >/dev/null
        "${as[@]}" "$bindir/pg_ctl" -D "$pg/data" -w -l "$pg/log" start >/dev/null \
            -o "-k $pg -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300"
    )
    export BETTER_COMPUTE_TEST_PG="postgresql://tests@localhost/postgres?host=$pg"
}
stop_postgres() {
    [ -n "${pg:-}" ] && [ -e "$pg/data/postmaster.pid" ] || return 0
    (cd "$pg" && "${as[@]}" "$bindir/pg_ctl" -D "$pg/data" -m immediate stop >/dev/null) || true
    rm -rf "$pg"
}

stage_format() { cargo fmt --all --check; }
stage_lints() { cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; }
stage_build() { cargo build --workspace --all-targets --locked --quiet; }
stage_rules() { run_tests 'package(tests) and binary(rules)' -p tests --test rules; }
stage_unit() { start_postgres && run_tests 'not package(tests) and not package(store)' --workspace --exclude tests --exclude store; }
stage_store() { start_postgres && run_tests 'package(store)' -p store; }
stage_e2e() { run_tests 'package(tests) and binary(it)' -p tests --test it; }
stage_docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet &&
        cargo test --workspace --doc --locked --quiet
}
stage_queries() { scripts/sqlx-prepare.sh --check; }
stage_leftovers() {
    local left=0 try
    stop_postgres
    # What a process that was killed leaves is swept within a few seconds.
    for try in 1 2 3 4 5 6 7 8 9 10; do
        find "$TMPDIR" -mindepth 1 | grep -q . || break
        sleep 1
    done
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
