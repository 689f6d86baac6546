#!/usr/bin/python3
"""The guest agent in real machines, without the pool: guest_agent.py HOME [NAME...]. Exit status 1 when a check fails.

HOME is a home folder with kernel/current and the templates python and c (templates/build-kernel, templates/build);
--home-of-tests: the one of the other end-to-end tests (BROOD_TEST_HOME, or test-home below BROOD_BUILD).
No check depends on how fast the machine is.
"""
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'support'))
from guest_boot import Guest, GuestFailed, FILE_DATA, STARTED, KILL, RUN  # noqa: E402

PY = 'python3'


def ok(r, stdout=None, code=0):
    assert r.exit and r.exit['exit_code'] == code and r.exit['signal'] == 0, r
    assert stdout is None or bytes(r.stdout) == stdout, r


def hello(g):
    for i in range(2):
        r = g.run([PY, '-c', 'print("hi")'])
        ok(r, b'hi\n')
        assert r.started['warm'] == 1 and r.exit['leftover_processes'] == 0, r
    r = g.run([PY, '-c', 'import sys; print(1); sys.stderr.write("e")'], warm=False)
    ok(r, b'1\n')
    assert r.started['warm'] == 0 and r.stderr == b'e', r


def stdin(g):
    data = bytes(range(256)) * 1000
    for warm in (True, False):
        r = g.run([PY, '-c', 'import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())'], stdin=data, warm=warm)
        ok(r, data)
    ok(g.run(['cat']), b'')
    ok(g.run(['cat'], stdin=data), data)


def exits_and_signals(g):
    ok(g.run([PY, '-c', 'import sys; sys.exit(7)']), code=7)
    ok(g.run(['sh', '-c', 'exit 200']), code=200)
    for warm in (True, False):
        r = g.run([PY, '-c', 'import os; os.kill(os.getpid(), 11)'], warm=warm)
        assert r.exit['signal'] == 11 and r.exit['exit_code'] == -1, r
    r = g.run(['no-such-program'])
    assert r.exit['exit_code'] == 127 and 'No such file' in r.exit['exec_error'], r
    g.file('plain', b'x')
    r = g.run(['./plain'])
    assert r.exit['exit_code'] == 126 and r.exit['exec_error'], r
    g.file('crlf', b'#!/bin/sh\r\necho 1\r\n', 0o755)
    r = g.run(['./crlf'])
    assert r.exit['exit_code'] == 127 and 'CRLF' in r.exit['exec_error'], r


def files(g):
    names = ['a b/\n"\'', 'ü/\N{PILE OF POO}', '-rf', 'd/e/f/g/h', 'x' * 255]
    for i, name in enumerate(names):
        g.file(name, b'%d' % i, 0o640)
    g.file('empty')
    g.file('big', os.urandom(200000))
    assert g.errors() == []
    r = g.run([PY, '-c', 'import os, sys\nfor n in sys.argv[1:]:\n    s = os.stat(n)\n    print(open(n).read(), s.st_uid, oct(s.st_mode))\n'
               'print(os.path.getsize("big"), os.path.getsize("empty"), os.stat("d/e").st_uid)'] + names)
    ok(r, b''.join(b'%d 1000 0o100640\n' % i for i in range(len(names))) + b'200000 0 1000\n')


def bad_files(g):
    for bad in ('../x', '/etc/passwd', 'a//b', '', '.', 'a/..', 'a/../../x'):
        g.file(bad, b'x')
        found = g.errors()
        assert len(found) == 1 and found[0]['user_fault'] == 1 and found[0]['what'] == 'file', (bad, found)
    ok(g.run(['sh', '-c', 'ln -s /etc link; mkfifo fifo; ln -s /etc/passwd l2']))
    for bad in ('link/x', 'fifo', 'l2'):
        g.file(bad, b'x')
        found = g.errors()
        assert len(found) == 1 and found[0]['user_fault'] == 1, (bad, found)
    ok(g.run(['sh', '-c', 'rm -f link fifo l2; ls /etc/x'], ), code=2)


def out_of_order(g):
    g.send(FILE_DATA, b'x')
    g.send(STARTED, b'')
    g.send(RUN, b'\xff\xff')
    assert len(g.errors()) == 3
    g.send(KILL)
    assert g.errors() == []  # crossed an EXIT


