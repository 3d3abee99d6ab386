#!/usr/bin/env bash
# Plants each bug in a copy of the tree, and says whether the named test noticed it. See README.md.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
copy=$root/target/planted/tree
export CARGO_TARGET_DIR=$root/target/planted/build CARGO_TERM_COLOR=never INSTA_UPDATE=no
log=$root/target/planted/log
mkdir -p "$copy"

refresh() { # The copy is the tree again; what has not changed keeps its time, so that little is built.
    (cd "$root" && git ls-files -co --exclude-standard) | while read -r file; do
        [ -f "$root/$file" ] || continue
        cmp -s "$root/$file" "$copy/$file" || { mkdir -p "$copy/$(dirname "$file")"; cp "$root/$file" "$copy/$file"; }
    done
}
field() { sed -n "s/^$1: //p" "$2"; }

# A queries' description is checked when the store is built: a planted query needs a fresh one.
prepare() { case $1 in store/src/*) (cd "$copy" && scripts/sqlx-prepare.sh) >>"$log" 2>&1 ;; *) : ;; esac; }

missed=0 caught=0
for bug in "$root"/tests/planted/[0-9]*.txt; do
    name=$(basename "$bug" .txt)
    if [ $# -gt 0 ]; then
        wanted=no
        for prefix in "$@"; do case $name in "$prefix"*) wanted=yes ;; esac; done
        [ $wanted = yes ] || continue
    fi
    refresh
    file=$(field file "$bug") test=$(field test "$bug")
    sed -n 's/^- //p' "$bug" >"$root/target/planted/old"
    sed -n 's/^+ \{0,1\}//p' "$bug" >"$root/target/planted/new"
    if ! perl -0 -e '
        my ($file, $old, $new) = map { local $/; open my $in, "<", $_ or die; my $text = <$in>; $text } @ARGV;
        s/\n\z// for $old, $new;
        my $first = index($file, $old);
        exit 1 if $first < 0 || index($file, $old, $first + 1) >= 0;
        substr($file, $first, length $old) = $new;
        open my $out, ">", $ARGV[0] or die; print $out $file;
    ' "$copy/$file" "$root/target/planted/old" "$root/target/planted/new"; then
        echo "$name: GONE: the line is not there once in $file"
        missed=$((missed + 1))
        continue
    fi
    : >"$log"
    prepare "$file"
    # shellcheck disable=SC2086 # the words of the test are words
    if ! (cd "$copy" && cargo test --quiet --no-run ${test%% -- *}) >>"$log" 2>&1; then
        echo "$name: DOES NOT COMPILE: $log"
        cp "$log" "$log.$name"
        missed=$((missed + 1))
    elif (cd "$copy" && eval "cargo test --quiet $test") >>"$log" 2>&1; then
        echo "$name: NOT NOTICED by cargo test $test"
        missed=$((missed + 1))
    else
        failed=$(sed -n 's/^    \([a-z_0-9:]*\)$/\1/p' "$log" | sort -u | head -1)
        echo "$name: noticed by $failed"
        caught=$((caught + 1))
    fi
    prepare "$file" # The copy's own descriptions again, once its file is.
done
refresh
echo "$caught noticed, $missed not"
[ $missed = 0 ]
