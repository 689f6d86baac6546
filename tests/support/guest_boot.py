"""Boots a template in QEMU and speaks the guest channel: for tests of the agent and of the warm interpreter.

Only the standard library: the few messages of schemas/proto/guest.proto are encoded here by hand. One connection, one
machine, no snapshot; the pool has its own tests.

    with Guest(home, 'python') as g:
        g.identity()
        r = g.run(['python3', '-c', 'print(1)'])
        assert r.exit['exit_code'] == 0 and r.stdout == b'1\\n'
"""
import os
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time

HELLO, PING, IDENTITY, READY, FILE, FILE_DATA, RUN, STARTED, PULL, STDIN, OUTPUT, KILL, EXIT, ERROR = range(1, 15)
COLLECT, ARTIFACT, ARTIFACT_DATA, ARTIFACT_END, COLLECTED = range(15, 20)
CELL, CELL_READY = 22, 23
CHUNK = 65536
FIELDS = {
    HELLO: {1: 'protocol', 2: 'agent', 3: 'kernel', 4: 'warm_python', 5: 'runs_left'},
    READY: {1: 'reseeded', 2: 'realtime_ns'},
    STARTED: {1: 'run', 2: 'warm'},
    PULL: {1: 'run', 2: 'bytes'},
    EXIT: {1: 'run', 2: 'exit_code', 3: 'signal', 4: 'killed', 5: 'cpu_us', 6: 'wall_us', 7: 'memory_peak_bytes',
           8: 'oom_kills', 9: 'process_refusals', 10: 'leftover_processes', 11: 'disk_used_bytes', 12: 'disk_full',
           13: 'stdout_bytes', 14: 'stderr_bytes', 15: 'exec_error', 16: 'disk_refusals', 17: 'disk_file_refusals',
           18: 'open_file_refusals', 19: 'disk_files_used'},
    ERROR: {1: 'run', 2: 'user_fault', 3: 'what', 4: 'text'},
    ARTIFACT: {1: 'run', 2: 'path', 3: 'mode', 4: 'type', 5: 'size', 6: 'target', 7: 'skipped'},
    ARTIFACT_END: {1: 'run', 2: 'change'},
    CELL_READY: {1: 'spare', 2: 'cells', 3: 'trouble'},
    COLLECTED: {1: 'run', 2: 'files', 3: 'bytes', 4: 'truncated', 5: 'left_out', 6: 'unmatched'},
}
DEFAULT_LIMITS = {'memory': 256 << 20, 'processes': 64, 'disk': 64 << 20, 'files': 256, 'output': 1 << 20}


class GuestFailed(Exception):
    pass


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    if isinstance(value, (bytes, str)):
        data = value.encode() if isinstance(value, str) else value
        return varint(number << 3 | 2) + varint(len(data)) + data
    return varint(number << 3) + varint(int(value)) if value else b''


def decode(kind, data):
    names = FIELDS[kind]
    out = dict.fromkeys(names.values(), 0)
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        key = number()
        if key & 7 == 2:
            n = number()
            value = data[at:at + n].decode('utf-8', 'surrogateescape')
            at += n
        else:
            value = number()
            if value >= 1 << 63:
                value -= 1 << 64
        out[names[key >> 3]] = value
    return out


def tsc_options(accel):
    """Under TCG the guest's TSC is the host's, and a busy host keeps the kernel from measuring its rate."""
    if accel != 'tcg':
        return ''
    with open('/proc/cpuinfo') as f:
        mhz = next(float(line.split(':')[1]) for line in f if line.startswith('cpu MHz'))
    return f' tsc=reliable tsc_early_khz={int(mhz * 1000)}'


class Result:
    def __init__(self):
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.frames = []
        self.exit = None
        self.started = None
        self.error = None
        self.first_byte_s = None
        self.wall_s = None
        self.sent_stdin = 0

    def __repr__(self):
        return f'<stdout={bytes(self.stdout[:300])} stderr={bytes(self.stderr[:600])} exit={self.exit} error={self.error}>'