def memory(g):
    for warm in (True, False):
        r = g.run([PY, '-c', 'x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1'], warm=warm,
                  limits={'memory': 64 << 20})
        assert r.exit['signal'] == 9 and r.exit['oom_kills'] >= 1 and r.exit['killed'] == 0, r
        assert r.exit['memory_peak_bytes'] <= 65 << 20, r


def fork_bomb(g):
    bomb = 'import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        os.write(1, b"full")'
    for warm in (True, False):
        r = g.run([PY, '-c', bomb], kill_at_bytes=4, warm=warm, limits={'processes': 40})
        assert r.exit['killed'] == 1 and r.exit['process_refusals'] > 0 and r.exit['exec_error'] == 0, r
    r = g.run([PY, '-c', 'import signal, os, time\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n'
               'if os.fork() == 0:\n    os.setsid()\n    os.kill(os.getpid(), 19)\nos.kill(-1, 9)\ntime.sleep(1000)'],
              kill_after_s=2)
    assert r.exit['killed'] == 1, r
    hello(g)


def leftovers(g):
    r = g.run(['sh', '-c', '(setsid sleep 1000 &) ; echo out; exit 3'])
    ok(r, b'out\n', 3)
    assert r.exit['leftover_processes'] == 1, r
    r = g.run([PY, '-c', 'import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nprint("main")'])
    ok(r, b'main\n')
    assert r.exit['leftover_processes'] == 1, r


def last(g):
    """A run that is said to be the machine's last ends by another way, with the same word."""
    for warm in (True, False):
        for _ in range(3):
            ok(g.run([PY, '-c', 'print("hi")'], warm=warm, last=True), b'hi\n')
        ok(g.run([PY, '-c', 'import sys; sys.exit(7)'], warm=warm, last=True), code=7)
        r = g.run([PY, '-c', 'import os; os.kill(os.getpid(), 11)'], warm=warm, last=True)
        assert r.exit['signal'] == 11 and r.exit['exit_code'] == -1, r
        text = b'x' * 300000 + b'\n'
        ok(g.run([PY, '-c', 'print("x" * 300000)'], warm=warm, last=True), text)
        r = g.run([PY, '-c', 'import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nprint("main")'], warm=warm, last=True)
        ok(r, b'main\n')
        assert r.exit['leftover_processes'] == 1, r
        r = g.run([PY, '-c', 'import threading, time, os\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n'
                   'print("t", flush=True); os._exit(4)'], warm=warm, last=True)
        ok(r, b't\n', 4)
        r = g.run([PY, '-c', 'b = bytearray(1 << 30)'], warm=warm, last=True, limits={'memory': 64 << 20})
        assert r.exit['exit_code'] == 1 or r.exit['signal'] == 9, r
        r = g.run([PY, '-c', 'import os\nif os.fork():\n    os._exit(5)\nos.write(1, b"c")'], warm=warm, last=True)
        assert r.exit['exit_code'] == 5, r
        r = g.run([PY, '-c', 'while True: pass'], warm=warm, last=True, kill_after_s=0.3)
        assert r.exit['killed'] == 1 and r.exit['signal'] == 9, r
    r = g.run(['no-such-program'], last=True)
    assert r.exit['exit_code'] == 127 and 'No such file' in r.exit['exec_error'], r
    ok(g.run(['sh', '-c', 'for i in 1 2 3 4 5 6 7 8; do /bin/true; done; exit 9'], last=True), b'', 9)


def flood(g):
    r = g.run(['sh', '-c', 'head -c 3000000 /dev/zero'], limits={'output': 10 << 20}, read_delay_s=0.01)
    ok(r)
    assert len(r.stdout) == 3000000 == r.exit['stdout_bytes'] and not any(r.stdout), len(r.stdout)
    r = g.run(['sh', '-c', 'head -c 8000000 /dev/zero; echo done >&2'], limits={'output': 100000})
    ok(r)
    assert r.exit['stdout_bytes'] == 8000000 and len(r.stdout) == 100000 + (2 << 20) and r.stderr == b'done\n', (
        len(r.stdout), r.exit)
    r = g.run(['yes'], kill_at_bytes=1000 + (2 << 20), limits={'output': 1000})
    assert r.exit['killed'] == 1 and r.exit['stdout_bytes'] >= len(r.stdout) == 1000 + (2 << 20), r.exit


