"""The programs of guest_shared.py: what the victim tells, what each attacker does, what is left behind and looked for."""
PY = 'python3'
SECRET = 'kestrel-9137-quartz'

VICTIM = r'''
import ctypes, errno, glob, hashlib, json, os, resource, signal, socket, stat, subprocess, sys, tempfile, time
libc = ctypes.CDLL(None, use_errno=True)
def tree(top):
    out = []
    for folder, dirs, files in os.walk(top):
        s = os.stat(folder)
        out.append((folder, oct(s.st_mode), s.st_uid, sorted(dirs), sorted(files), os.listxattr(folder)))
    return sorted(out)
def text(path):
    try:
        with open(path, 'rb') as f:
            return f.read(100000).decode('latin1')
    except OSError as e:
        return errno.errorcode[e.errno]
def cannot(f):
    try:
        f()
        return 'done'
    except OSError as e:
        return errno.errorcode[e.errno]
t = {}
t['files'] = [tree(d) for d in ('/work', '/tmp', '/var/tmp', '/dev/shm', '/run')]
t['dev'] = sorted((n, oct(os.lstat('/dev/' + n).st_mode)) for n in os.listdir('/dev'))
t['processes'] = sorted((int(p), text(f'/proc/{p}/comm')) for p in os.listdir('/proc') if p.isdigit())
t['ipc'] = [text('/proc/sysvipc/' + n) for n in ('shm', 'sem', 'msg')]
t['queue'] = libc.mq_open(b'/left', 0), errno.errorcode.get(ctypes.get_errno())
t['sockets'] = [text('/proc/net/' + n) for n in ('tcp', 'udp', 'tcp6', 'raw')] + [
    [l.split()[7:] for l in text('/proc/net/unix').splitlines()[1:]]]
t['stat'] = text('/proc/net/sockstat')
t['names'] = socket.gethostname(), text('/etc/hostname'), text('/etc/hosts'), text('/etc/passwd'), text('/etc/ld.so.preload')
t['mounts'] = text('/proc/self/mounts')
t['open'] = sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3]
t['limits'] = {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith('RLIMIT_')}
t['nice'] = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0)), text('/proc/self/oom_score_adj')
t['signals'] = [str(signal.getsignal(s)) for s in (1, 2, 13, 14, 15, 17)], sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
t['self'] = os.getuid(), os.getgid(), os.getgroups(), os.getpid(), os.umask(0o22), os.getcwd(), dict(os.environ), sys.path, sys.argv[:1], len(sys.argv)
t['status'] = [l for l in text('/proc/self/status').splitlines() if l.split(':')[0] in ('CapEff', 'CapPrm', 'NoNewPrivs', 'Seccomp', 'Threads', 'SigIgn', 'SigBlk')]
t['python'] = json.dumps({'a': 1}), len(sys.modules), len([n for n in sys.modules if n not in sys.builtin_module_names]), str(print), str(json.dumps.__code__.co_filename)
t['system'] = [text('/proc/sys/' + n) for n in ('kernel/core_pattern', 'kernel/hostname', 'vm/overcommit_memory', 'kernel/pid_max', 'user/max_user_namespaces', 'fs/inotify/max_user_instances', 'net/ipv4/ip_forward')]
t['clock'] = abs(time.time() - float(sys.argv[1])) < 600
t['key'] = libc.syscall(249, b'user', b'left', None, -3), errno.errorcode.get(ctypes.get_errno())
t['inotify'] = len([libc.inotify_init1(0o2000000) for i in range(20)])
t['watches'] = libc.inotify_add_watch(libc.inotify_init1(0), b'/etc', 2) > 0
def children():
    pids = []
    for i in range(30):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        pids.append(pid)
    return [os.waitpid(p, 0)[1] for p in pids].count(0)
t['children'] = children()
t['memory'] = len(bytearray(100 << 20))
t['port'] = cannot(lambda: socket.create_server(('127.0.0.1', 8080)).close())
t['abstract'] = cannot(lambda: socket.socket(socket.AF_UNIX).bind('\0left'))
t['pty'] = os.ttyname(os.openpty()[1])
t['disk'] = os.statvfs('/tmp').f_bfree * 4096, os.statvfs('/tmp').f_ffree > 1000
t['tools'] = subprocess.run('id; umask; ulimit -a; locale; date +%Y >/dev/null; echo $HOME $PATH', shell=True, capture_output=True, text=True).stdout
t['imports'] = subprocess.run([sys.executable, '-c', 'import sys, json, re, site; print(len(sys.modules), json.__file__, json.__cached__, sys.path, sys.flags)'], capture_output=True, text=True).stdout
print(json.dumps(t, sort_keys=True))
'''

