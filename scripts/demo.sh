#!/usr/bin/env bash
# A commit becomes three converged machines, with the commands that a person would type. `make demo` builds first.
# Everything happens below one temporary directory and is gone afterwards; `--keep` waits at the end so that you can go on.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${BETTER_COMPUTE_BIN_DIR:-${CARGO_TARGET_DIR:-$repo/target}/debug}
marker=/tmp/better-compute-demo

keep=no
case ${1:-} in
    --clean)
        for pidfile in "$marker".*/*.pid; do [ -e "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null || true; done
        sleep 1
        rm -rf "$marker".*
        exit 0
        ;;
    --keep) keep=yes ;;
    "") ;;
    *) echo "usage: $0 [--keep|--clean]" >&2 && exit 2 ;;
esac

work=$(mktemp -d "$marker.XXXXXX")
chmod 755 "$work"
export BETTER_COMPUTE_DATA=$work/control-plane
export PATH=$bin:$PATH NO_COLOR=${NO_COLOR:-}
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME="Ada Operator" GIT_AUTHOR_EMAIL=ada@example.com GIT_COMMITTER_NAME="Ada Operator" GIT_COMMITTER_EMAIL=ada@example.com
unset DATABASE_URL BETTER_COMPUTE_URL BETTER_COMPUTE_CA BETTER_COMPUTE_TOKEN BCD_JOIN_TOKEN

bold=$(tput bold 2>/dev/null || true) dim=$(tput dim 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
[ -t 1 ] || bold='' dim='' plain=''
pids=()

cleanup() {
    local code=$? pid
    trap - EXIT INT TERM
    [ "$code" = 0 ] || tail -n 25 "$work"/*.log >&2 2>/dev/null || true
    # Machines first, the control plane last.
    for ((index = ${#pids[@]} - 1; index >= 0; index--)); do kill "${pids[index]}" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
show() { printf '%s$ %s%s\n' "$dim" "$*" "$plain"; }
run() {
    show "$*"
    "$@"
}
background() { # log name, then the command
    local name=$1
    shift
    show "$* &"
    "$@" >"$work/$name.log" 2>&1 &
    pids+=($!)
    echo $! >"$work/$name.pid"
}

say "A fleet repository, made from examples-fleet"
cp -r "$repo/examples-fleet" "$work/fleet"
cd "$work/fleet"
run git init --quiet --initial-branch=main
git add --all
run git commit --quiet -m "the fleet as it is"
run better-compute check

say "A whole control plane for it: PostgreSQL, keys, certificates, every role"
background up better-compute up --dev --fleet "$work/fleet" --listen-api 127.0.0.1:0 --listen-gateway 127.0.0.1:0
until [ -e "$BETTER_COMPUTE_DATA/client.json" ]; do
    kill -0 "${pids[0]}" 2>/dev/null || { echo "the control plane ended" >&2 && exit 1; }
    sleep 0.1
done
better-compute status --wait applied >/dev/null
run better-compute status

say "Three machines with eight described H100s each, and a root directory each; the first one has a document in nodes/"
show "better-compute token create --pool h100 --uses 3 --quiet"
BCD_JOIN_TOKEN=$(better-compute token create --pool h100 --uses 3 --quiet)
gateway=$(sed -n 's/.*"gateway": "\(.*\)",*/\1/p' "$BETTER_COMPUTE_DATA/client.json")
pin=$(sed -n 's/.*"pin": "\(.*\)",*/\1/p' "$BETTER_COMPUTE_DATA/client.json")
export BCD_JOIN_TOKEN
for name in one two three; do
    mkdir -p "$work/$name/root"
    words=(--state "$work/$name/state" --hardware "$repo/bcd/hardware/8xh100.toml" --hardware-seed "$name")
    [ $name = one ] && words+=(--set serial=PF3K0X91 --set board-serial=BRD-2231-0091)
    run bcd join "$gateway" --pin "$pin" "${words[@]}"
    background "$name" bcd run --root "$work/$name/root" "${words[@]}"
done
unset BCD_JOIN_TOKEN
run better-compute status --wait converged --nodes 3
run better-compute get nodes
run cat "$work/one/root/etc/motd"

say "A change to a profile: another sysctl, and a file"
cat >>profiles/gpu-host.kdl <<'KDL'

// Written by the demo: what every GPU machine gets on top.
profile "demo" {
  extends "h100-host"
  sysctl { vm.dirty_ratio 10; }
  file "/etc/demo.conf" mode="0640" { content "rolled-out-by = git\n"; }
}
KDL
sed -i 's/profile "h100-host"/profile "demo"/' pools/h100.kdl
run git diff --stat
run better-compute plan
run git commit --quiet --all -m "h100: dirty pages and a file"
begin=$(date +%s%N)
better-compute status --wait converged --nodes 3 --commit "$(git rev-parse HEAD)" >"$work/converged"
took=$((($(date +%s%N) - begin) / 1000000))
show "better-compute status --wait converged --nodes 3 --commit $(git rev-parse --short HEAD)"
cat "$work/converged"
say "Commit to the third machine's observed generation: ${took} ms (seen by polling)"
for name in one two three; do
    run cat "$work/$name/root/etc/demo.conf"
    run grep -r dirty_ratio "$work/$name/root/etc/sysctl.d"
done
run better-compute plan --newest
run better-compute get nodes

say "A mistake: nothing changes, and everybody can see why"
sed -i 's/sysctl { vm.dirty_ratio 10; }/sysclt { vm.dirty_ratio 40; }/' profiles/gpu-host.kdl
run git commit --quiet --all -m "a typo"
better-compute status --wait refused --commit "$(git rev-parse HEAD)" >/dev/null
run better-compute status
run grep -r dirty_ratio "$work/one/root/etc/sysctl.d"

say "Mended"
sed -i 's/sysclt {/sysctl {/' profiles/gpu-host.kdl
run git commit --quiet --all -m "mended"
run better-compute status --wait converged --nodes 3 --commit "$(git rev-parse HEAD)"
run grep -r dirty_ratio "$work/one/root/etc/sysctl.d"

say "Go on by hand"
cat <<TEXT
  export PATH=$bin:\$PATH
  cp -r $repo/examples-fleet my-fleet && cd my-fleet
  git init --initial-branch=main && git add --all && git commit --message "our fleet"
  better-compute up --dev --fleet .                 and in another terminal:
  better-compute status --watch
  better-compute token create --pool h100           prints the line that makes a machine join
Or run  scripts/demo.sh --keep  and play with this one. The README goes on from here.
TEXT
if [ $keep = yes ]; then
    cat <<TEXT

It keeps running until you press Ctrl-C. In another terminal:
  export PATH=$bin:\$PATH BETTER_COMPUTE_DATA=$BETTER_COMPUTE_DATA
  cd $work/fleet
TEXT
    wait "${pids[0]}"
fi