def unread_stdin(g):
    data = bytes(64 << 20)
    for program in ('import time; time.sleep(1)', 'import os, time; os.close(0); time.sleep(1)'):
        r = g.run([PY, '-c', program], stdin=data)
        ok(r)
        assert r.sent_stdin < 1 << 20, r.sent_stdin


def disk(g):
    r = g.run(['sh', '-c', 'head -c 30000000 /dev/zero >f; echo $?; exit 0'], limits={'disk': 16 << 20})
    assert r.exit['disk_full'] == 1 and r.exit['disk_used_bytes'] <= 17 << 20 and r.stdout == b'1\n', r
    ok(g.run(['sh', '-c', 'rm -f f big; df /work >/dev/null']))
    r = g.run(['sh', '-c', 'head -c 3000000 /dev/zero >/tmp/f'])
    assert r.exit['disk_full'] == 0 and r.exit['disk_used_bytes'] >= 3000000, r
    r = g.run(['sh', '-c', 'echo x >/tmp/g'], limits={'disk': 1 << 20})  # what was there is given, and nothing can be added
    assert r.exit['exit_code'] != 0 and r.exit['disk_refusals'] > 0, r
    ok(g.run(['rm', '-f', '/tmp/f', '/tmp/g'], limits={'disk': 1 << 20}))
    g.file('large', b'x' * 3000000)
    r = g.run(['true'], limits={'disk': 1 << 20})  # the job's own files are not
    assert r.error and r.error['user_fault'] == 1, r
    ok(g.run(['rm', '-f', 'large']))


def identity(g):
    seen = set()
    for i in range(2):
        g.ping()
        now = 1900000000 * 10**9 + i * 10**12
        ready = g.identity(f'job-{i}', realtime_ns=now, machine_id=bytes([i]) * 16)
        assert ready['reseeded'] == 1 and 0 <= ready['realtime_ns'] - now < 10**9, ready
        r = g.run([PY, '-c', 'import random, uuid, os, time, socket\nprint(random.random(), uuid.uuid4(), os.urandom(8).hex())\n'
                   'print(int(time.time()), socket.gethostname(), open("/etc/machine-id").read(), open("/etc/hostname").read())'])
        random_line, names = bytes(r.stdout).decode().split('\n', 1)
        assert f'job-{i}' in names and '%02x' % i * 16 in names, names
        assert 0 <= int(names.split()[0]) - now // 10**9 < 60, names
        seen |= set(random_line.split())
    assert len(seen) == 6, seen
    bad = g.run([PY, '-c', 'pass'])
    ok(bad)


def user(g):
    r = g.run(['sh', '-c', 'id -u; id -G; grep -E "CapEff|CapBnd" /proc/self/status | head -1; ls -l /dev | grep -cE "vport|vda"; '
               'cat /proc/1/environ; touch /etc/x; echo > /proc/sys/vm/overcommit_memory; umask; env | sort'], env={'A': '1'})
    lines = bytes(r.stdout).decode().split('\n')
    assert lines[:4] == ['1000', '1000', 'CapEff:\t0000000000000000', '0'], r
    assert '0022' in lines and 'A=1' in lines and 'HOME=/work' in lines and 'TZ=UTC' in lines, r
    r = g.run(['id', '-u'], root=True)
    ok(r, b'0\n')


def host_gone(g):
    g.start(['sleep', '1000'])
    g.frame(60, STARTED)
    g.disconnect()
    g.connect()
    deadline = time.monotonic() + 30
    while True:  # the old run is being ended meanwhile
        hello_message = g.ping()
        r = g.run(['echo', 'back'])
        if r.exit:
            break
        assert time.monotonic() < deadline, r
    ok(r, b'back\n')
    assert hello_message['protocol'] == 1
    g.send(99 % 15, b'')
    assert g.frame()[0] == 14


def warm_killed(g):
    r = g.run(['sh', '-c', 'kill -9 $(pgrep -f /usr/lib/brood/warm | head -1)'], root=True)
    r = g.run([PY, '-c', 'print(5)'])
    ok(r, b'5\n')
    r = g.run([PY, '-c', 'print(6)'])
    ok(r, b'6\n')
    assert g.ping()['warm_python'] == 0