DAEMON = r'''
import os, signal, sys, time
def daemon(f):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for s in range(1, 32):
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    f()
    while True:
        time.sleep(1)
'''

# What the attacker prints is not looked at, but for "BREACH", which none may print.
ATTACKS = {
    'files': r'''
import os
for d in ('/tmp', '/var/tmp', '/dev/shm', '/work', os.environ['HOME']):
    for n in ('left', '.bashrc', '.profile', '.pythonrc.py', 'sitecustomize.py', 'json.py', '__pycache__/json.cpython-311.pyc', '.local/lib/python3.11/site-packages/usercustomize.py'):
        os.makedirs(os.path.dirname(os.path.join(d, n)), exist_ok=True)
        with open(os.path.join(d, n), 'w') as f: f.write('import os; os._exit(9)\n')
''',
    'work_itself': r'''
import os
os.chmod('/work', 0o777); os.setxattr('/work', 'user.x', b'y') if hasattr(os, 'setxattr') and 0 else None
os.utime('/work', (1, 1)); os.mkdir('a', 0); os.symlink('/etc', 'etc'); os.mkfifo('pipe')
''',
    'daemon': DAEMON + r'''
def f():
    if os.path.exists('/tmp'):
        while True:
            open('/tmp/alive', 'a').write('x'); open('alive', 'a').write('x'); time.sleep(.01)
daemon(f)
''',
    'daemons': DAEMON + 'for i in range(20): daemon(lambda: None)\n',
    'sysv': r'''
import ctypes
c = ctypes.CDLL(None)
for i in range(50):
    m = c.shmget(1000 + i, 4096, 0o1666); c.semget(1000 + i, 10, 0o1666); c.msgget(1000 + i, 0o1666)
''',
    'mqueue': r'''
import ctypes
c = ctypes.CDLL(None)
for n in (b'/left', b'/left2', b'/left3'): print(c.mq_open(n, 0o102, 0o666, None))
''',
    'listener': DAEMON + r'''
import socket
def f():
    global a, b, c
    a = socket.create_server(('', 8080)); b = socket.socket(socket.AF_UNIX); b.bind('\0left'); b.listen(); c = socket.create_server(('::', 8081), family=socket.AF_INET6)
daemon(f); time.sleep(.3)
''',
    'sockets_in_flight': r'''
import socket
for i in range(10):
    s = socket.socket(socket.AF_UNIX); s.bind('\0left' if i == 0 else '\0left%d' % i); s.listen()
    a, b = socket.socketpair()
    socket.send_fds(a, [b'x'], [s.fileno(), b.fileno()]); socket.send_fds(b, [b'x'], [a.fileno(), s.fileno()])
''',
    'time_wait': r'''
import socket
s = socket.create_server(('127.0.0.1', 8080))
for i in range(20):
    c = socket.create_connection(('127.0.0.1', 8080)); a, _ = s.accept(); a.close(); c.recv(1); c.close()
''',
    'hostname': r'''
import socket, os, ctypes
try: socket.sethostname('evil'); print('BREACH')
except OSError: pass
if ctypes.CDLL(None).setdomainname(b'evil', 4) == 0: print('BREACH')
for p in ('/etc/hostname', '/etc/hosts', '/etc/resolv.conf', '/proc/sys/kernel/hostname'):
    try: os.write(os.open(p, os.O_WRONLY), b'evil'); print('BREACH', p)
    except OSError: pass
''',
    'clock': r'''
import time, ctypes
for t in (0, 4e9):
    try: time.clock_settime(time.CLOCK_REALTIME, t); print('BREACH')
    except OSError: pass
b = ctypes.create_string_buffer(256); b[0] = 1
if ctypes.CDLL(None).adjtimex(b) == 0 and b.raw[0] == 1: print('BREACH')
''',
    'timers': DAEMON + r'''
def f():
    signal.signal(signal.SIGALRM, lambda *a: open('/tmp/timer', 'a').write('x')); signal.setitimer(signal.ITIMER_REAL, .01, .01)
daemon(f)
''',
    'mounts': r'''
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
for args in ((b'x', b'/tmp', b'tmpfs', 0, None), (b'/tmp', b'/usr', None, 4096, None), (None, b'/', None, 1 << 18, None)):
    if c.mount(*args) == 0: print('BREACH mount')
for where in (b'/proc', b'/work', b'/dev/shm'):
    if c.umount2(where, 2) == 0: print('BREACH umount')
for space in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x10020000):
    if c.unshare(space) == 0: print('BREACH unshare %x' % space)
for fd in os.listdir('/proc/1/ns') if os.access('/proc/1/ns', os.R_OK) else []:
    try:
        if c.setns(os.open('/proc/1/ns/' + fd, 0), 0) == 0: print('BREACH setns')
    except OSError: pass
if c.syscall(430, b'tmpfs', 0) >= 0 and c.syscall(432, c.syscall(430, b'tmpfs', 0), 0, 0) >= 0: print('BREACH fsmount')
if c.chroot(b'/tmp') == 0: print('BREACH chroot')
''',
    'system_files': r'''
import errno, os, stat
mine = ('/work', '/tmp', '/var/tmp', '/dev/shm')
nodes = ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx', 'pts/ptmx')  # what is written there is kept nowhere
for line in open('/proc/self/mountinfo').read().splitlines():
    where, options = line.split()[4:6]
    if 'ro' not in options.split(',') and not where.startswith(mine) and where not in ('/proc', '/dev/pts'): print('BREACH mount', line)
def tried(what, *args):
    try: what(*args)
    except OSError: return
    print('BREACH', what.__name__, *args)
looked = 0
for folder, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if os.path.join(folder, d) not in mine and not (folder == '/proc' and (d.isdigit() or d in ('self', 'thread-self')))]
    if os.access(folder, os.W_OK): print('BREACH folder', folder)
    if not folder.startswith(('/sys/', '/proc/')) or looked % 16 == 0:
        tried(os.mkdir, os.path.join(folder, 'evil')); tried(os.chmod, folder, 0o777)
    for n in files:
        p = os.path.join(folder, n)
        looked += 1
        if os.access(p, os.W_OK) and not os.path.islink(p) and not (folder.startswith('/dev') and p[5:] in nodes) and n != 'ns_last_pid' and folder != '/proc/pressure': print('BREACH file', p)  # these: see sysctl, pressure
        if looked % 32 == 0 and not os.path.islink(p) and not folder.startswith(('/dev', '/proc/pressure')) and n != 'ns_last_pid':
            tried(os.open, p, os.O_WRONLY | os.O_NONBLOCK); tried(os.chmod, p, 0o666); tried(os.utime, p); tried(os.setxattr, p, 'user.x', b'y'); tried(os.link, p, os.path.join(folder, 'evil2')); tried(os.rename, p, os.path.join(folder, 'evil3'))
if looked < 1000: print('BREACH only', looked)
''',
    'devices': r'''
import os
own = ('fd', 'stdin', 'stdout', 'stderr')  # links to what is the job's process's own
for n in os.listdir('/dev'):
    for f in (lambda p: os.unlink(p), lambda p: os.rename(p, '/tmp/x'), lambda p: n in own and os.stat('/x') or os.chmod(p, 0),
              lambda p: n in own and os.stat('/x') or os.chown(p, 1000, 1000)):
        try: f('/dev/' + n); print('BREACH', n)
        except OSError: pass
try: os.mknod('/tmp/mem', 0o20666, os.makedev(1, 1)); print('BREACH')
except OSError: pass
for n in ('/dev/vport0p1', '/dev/vport1p1', '/dev/hvc0', '/dev/vda', '/dev/kmsg', '/dev/.kmsg', '/dev/mem', '/dev/port', '/dev/ttyS0'):
    try: os.open(n, os.O_RDWR); print('BREACH', n)
    except OSError: pass
''',
    'keyrings': r'''
import ctypes
c = ctypes.CDLL(None)
for ring in (-1, -2, -3, -4, -5):
    if c.syscall(248, b'user', b'left', b'evil', 4, ring) >= 0: print('BREACH add_key')
if c.syscall(250, 0, -4, 1) >= 0: print('BREACH keyctl')
for nr in (298, 321, 323, 425):
    if c.syscall(nr, 0, 0, 0, 0, 0) >= 0: print('BREACH', nr)
''',
    'inotify': DAEMON + r'''
import ctypes
def f():
    c = ctypes.CDLL(None)
    fds = [c.inotify_init1(0) for i in range(300)]
    for i in range(2000): c.inotify_add_watch(fds[0], b'/proc/self/fd/%d' % (i % 200), 0xfff)
daemon(f); time.sleep(.2)
''',
    'pids': r'''
import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError: break
''',
    'memory': r'''
x = bytearray(150 << 20)
for i in range(20): open('/dev/shm/%d' % i, 'wb').write(b'x' * (1 << 20)); open('/tmp/%d' % i, 'wb').write(b'x' * (1 << 20))
''',
    'oom': r'''
x = []
while True: x.append(bytearray(8 << 20))
''',
    'disk_full': r'''
import os
try:
    with open('/tmp/big', 'wb') as f:
        while True: f.write(b'x' * (1 << 20))
except OSError: pass
try:
    for i in range(100000): os.mkdir('d%d' % i)
except OSError: pass
''',
    'ptrace': r'''
import ctypes, os
c = ctypes.CDLL(None)
for pid in [int(p) for p in os.listdir('/proc') if p.isdigit()] + list(range(1, 300)):
    if pid != os.getpid() and c.ptrace(16, pid, 0, 0) == 0: print('BREACH attach', pid)
    if pid != os.getpid() and c.process_vm_readv(pid, None, 0, None, 0, 0) > 0: print('BREACH read', pid)
''',
    'init': r'''
import os
for n in ('environ', 'mem', 'maps', 'stack', 'auxv', 'syscall', 'io', 'personality'):
    try:
        if open('/proc/1/' + n, 'rb').read(10): print('BREACH', n)
    except OSError: pass
for n in ('root', 'cwd', 'exe', 'fd/0', 'ns/mnt', 'map_files'):
    try: os.readlink('/proc/1/' + n); print('BREACH', n)
    except OSError: pass
for pid in list(range(3, 200)):
    if pid != os.getpid() and os.path.exists('/proc/%d' % pid) and not os.path.exists('/proc/self/task/%d' % pid): print('BREACH sees', pid)
''',
    'sysctl': r'''
import os
for folder, dirs, files in os.walk('/proc/sys'):
    for n in files:
        try:
            fd = os.open(os.path.join(folder, n), os.O_WRONLY)
            if n == 'ns_last_pid': os.write(fd, b'1000')  # anybody may open it
            print('BREACH', folder, n)
        except OSError: pass
for p in ('/proc/sysrq-trigger', '/proc/1/oom_score_adj', '/proc/self/uid_map', '/proc/kcore', '/proc/kallsyms', '/sys/kernel/uevent_helper', '/sys/power/state'):
    try: os.write(os.open(p, os.O_WRONLY), b'1'); print('BREACH', p)
    except OSError: pass
''',
    'pressure': DAEMON + r'''
import os
def f():
    global keep
    keep = []
    for n in ('io', 'cpu', 'memory'):
        for i in range(20):
            try: fd = os.open('/proc/pressure/' + n, os.O_RDWR | os.O_NONBLOCK); os.write(fd, b'some 150000 2000000\0'); keep.append(fd)
            except OSError: pass
daemon(f)
''',
    'cgroups': r'''
import os
for folder, dirs, files in os.walk('/sys/fs/cgroup'):
    for n in files:
        try: os.open(os.path.join(folder, n), os.O_WRONLY); print('BREACH', folder, n)
        except OSError: pass
    try: os.mkdir(folder + '/evil'); print('BREACH mkdir')
    except OSError: pass
''',
    'signals': DAEMON + r'''
daemon(lambda: None)
for s in (19, 15, 9, 18):
    try: os.kill(1, s)
    except OSError: pass
def f():
    try: os.kill(-1, 9)
    except OSError: pass
daemon(f); time.sleep(.2)
''',
    'preload': r'''
import os
for p in ('/etc/ld.so.preload', '/etc/ld.so.cache', '/etc/ld.so.conf', '/usr/lib/x86_64-linux-gnu/libc.so.6', '/usr/lib/brood/warm', '/usr/lib/brood/env', '/usr/bin/python3', '/usr/bin/python3.11', '/bin/sh'):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
        try: os.open(p, flags); print('BREACH', p)
        except OSError: pass
os.environ['LD_PRELOAD'] = '/tmp/evil.so'; open('/tmp/evil.so', 'w').write('x')
''',
    'pyc': r'''
import json, os, sys
for m in list(sys.modules.values()):
    for p in (getattr(m, '__cached__', None), getattr(m, '__file__', None)):
        if p and not p.startswith('/work'):
            try: open(p, 'r+b'); print('BREACH', p)
            except OSError: pass
            try: open(os.path.join(os.path.dirname(p), 'evil.pth'), 'w'); print('BREACH', p)
            except OSError: pass
''',
    'modules': r'''
import sys, json, builtins, ctypes, os, gc
json.dumps = lambda *a, **k: 'evil'; builtins.len = lambda x: 7; sys.modules['re'] = None; sys.path.insert(0, '/tmp'); os.environ['EVIL'] = '1'
ctypes.c_int.from_address(id(256) + 24).value = 9
ctypes.pythonapi.Py_IncRef(ctypes.py_object(None)); sys.setrecursionlimit(50); gc.disable()
''',
    'warm_server': r'''
import os, socket, ctypes
for fd in range(3, 64):
    try:
        s = socket.socket(fileno=os.dup(fd)); s.sendmsg([b'C']); print('BREACH a socket', fd)
    except OSError: pass
    try: os.setns if 0 else None; print('BREACH open', os.readlink('/proc/self/fd/%d' % fd)) if os.fstat(fd) and not os.readlink('/proc/self/fd/%d' % fd).startswith('/proc') else None
    except OSError: pass
''',
    'descriptors': DAEMON + r'''
import socket
def f():
    global keep
    keep = []
    try:
        while True: keep.append(os.dup(1))
    except OSError: pass
a, b = socket.socketpair()
socket.send_fds(a, [b'x'], [0, 1, 2]); daemon(f)
''',
    'limits': DAEMON + r'''
import resource
for n in dir(resource):
    if n.startswith('RLIMIT_') and n not in ('RLIMIT_AS', 'RLIMIT_STACK', 'RLIMIT_DATA', 'RLIMIT_CPU'):
        try: resource.setrlimit(getattr(resource, n), (5, 5))
        except (OSError, ValueError): pass
os.umask(0o777); os.nice(19); daemon(lambda: None) if 0 else None
''',
    'scheduling': r'''
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
for p in (os.SCHED_FIFO, os.SCHED_RR):
    try: os.sched_setscheduler(0, p, os.sched_param(50)); print('BREACH realtime')
    except OSError: pass
try: os.nice(-5); print('BREACH nice')
except OSError: pass
open('/proc/self/oom_score_adj', 'w').write('1000')
for value in (b'-1000', b'-500', b'-1'):
    try: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), value); print('BREACH oom')
    except OSError: pass
''',
    'terminals': DAEMON + 'daemon(lambda: globals().update(k=[os.openpty() for i in range(50)])); time.sleep(.2)\n',
    'setuid': r'''
import os, ctypes
for f in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.chown('/tmp', 1000, 1000)):
    try: f(); print('BREACH')
    except OSError: pass
os.system('cp /bin/sh /tmp/s; chmod 6755 /tmp/s; /tmp/s -c id')
for p in ('/bin/su', '/bin/mount', '/usr/bin/newgrp'):
    if os.path.exists(p): os.system(p + ' </dev/null >/dev/null 2>&1')
''',
    'kernel': r'''
import ctypes, os
c = ctypes.CDLL(None)
if c.reboot(0x1234567) == 0: print('BREACH')
for nr in (175, 313, 246, 320, 169, 163, 167):
    if c.syscall(nr, 0, 0, 0, 0, 0) == 0: print('BREACH', nr)
if c.swapon(b'/tmp/x', 0) == 0: print('BREACH')
''',
    'crash': 'import ctypes; ctypes.string_at(0)\n',
    'stdout': 'import os\nos.write(1, b"x" * 1000); os.close(0); os.close(1); os.close(2)\n',
}

