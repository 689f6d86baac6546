#!/bin/sh
# fixture.sh up|again|down: one running brood for all end-to-end programs (CTest fixture; also used by a program run by hand).
# up builds the templates' snapshots when they are missing (an unchanged recipe is not rebuilt) and starts everything
# (again: without looking at the templates) with a short lease, so that a dead worker's job is given to another within seconds.
set -eu
brood=${BROOD_BUILD:-$(dirname "$0")/../../build}/brood
home=${BROOD_TEST_HOME:-${BROOD_BUILD:-$(dirname "$0")/../../build}/test-home}
export BROOD_HOME="$home"
export BROOD_SCHEDULER_LEASE_MS="${BROOD_SCHEDULER_LEASE_MS:-2000}"
export BROOD_WORKER_HEARTBEAT_MS="${BROOD_WORKER_HEARTBEAT_MS:-500}"
# Branches that wait are offered to another worker as soon as one is there (test_two_hosts).
export BROOD_WORKER_HELP_AFTER_MS="${BROOD_WORKER_HELP_AFTER_MS:-0}"
# Nothing of the service's environment may reach a job (case B088).
export E2E_CANARY=canary-7f3a
# As an operator with an S3 store would; the store is a folder here, so nobody uses them (test_secrets).
export AWS_SECRET_ACCESS_KEY=key-of-s3-51c2 BROOD_S3_SECRET_KEY=key-of-s3-51c2
case "${1:-}" in
up)
    "$brood" template build python
    "$brood" template build c
    "$brood" up --detach
    ;;
again)
    "$brood" up --detach
    ;;
down)
    "$brood" down
    ;;
*)
    echo "usage: fixture.sh up|again|down" >&2
    exit 2
    ;;
esac
