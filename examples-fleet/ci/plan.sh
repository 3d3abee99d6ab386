#!/bin/sh
# Plan what a branch would do to the fleet, as a pull request is merged: what CI runs, and what a person runs before
# pushing. Nothing of the branch is checked out or executed; it is read from git's objects.
#
#   ci/plan.sh                                       this branch against the main one
#   ci/plan.sh --base origin/main --head my-branch
#   ci/plan.sh --out plan --comment                  as CI does: files, job summary, one comment on the pull request
#
# Without a credential the plan is made offline, from the two commits alone. With BETTER_COMPUTE_URL and
# BETTER_COMPUTE_TOKEN (scope plans:preview; BETTER_COMPUTE_CA or BETTER_COMPUTE_CA_PEM vouches for the server) the
# control plane plans it for the machines that it really has.
#
# Exits with 0 when the result can be merged, 1 when it has errors, conflicts or cannot be read; with --exit-code also
# with 2 when it changes something.
set -eu

BIN=${BETTER_COMPUTE_BIN:-better-compute}
base='' head=HEAD out='' comment='' exit_code=''
folder=${PLAN_FOLDER-}

die() {
    printf 'plan.sh: %s\n' "$*" >&2
    exit 1
}

say() {
    printf 'plan.sh: %s\n' "$*" >&2
}

while [ $# -gt 0 ]; do
    case $1 in
        --base) base=${2:?--base needs a commit} && shift 2 ;;
        --head) head=${2:?--head needs a commit} && shift 2 ;;
        --out) out=${2:?--out needs a directory} && shift 2 ;;
        --folder) folder=${2?--folder needs a folder} && shift 2 ;;
        --comment) comment=yes && shift ;;
        --exit-code) exit_code=yes && shift ;;
        -h | --help) sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$0" && exit 0 ;;
        *) die "unknown argument $1; --help says what there is" ;;
    esac
done

command -v "$BIN" >/dev/null || die "$BIN is not installed; BETTER_COMPUTE_BIN names another place"
repo=$(git rev-parse --git-dir) || die 'not in a git repository'
[ -n "$folder" ] || folder=$(git rev-parse --show-prefix 2>/dev/null || :)
folder=${folder%/}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# --- what is compared ---

commit() {
    case $1 in -*) die "$1 is no commit" ;; esac
    git rev-parse --verify --quiet "$1^{commit}" || die "there is no commit $1; was it fetched?"
}

if [ -z "$base" ]; then
    base=$(git rev-parse --verify --quiet --abbrev-ref origin/HEAD || echo main)
fi
base_commit=$(commit "$base")
head_commit=$(commit "$head")

if [ "$head" = HEAD ] && [ -n "$(git status --porcelain -- ":/$folder" 2>/dev/null || :)" ]; then
    say 'files here are changed and not committed: a plan of commits does not have them, `better-compute plan` does'
fi
if git merge-base --is-ancestor "$head_commit" "$base_commit"; then
    say "$head is in $base already, so that there is nothing to plan: commit on a branch, or name another --head"
    [ -n "$out$comment" ] || exit 0
fi

# The merge of the two as it would be made now: a branch that is behind takes nothing back that the base has.
merged() {
    if git merge-base --is-ancestor "$base_commit" "$head_commit"; then
        echo "$head_commit"
        return
    fi
    if ! git merge-tree --write-tree --name-only --no-messages "$base_commit" "$head_commit" >"$work/tree"; then
        say "$head does not merge into $base; these files conflict:"
        sed -n '2,$s/^/  /p' "$work/tree" >&2
        return 1
    fi
    when=$(git show --no-patch --format=%ct "$head_commit")
    GIT_AUTHOR_NAME=plan GIT_AUTHOR_EMAIL=plan@localhost GIT_AUTHOR_DATE="$when +0000" \
        GIT_COMMITTER_NAME=plan GIT_COMMITTER_EMAIL=plan@localhost GIT_COMMITTER_DATE="$when +0000" \
        git -c commit.gpgSign=false commit-tree "$(sed -n 1p "$work/tree")" -p "$base_commit" -p "$head_commit" -m 'merge result'
}
result=$(merged) || exit 1

# --- the plan ---

[ -n "$out" ] || out=$work/out
mkdir -p "$out"

plan() {
    "$BIN" plan "$@" --base "$base_commit" --head "$result" --repo "$repo" --path "$folder" --exit-code
}

# Everything that the plan says, made once and written in three forms; answers 0 nothing, 2 changes, 1 errors.
forms() {
    code=0
    rm -f "$out/plan.json" "$out/plan.md"
    plan "$@" --output "json=$out/plan.json" --output "markdown=$out/plan.md" --key "$folder" \
        >"$out/plan.txt" 2>"$work/said" || code=$?
    return "$code"
}