LEAVE = DAEMON + r'''
import ctypes, socket
S = sys.argv[1]
c = ctypes.CDLL(None)
for d in ('/tmp', '/var/tmp', '/dev/shm', '/work'):
    with open(d + '/' + S, 'w') as f: f.write(S * 1000)
c.shmat.restype = ctypes.c_void_p
at = c.shmat(c.shmget(77, 65536, 0o1666), None, 0)
ctypes.memmove(at, S.encode() * 100, len(S) * 100)
c.prctl(15, S.encode()[:15])
heap = [S.encode() * 1000 for i in range(1000)]
def f():
    global s
    s = socket.socket(socket.AF_UNIX); s.bind('\0' + S); s.listen(); os.environ['SECRET'] = S
daemon(f)
q = c.mq_open(b'/left', 0o102, 0o666, None); c.mq_send(q, S.encode(), len(S), 1)
time.sleep(.1)
'''
SEEK = r'''
import ctypes, os, socket, sys
head, tail = sys.argv[1:3]
S = (head + tail).encode(); R = (tail[::-1] + head[::-1]).encode()  # never whole in this program's own memory but here
found = []
def look(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        data = b''
        while len(data) < 1 << 22:
            more = os.read(fd, 1 << 16)
            if not more: break
            data += more
        os.close(fd)
    except OSError: return
    if S in data: found.append(path)
me = '/proc/%d' % os.getpid()
for top in ('/work', '/tmp', '/var/tmp', '/dev', '/run', '/etc', '/proc', '/sys/fs', '/sys/class', '/sys/kernel'):
    for folder, dirs, files in os.walk(top):
        if folder.startswith((me, '/proc/self', '/proc/thread-self')) or folder.endswith('/task'): dirs[:] = []; continue
        for n in files + dirs:
            if S.decode() in n: found.append(os.path.join(folder, n))
        for n in files:
            if n not in ('kmsg', 'pagemap', 'kcore', 'zero', 'full', 'random', 'urandom', 'stdin', 'tty'): look(os.path.join(folder, n))
c = ctypes.CDLL(None)
for i in range(64):
    m = bytes(bytearray(0)); b = ctypes.create_string_buffer(0)
c.malloc.restype = ctypes.c_void_p
blocks = [c.mmap if 0 else c.malloc(1 << 20) for i in range(60)]
for b in blocks:
    if S in ctypes.string_at(b, 1 << 20): found.append('memory')
if c.shmget(77, 65536, 0) >= 0: found.append('shm')
if c.mq_open(b'/left', 0) >= 0: found.append('queue')
try: socket.socket(socket.AF_UNIX).connect('\0' + S.decode()); found.append('socket')
except OSError: pass
print('found', found)
'''