def trusted(g):
    r = g.run([PY, '-c', 'open("x", "w").write("a"); open("/tmp/y", "w"); print(1)'], trusted=True)
    ok(r, b'1\n')
    g.send(RUN, b'\x12\x05true\0')
    found = g.errors()
    assert len(found) == 1 and 'identity' in found[0]['text'], found


def trusted_writes(g):
    """What is written before there is a job, where nothing is wiped, is not the job's (see exact_disk)."""
    ok(g.run(['sh', '-c', 'head -c 3000000 /dev/zero >/var/left; echo 1'], root=True, trusted=True), b'1\n')


def exact_disk(g):
    r = g.run(['sh', '-c', 'head -c 8388608 /dev/zero >f; echo 1'], limits={'disk': 9 << 20})
    assert r.stdout == b'1\n' and not r.exit['disk_full'] and 8 << 20 <= r.exit['disk_used_bytes'] < 8450000, r
    r = g.run(['sh', '-c', 'cat f f >h; rm f h'], limits={'disk': 9 << 20})
    assert r.exit['disk_refusals'] > 0 and not r.exit['disk_full'], r


def trusted_left_nothing(g):
    ok(g.run(['sh', '-c', 'ls -A /work /tmp']), b'/tmp:\n\n/work:\n')


def c_program(g):
    g.file('m.c', b'#include <stdio.h>\nint main(void){int n;scanf("%d",&n);printf("%d\\n",n*n);return n;}\n')
    ok(g.run(['gcc', '-O1', '-o', 'm', 'm.c'], limits={'processes': 20}))
    ok(g.run(['./m'], stdin=b'12\n'), b'144\n', 12)
    g.file('m.cc', b'#include <iostream>\nint main(){std::cout << "c++\\n";}\n')
    g.file('Makefile', b'all:\n\tg++ -o mm m.cc\n')
    ok(g.run(['make', '-s']))
    ok(g.run(['./mm']), b'c++\n')
    r = g.run(['python3', '-c', '1'])
    assert r.exit['exit_code'] == 127, r


def stack_overflow(g):
    g.file('deep.c', b'int f(volatile char *p){volatile char a[1024]; a[0] = *p; return f(a) + a[0];}\n'
                     b'int main(void){volatile char c = 1; return f(&c);}\n')
    ok(g.run(['gcc', '-O1', '-w', '-o', 'deep', 'deep.c'], limits={'processes': 20}))
    for memory in (32 << 20, 256 << 20):  # its own stack ends it, not the memory limit
        r = g.run(['./deep'], limits={'memory': memory})
        assert r.exit['signal'] == 11 and r.exit['oom_kills'] == 0, r


SUITES = {
    'python': ([trusted, trusted_writes], [trusted_left_nothing, exact_disk, hello, stdin, exits_and_signals, files, bad_files, out_of_order, user, memory,
                           fork_bomb, leftovers, last, flood, unread_stdin, disk, identity, warm_killed, host_gone]),
    'c': ([], [c_program, stack_overflow]),
}


def main():
    home, names = sys.argv[1], sys.argv[2:]
    if home == '--home-of-tests':
        home = os.environ.get('BROOD_TEST_HOME') or os.path.join(os.environ['BROOD_BUILD'], 'test-home')
    failed = count = 0
    for template, (before, after) in SUITES.items():
        checks = [c for c in before + after if not names or c.__name__ in names]
        if not checks:
            continue
        with Guest(home, template, boot_s=300) as g:
            print(f'{template}: booted in {g.boot_s:.1f} s {g.hello}', flush=True)
            for check in [*before, g.identity, *after]:
                if check in before + after and check not in checks:
                    continue
                count += check in checks
                begin = time.monotonic()
                try:
                    check() if check == g.identity else check(g)
                    print(f'  ok   {check.__name__} {time.monotonic() - begin:.1f} s', flush=True)
                except (AssertionError, GuestFailed, OSError):
                    failed += 1
                    print(f'  FAIL {check.__name__}\n{traceback.format_exc()[-1500:]}', flush=True)
    print(f'guest_agent: {count} checks, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
