#!/bin/bash
# PID 1 of the outer machine of the nested KVM test: loads KVM, walks vmpool's path through it, says PASS or FAIL, powers
# off. What `run` is to look at is printed as `@NAME VALUE`; every other line is for the reader. Nothing here returns to a
# caller: the end of this script is the end of the machine.
export PATH=/usr/bin:/usr/sbin BROOD_HOME=/home/brood
export BROOD_POOL_WARM_MIN=1 BROOD_POOL_WARM_MAX=1
socket=$BROOD_HOME/vmpool.sock
export BROOD_VMPOOL_SOCKET=$socket

say() {
    local up rest
    read -r up rest </proc/uptime
    echo "[$up] $*"
}
off() {
    echo o >/proc/sysrq-trigger
    sleep 60
}
fail() {
    [ -s /tmp/serve.log ] && tail -n 20 /tmp/serve.log
    dmesg 2>/dev/null | tail -n 15
    echo "@verdict FAIL $*"
    off
}
# step NAME SECONDS COMMAND...: its standard output, one line, becomes @NAME
step() {
    local name=$1 seconds=$2 out
    shift 2
    say "$*"
    out=$(timeout "$seconds" "$@" 2>/tmp/step.log) || {
        local rc=$?
        cat /tmp/step.log
        fail "$name: status $rc: $*"
    }
    [ -z "$out" ] || echo "@$name $out"
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup /sys/fs/cgroup # the jails' cgroups are of v2 here
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /tmp /run
mount -t tmpfs tmp /tmp
say "the outer machine is up"

step probe_none 30 brood-vmpool probe --json
while read -r module; do
    step module 20 insmod "$module"
done </modules.list
[ -c /dev/kvm ] || fail "kvm_amd is loaded, but there is no /dev/kvm"
# The "hardware" is an emulator, so what is fast and what is slow has to be said: first no guest is fast enough, then
# any that moves.
BROOD_TEST_KVM_ROUNDS_MIN=1e12 step probe_refused 60 brood-vmpool probe --json
export BROOD_TEST_KVM_ROUNDS_MIN=50
step probe_kvm 60 brood-vmpool probe --json

step snapshot 200 brood-vmpool snapshot python
step manifest 5 tr -d '\n' <"$(echo "$BROOD_HOME"/snapshots/python/*/manifest.json)"

say "brood-vmpool serve"
brood-vmpool serve >/tmp/serve.log 2>&1 &
vmpool=$!
step lease 180 brood-lease-once "$socket" python python3 -c 'print(6*7)'
# A machine's jail, from outside. The one that was just leased is ending; its successor comes.
jail=
for ((tries = 0; tries < 60; tries++)); do
    for comm in /proc/[0-9]*/comm; do
        read -r name <"$comm" || continue
        from=${comm%/comm}
        [[ $name == qemu* ]] && status=$(grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' "$from/status") &&
            group=$(cat "$from/cgroup") && [[ $group == */vm-* ]] && jail="$(tr -s '\n\t' '  ' <<<"$status")$group" && break 2
    done 2>/dev/null
    sleep 0.5
done
echo "@jail $jail"
# The sleep: timers of the machine that was frozen run on in its copy.
fork='import random, uuid, os, time; time.sleep(.2); '
fork+='print(random.random(), uuid.uuid4(), os.urandom(8).hex(), time.time())'
echo "@clock $EPOCHREALTIME"
step fork_one 90 brood-lease-once "$socket" python python3 -c "$fork"
echo "@clock $EPOCHREALTIME"
step fork_two 90 brood-lease-once "$socket" python python3 -c "$fork"
echo "@clock $EPOCHREALTIME"
# Frozen, forked, and forked again: what must hold is asked for there.
step tree 300 brood-fork-tree "$socket" python 3
step kept 300 brood-fork-tree "$socket" python 1 keep
kill "$vmpool"
wait "$vmpool" || fail "brood-vmpool serve ended with status $?"
say "brood-vmpool has ended; it said:"
cat /tmp/serve.log
left=$(grep -l qemu /proc/[0-9]*/comm 2>/dev/null)
[ -z "$left" ] || fail "left over: $left"
echo "@verdict PASS"
off