# Attackers that leave as much behind as they can that would go on computing, and the share of the machine's one processor that
# the next job gets. By the guest's own clocks, which go on while the host lets the machine wait: a busy host changes nothing.
BUSY = {
    'threads': 'def f():\n    for i in range(8): threading.Thread(target=spin).start()\n    spin()\n',
    'forks': 'def f():\n    signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    while True:\n        try:\n            if os.fork() == 0: os._exit(0)\n'
             '        except OSError: pass\n',
    'files': 'def f():\n    while True:\n        try:\n            with open("/tmp/%d" % os.getpid(), "wb") as f: f.write(bytes(1 << 20)); os.fsync(f.fileno())\n'
             '        except OSError: pass\n',
    'memory': 'def f():\n    while True:\n        m = mmap.mmap(-1, 16 << 20)\n        for at in range(0, len(m), 4096): m[at] = 1\n        m.close()\n',
}
LEAVE_BUSY = DAEMON + 'import mmap, signal, threading\ndef spin():\n    while True: pass\n%sfor i in range(4): daemon(f)\ntime.sleep(1)\n'
GOT = '''
import time
def share():
    wall, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - wall < .3: pass
    return (time.process_time() - cpu) / (time.monotonic() - wall)
print(max(share() for i in range(3)))
'''
SHARE = .9
