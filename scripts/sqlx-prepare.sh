#!/bin/sh
# Regenerates store/.sqlx, the checked descriptions of every query, against a throw-away PostgreSQL.
# `scripts/sqlx-prepare.sh --check` only compares and fails when the committed files are stale.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bindir=${BETTER_COMPUTE_PG_BINDIR:-$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -V | tail -1)}
[ -x "$bindir/initdb" ] || { echo "no PostgreSQL server found: apt-get install postgresql" >&2; exit 1; }

# One at a time: two of them would take each other's files away.
mkdir -p "$root/target"
exec 9>"$root/target/sqlx-prepare.lock"
flock 9

work=$(mktemp -d /tmp/sqlx-prepare.XXXXXX)
as=""
if [ "$(id -u)" = 0 ]; then
    user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    chown "$user:" "$work"
    as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups"
fi
run() { (cd "$work" && $as env -i PATH="$bindir:/usr/bin:/bin" LC_ALL=C.UTF-8 TZ=UTC "$@"); }
stop() { run pg_ctl -D "$work/pg" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$work"; }
trap stop EXIT
# Without the directory every query would look like an old one.
trap 'exit 1' INT TERM

run initdb -U prepare --auth=trust --encoding=UTF8 --no-instructions --no-sync -D "$work/pg" >/dev/null
run pg_ctl -D "$work/pg" -w -l "$work/log" -o "-k $work -c listen_addresses= -c fsync=off" start >/dev/null 9>&-
for file in "$root"/migrations/[0-9]*.sql; do
    run psql -q -v ON_ERROR_STOP=1 --single-transaction -h "$work" -U prepare postgres -f - <"$file"
done

mkdir "$work/fresh"
# A flag of its own, so that this run compiles the crate whatever another one did a moment ago.
SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$work/fresh" DATABASE_URL="postgresql:///postgres?host=$work&user=prepare" \
    cargo rustc --quiet --manifest-path "$root/Cargo.toml" -p store --lib --profile check -- --cfg "prepared_$$"
touch "$root/store/src/lib.rs"

if [ "${1:-}" = --check ]; then
    # Which columns can be null is inferred from query plans and differs between server versions.
    cp -r "$root/store/.sqlx" "$work/committed"
    sed -i '/"nullable"/,/\]/d' "$work"/fresh/*.json "$work"/committed/*.json
    diff -r "$work/fresh" "$work/committed" || { echo "store/.sqlx is stale: run scripts/sqlx-prepare.sh" >&2; exit 1; }
else
    mkdir -p "$root/store/.sqlx"
    cp "$work/fresh"/*.json "$root/store/.sqlx/" 2>/dev/null || true
    for old in "$root"/store/.sqlx/*.json; do
        [ -e "$work/fresh/$(basename "$old")" ] || rm -f "$old"
    done
    echo "$(ls "$root/store/.sqlx" | wc -l) queries"
fi
