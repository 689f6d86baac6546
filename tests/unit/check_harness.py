#!/usr/bin/python3
"""The Python harness on this machine, without a sandbox: check_harness.py CASES.json ... runs their jobs' commands and
compares exit status and stdout with what the case expects. What is hostile needs a machine of its own: tests/e2e."""
import json
import os
import subprocess
import sys
import tempfile

HARNESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../templates/python/harness.py')


def text(lines):
    return '\n'.join(lines) + '\n'


bad = 0
for case in sys.argv[1:]:
    for n, row in enumerate(json.load(open(case))['jobs']):
        job, want = row['job'], row['expect']
        if 'time_limit' in want['verdict']:
            continue
        with tempfile.TemporaryDirectory() as work:
            for f in job['files']:
                with open(os.path.join(work, f['path']), 'w') as out:
                    out.write(text(f['text']))
            r = subprocess.run([sys.executable, HARNESS, *job['command'][2:]], cwd=work, input=text(job['stdin']), text=True,
                               capture_output=True, timeout=120)
        passed = r.returncode == 0 and r.stdout.strip() == job['expect']['stdout']
        if passed != (want['verdict'] == 'accepted') or want.get('exit_code', r.returncode) != r.returncode:
            bad += 1
            print(f'{case}: job {n + 1}: exit status {r.returncode}, stdout {r.stdout!r}\n{r.stderr}')
sys.exit(bad > 0)