class Guest:
    def __init__(self, home, template, memory_mib=512, accel='tcg', console=False, kernel=None, boot_s=180):
        self.dir = tempfile.mkdtemp(prefix='guest-')
        kernel = kernel or os.path.join(home, 'kernel', 'current')
        rootfs = os.path.join(home, 'templates', template, 'current', 'rootfs.erofs')
        self.listener = socket.socket(socket.AF_UNIX)
        path = os.path.join(self.dir, 'channel')
        self.listener.bind(path)
        self.listener.listen(1)
        self.log = open(os.path.join(self.dir, 'log'), 'w+b')
        cpu = ['-cpu', 'qemu64'] if accel == 'tcg' else ['-cpu', 'host']
        accel_arg = 'tcg,thread=single,tb-size=256' if accel == 'tcg' else accel
        self.started_at = time.monotonic()
        self.qemu = subprocess.Popen(
            ['qemu-system-x86_64', '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot',
             '-M', 'microvm,x-option-roms=off,acpi=on,auto-kernel-cmdline=off,pit=on,pic=on,rtc=on', '-accel', accel_arg, *cpu, '-m', f'{memory_mib}M',
             '-kernel', os.path.join(kernel, 'vmlinuz'), '-initrd', os.path.join(kernel, 'initrd'),
             '-append', 'panic=-1 quiet mitigations=off nokaslr random.trust_cpu=on console=ttyS0' + tsc_options(accel),
             '-serial', 'stdio' if console else f'file:{self.dir}/console',
             '-drive', f'id=root,file={rootfs},format=raw,if=none,readonly=on,file.locking=off',
             '-device', 'virtio-blk-device,drive=root', '-device', 'virtio-serial-device',
             '-chardev', f'socket,id=agent,path={path},server=off,reconnect=1',
             '-device', 'virtserialport,chardev=agent,name=brood.agent'],
            stdin=subprocess.DEVNULL, stdout=None if console else self.log, stderr=None if console else self.log)
        self.sock = None
        self.data = bytearray()
        self.numbers = 0
        try:
            self.connect(boot_s)
            self.hello = decode(HELLO, self.frame(boot_s, HELLO)[2])
        except BaseException:
            self.close()
            raise
        self.boot_s = time.monotonic() - self.started_at

    def connect(self, timeout_s=60):
        """Take QEMU's (next) connection: disconnect() and connect() are a host that goes and comes back."""
        self.listener.settimeout(timeout_s)
        self.sock, _ = self.listener.accept()
        self.data.clear()

    def disconnect(self):
        self.sock.close()
        self.sock = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.qemu.kill()
        self.qemu.wait()
        for f in (self.sock, self.listener, self.log):
            if f:
                f.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def console_text(self):
        try:
            with open(os.path.join(self.dir, 'console'), errors='replace') as f:
                return f.read()[-2000:]
        except OSError:
            return ''

    def send(self, kind, payload=b''):
        self.sock.settimeout(60)
        self.sock.sendall(struct.pack('<IBBH', len(payload), kind, 0, 0) + payload)

    def frame(self, timeout_s=60, want=None):
        """The next frame: (type, stream, payload)."""
        deadline = time.monotonic() + timeout_s
        while True:
            if len(self.data) >= 8:
                n, kind, stream, zero = struct.unpack_from('<IBBH', self.data)
                if zero or n > CHUNK or not 1 <= kind <= 23:
                    raise GuestFailed(f'bad header {bytes(self.data[:8])}')
                if len(self.data) >= 8 + n:
                    payload = bytes(self.data[8:8 + n])
                    del self.data[:8 + n]
                    if want is not None and kind != want:
                        text = decode(kind, payload) if kind in FIELDS else payload[:80]
                        raise GuestFailed(f'frame {kind} instead of {want}: {text}')
                    return kind, stream, payload
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise GuestFailed(f'no frame in {timeout_s} s; console: {self.console_text()}')
            more = self.sock.recv(CHUNK)
            if not more:
                raise GuestFailed(f'QEMU closed the channel; console: {self.console_text()}')
            self.data += more

    def ping(self):
        self.send(PING)
        return decode(HELLO, self.frame(60, HELLO)[2])

    def identity(self, name='job-1', realtime_ns=None, machine_id=None):
        self.send(IDENTITY, field(1, realtime_ns or time.time_ns()) + field(2, os.urandom(32)) + field(3, name) +
                  field(4, machine_id or os.urandom(16)))
        return decode(READY, self.frame(60, READY)[2])

    def cell(self, spare=True, timeout_s=60):
        self.send(CELL, field(1, spare))
        return decode(CELL_READY, self.frame(timeout_s, CELL_READY)[2])

    def file(self, path, data=b'', mode=0o644, size=None):
        """Put a file. The guest answers only when it cannot: see error_now()."""
        self.send(FILE, field(1, path) + field(2, mode) + field(3, len(data) if size is None else size))
        for at in range(0, len(data), CHUNK):
            self.send(FILE_DATA, data[at:at + CHUNK])

    def errors(self):
        """Errors that the guest has sent up to now (a PING behind them makes sure)."""
        self.send(PING)
        found = []
        while True:
            kind, _, payload = self.frame()
            if kind == HELLO:
                return found
            found.append(decode(kind, payload))

    def start(self, argv, env=None, cwd='', root=False, stdin=b'', stdin_bytes=None, limits=None, warm=True,
              trusted=False, keep=False, cell=False, last=False):
        self.numbers += 1
        limits = {**DEFAULT_LIMITS, **(limits or {})}
        def strings(items):
            return b''.join((i if isinstance(i, bytes) else i.encode()) + b'\0' for i in items)
        packed = b''.join(field(i + 1, limits[k]) for i, k in enumerate(DEFAULT_LIMITS))
        self.send(RUN, field(1, self.numbers) + field(2, strings(argv)) +
                  field(3, strings(f'{k}={v}' for k, v in (env or {}).items())) + field(4, cwd) + field(5, root) +
                  field(6, len(stdin) if stdin_bytes is None else stdin_bytes) + field(7, packed) + field(8, warm) +
                  field(9, trusted) + field(10, keep) + field(11, cell) + field(12, last))

    def finish(self, stdin=b'', kill_after_s=None, timeout_s=120, read_delay_s=0, kill_at_bytes=None):
        result = Result()
        begin = time.monotonic()
        at = 0
        killed = False
        while True:
            wait = timeout_s
            if kill_after_s is not None and not killed:
                wait = max(0.0, begin + kill_after_s - time.monotonic())
                if wait == 0:
                    self.send(KILL, field(1, self.numbers))
                    killed = True
                    continue
            try:
                kind, stream, payload = self.frame(wait)
            except GuestFailed:
                if kill_after_s is not None and not killed:
                    continue
                raise
            result.frames.append(kind)
            if kind == OUTPUT:
                if result.first_byte_s is None:
                    result.first_byte_s = time.monotonic() - begin
                target = result.stdout if stream == 1 else result.stderr
                target += payload
                if kill_at_bytes is not None and not killed and len(result.stdout) >= kill_at_bytes:
                    self.send(KILL, field(1, self.numbers))
                    killed = True
                if read_delay_s:
                    time.sleep(read_delay_s)
            elif kind == STARTED:
                result.started = decode(kind, payload)
            elif kind == PULL:
                n = decode(kind, payload)['bytes']
                self.send(STDIN, stdin[at:at + n])
                at += n
                result.sent_stdin = min(at, len(stdin))
            elif kind == EXIT:
                result.exit = decode(kind, payload)
                result.wall_s = time.monotonic() - begin
                return result
            elif kind == ERROR:
                result.error = decode(kind, payload)
                return result
            else:
                raise GuestFailed(f'frame {kind} during a run')

    def run(self, argv, stdin=b'', kill_after_s=None, timeout_s=120, read_delay_s=0, kill_at_bytes=None, **options):
        self.start(argv, stdin=stdin, **options)
        return self.finish(stdin, kill_after_s, timeout_s, read_delay_s, kill_at_bytes)

    def ask_collect(self, globs, files_max=1000, file_bytes_max=1 << 20, total_bytes_max=4 << 20):
        packed = b''.join((g if isinstance(g, bytes) else g.encode()) + b'\0' for g in globs)
        self.send(COLLECT, field(1, self.numbers) + field(2, packed) + field(3, files_max) + field(4, file_bytes_max) +
                  field(5, total_bytes_max))

    def collected(self, timeout_s=120):
        """The answer to ask_collect: ({path: artifact with its data}, COLLECTED). ERROR is raised."""
        found, current = {}, None
        while True:
            kind, _, payload = self.frame(timeout_s)
            if kind == ARTIFACT:
                assert current is None, 'an artifact within an artifact'
                entry = decode(ARTIFACT, payload)
                entry['data'] = bytearray()
                assert entry['path'] not in found, entry
                found[entry['path']] = entry
                current = entry if entry['type'] == 1 and not entry['skipped'] else None
            elif kind == ARTIFACT_DATA:
                current['data'] += payload
                assert len(current['data']) <= current['size']
            elif kind == ARTIFACT_END:
                assert len(current['data']) == current['size'], current['path']
                current['change'] = decode(ARTIFACT_END, payload)['change']
                current = None
            elif kind == COLLECTED:
                assert current is None
                return found, decode(COLLECTED, payload)
            elif kind == ERROR:
                raise GuestFailed(decode(ERROR, payload)['text'])
            elif kind != HELLO:
                raise GuestFailed(f'frame {kind} during a collect')

    def collect(self, globs, **limits):
        self.ask_collect(globs, **limits)
        return self.collected()
