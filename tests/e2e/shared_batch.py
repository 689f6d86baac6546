#!/usr/bin/python3
"""isolation shared through the whole service: which jobs of a batch met in one machine. shared_batch.py, with brood up.

Each job prints its machine's id and how long that machine has been up, so what followed what is known from the guests
themselves, on any host. Some jobs give a sign of trouble; no job may come after one in its machine. Exit status 1 when
a check fails."""
import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
BROOD = os.path.join(os.environ.get('BROOD_BUILD') or os.path.join(TOP, 'build'), 'brood')
HOME = os.environ.get('BROOD_TEST_HOME') or os.path.join(os.environ.get('BROOD_BUILD', ''), 'test-home')
WHERE = ("import time; print(open('/etc/machine-id').read().strip(), time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)\n")
PLAIN = 'import os; print(sorted(os.listdir("/tmp")), len([p for p in os.listdir("/proc") if p.isdigit()]))\n'
# name: (source, more of the job, verdicts it may have)
TROUBLE = {
    'time limit': ('while True: pass', {'limits': {'cpu_ms': 100}}, 'time_limit'),
    'left process': ('import os, time\nif os.fork() == 0:\n    os.setsid(); os.close(1); os.close(2); time.sleep(1000)\n', {}, 'accepted'),
    'survived out of memory': ('import os\nif os.fork() == 0: x = bytearray(400 << 20)\nos.wait()\n', {'limits': {'memory_mib': 64}}, 'accepted|memory_limit'),
    'refused fork': ('import os\nkids = []\ntry:\n    while True:\n        kids.append(os.fork())\n        if not kids[-1]: os.read(0, 1); import signal; signal.pause()\n'
                     'except OSError: pass\nfor k in kids: os.kill(k, 9); os.wait()\n', {'limits': {'processes': 8}}, 'accepted|process_limit'),
    'output limit': ('print("x" * 100000)', {'limits': {'output_bytes': 2000}}, 'output_limit'),
}


def brood(*args):
    return subprocess.run([BROOD, args[0], '--home', HOME, *args[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def results(jobs):
    with tempfile.NamedTemporaryFile('w', suffix='.jsonl') as f:
        f.writelines(json.dumps({'template': 'python', 'isolation': 'shared', **job}) + '\n' for job in jobs)
        f.flush()
        done = brood('submit', f.name)
    if done.returncode:
        sys.exit(done.stderr)
    batch = done.stdout.split()[-1]
    brood('watch', batch)
    rows = [json.loads(line) for line in brood('results', batch).stdout.splitlines()]
    assert len(rows) == len(jobs), done.stdout
    return rows


def place(row):
    machine, up = row['stdout'].split('\n')[0].split()
    return machine, float(up)


def python(name, source, **more):
    return {'name': name, 'command': ['python3', '-c', WHERE + source], **more}


def main():
    failed = 0

    def check(ok, *why):
        nonlocal failed
        failed += not ok
        if not ok:
            print('FAIL', *why)

    jobs = []
    for name, (source, more, _) in TROUBLE.items():
        jobs += [python('plain', PLAIN)] * 2 + [python(name, source, **more)]
    jobs += [python('plain', PLAIN)] * 2
    rows = results(jobs)
    by_machine = {}
    for row in rows:
        wanted = TROUBLE[row['name']][2].split('|') if row['name'] in TROUBLE else ['accepted']
        check(row['verdict'] in wanted, row['name'], row['verdict'], row['reason'], row['stderr'])
        machine, up = place(row)
        by_machine.setdefault(machine, []).append((up, row['name']))
        if row['name'] == 'plain':
            check(row['stdout'].split('\n')[1] == '[] 2', 'what a job sees:', row['stdout'])
    for machine, runs in by_machine.items():
        names = [name for _, name in sorted(runs)]
        check(all(name == 'plain' for name in names[:-1]), 'jobs came after a sign of trouble:', names)
    check(any(len(runs) > 1 for runs in by_machine.values()), 'no two jobs have met in one machine')
    check(len(by_machine) >= len(TROUBLE), 'machines:', by_machine)

    # Another batch never meets the first, nor do batches of vm; the ids are those of machines.
    other = results([python('plain', PLAIN)] * 3)
    alone = results([python('plain', '', isolation='vm')] * 3)
    check(not by_machine.keys() & {place(r)[0] for r in other + alone}, 'two batches have met')
    check(len({place(r)[0] for r in alone}) == 3, 'runs with isolation vm have met')
    print('shared_batch: %d jobs in %d machines, %d checks failed' % (len(rows), len(by_machine), failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