code=1 live='' unasked=''
if [ -n "${BETTER_COMPUTE_URL-}" ] && [ -n "${BETTER_COMPUTE_TOKEN-}" ]; then
    code=0 live=yes
    forms --live || code=$?
    if [ "$code" = 1 ] && [ ! -s "$out/plan.md" ]; then
        say 'the control plane could not be asked, so that this is the offline plan:'
        cat "$work/said" >&2
        live='' unasked=yes
    fi
fi
if [ -z "$live" ]; then
    code=0
    unset BETTER_COMPUTE_URL BETTER_COMPUTE_TOKEN BETTER_COMPUTE_CA BETTER_COMPUTE_CA_PEM
    forms || code=$?
fi
if [ -n "$unasked" ] && [ -s "$out/plan.md" ]; then
    note='**The control plane could not be asked:** this plan is offline and knows declared machines only.'
    { sed -n 1p "$out/plan.md" && printf '%s\n\n' "$note" && sed 1d "$out/plan.md"; } >"$work/noted.md"
    mv "$work/noted.md" "$out/plan.md"
fi
# What a repository says is no command to the one who runs this: a line that begins with `::` would be one.
fence=''
if [ -n "${GITHUB_ACTIONS-}" ]; then
    fence=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    echo "::stop-commands::$fence"
fi
cat "$out/plan.txt" "$work/said"
[ -z "$fence" ] || echo "::$fence::"
[ -s "$out/plan.md" ] || exit 1

# --- where people see it ---

if [ -n "${GITHUB_ACTIONS-}" ] && [ "$code" = 1 ]; then
    "$BIN" check --head "$result" --repo "$repo" --path "$folder" --format github || :
fi
if [ -n "${GITHUB_STEP_SUMMARY-}" ]; then
    cat "$out/plan.md" >>"$GITHUB_STEP_SUMMARY"
fi

# One call to a forge. The token travels on standard input, where no list of processes shows it.
call() {
    method=$1 address=$2 header=$3
    shift 3
    printf 'header = "%s"\n' "$header" |
        curl --config - --silent --show-error --fail --max-time 30 --request "$method" \
            --header 'Content-Type: application/json' "$@" "$address"
}

# The comment that begins with our mark and that we wrote ourselves: anybody can write the mark.
find_comment() {
    page=1
    while :; do
        call GET "$1?per_page=100&page=$page" "$2" >"$work/page.json" || return 1
        found=$(jq -r --arg mark "$(sed -n 1p "$out/plan.md")" --arg author "$4" \
            "[.[] | select((.body | startswith(\$mark)) and $3 == \$author)][0].id // empty" "$work/page.json")
        if [ -n "$found" ]; then
            echo "$found"
            return
        fi
        [ "$(jq length "$work/page.json")" = 100 ] || return 0
        page=$((page + 1))
    done
}

# Edits our comment, or writes the first one. A plan that changes nothing begins no conversation.
post() {
    comments=$1 edit=$2 edit_method=$3 header=$4 author_of=$5 author=$6
    found=$(find_comment "$comments" "$header" "$author_of" "$author") || return 1
    jq -Rs '{body: .}' <"$out/plan.md" >"$work/body.json"
    if [ -n "$found" ]; then
        call "$edit_method" "$edit/$found" "$header" --data-binary "@$work/body.json" >/dev/null
    elif [ "$code" != 0 ]; then
        call POST "$comments" "$header" --data-binary "@$work/body.json" >/dev/null
    fi
}

comment_on_github() {
    api=${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY/issues
    post "$api/$PULL_REQUEST/comments" "$api/comments" PATCH "Authorization: Bearer $GITHUB_TOKEN" \
        .user.login "${COMMENT_AUTHOR:-github-actions[bot]}"
}

comment_on_gitlab() {
    header="PRIVATE-TOKEN: $GITLAB_TOKEN"
    author=$(call GET "$CI_API_V4_URL/user" "$header" | jq -r .username) || return 1
    notes=$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes
    post "$notes" "$notes" PUT "$header" .author.username "$author"
}

if [ -n "$comment" ]; then
    if [ -n "${GITHUB_TOKEN-}" ] && [ -n "${GITHUB_REPOSITORY-}" ] && [ -n "${PULL_REQUEST-}" ]; then
        comment_on_github || say 'the comment could not be written (a fork may not); the job summary has the plan'
    elif [ -n "${GITLAB_TOKEN-}" ] && [ -n "${CI_MERGE_REQUEST_IID-}" ]; then
        comment_on_gitlab || say 'the comment could not be written; the job log has the plan'
    else
        say 'no token to comment with; the plan stands above'
    fi
fi

if [ "$code" = 2 ] && [ -z "$exit_code" ]; then
    code=0
fi
exit "$code"
