#!/usr/bin/python3
"""Archives for tests/unit/archive: make_archives.py DIR. Good ones by the usual programs, hostile ones by hand.

make_archives.py DIR bomb: only DIR/bomb, a tar.zst of 4 GiB.

DIR/index has a line for each: FILE, tab, what is expected: "ok LISTING" or "CODE WORDS", where LISTING is the entries
(escaped, joined by blanks, sorted; a content over 4096 bytes as @SIZE:SUM) and WORDS must be in the error's text.
"""
import gzip
import io
import os
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile

out = sys.argv[1]
BIG = 4 << 30
DUMPDIR = b'D'  # of GNU tar: a folder with a body


def zstd_block(kind, size, data, last):
    return struct.pack('<I', last | kind << 1 | size << 3)[:3] + data


def four_gigabytes(f):
    """64 files of 64 MiB of zeros as a tar.zst of 165 KB, block by block: a second's work for no compressor"""
    for i in range(64):
        t = tarfile.TarInfo(f'b{i:02}')
        t.size = 64 << 20
        f.write(b'\x28\xb5\x2f\xfd\x00\x50' + zstd_block(0, 512, t.tobuf(tarfile.GNU_FORMAT), 0))
        f.write(zstd_block(1, 1 << 17, b'\0', 0) * 511 + zstd_block(1, 1 << 17, b'\0', 1))


if sys.argv[2:] == ['bomb']:
    with open(os.path.join(out, 'bomb'), 'wb') as bomb:
        four_gigabytes(bomb)
    sys.exit()
index = open(os.path.join(out, 'index'), 'w')


def note(name, expected):
    index.write(f'{name}\t{expected}\n')


def path(name):
    return os.path.join(out, name)


def run(*argv, **options):
    r = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    if r.returncode:  # bsdtar also warns of names that are not UTF-8
        sys.exit(f'{argv}: {r.stderr.decode(errors="replace")}')


def info(name, kind=tarfile.REGTYPE, link='', size=0, mode=0o644):
    t = tarfile.TarInfo(name)
    t.type, t.linkname, t.size, t.mode = kind, link, size, mode
    return t


def tar(name, entries, expected, fmt=tarfile.GNU_FORMAT):
    """entries: TarInfo or (TarInfo, data)"""
    with tarfile.open(path(name), 'w', format=fmt, encoding='utf-8', errors='surrogateescape') as f:
        for e in entries:
            t, data = e if isinstance(e, tuple) else (e, b'')
            if data:
                t.size = len(data)
            f.addfile(t, io.BytesIO(data))
    note(name, expected)


# ---- good ones ----
# a tree that every program packs; expected: files f CONTENT, links l, folders d
tree = path('tree')
os.makedirs(tree + '/d/e')
os.mkdir(tree + '/empty')
odd = [b'l\xe4tin', 'ü'.encode(), b'new\nline', b' -rf *', b'x' * 255]
for n, name in enumerate([b'd/e/f', b'd/zero', *odd]):
    with open(os.path.join(tree.encode(), name), 'wb') as f:
        f.write(b'' if name == b'd/zero' else b'%d' % n * 3)
os.chmod(tree + '/d/e/f', 0o755)
os.symlink('e/f', tree + '/d/l')
os.symlink('../../ü', tree + '/d/e/up')
os.symlink('nowhere', tree + '/broken')


def esc(b):
    return ''.join(chr(c) if 33 <= c < 127 and c != 0x5c else f'\\x{c:02x}' for c in b)


def listing(hard=False):
    rows = []
    for base, dirs, files in os.walk(tree.encode()):
        for n in dirs + files:
            full = os.path.join(base, n)
            rel = os.path.relpath(full, tree.encode())
            if os.path.islink(full):
                rows.append(f'l:{esc(rel)}:{esc(os.readlink(full))}')
            elif os.path.isdir(full):
                rows.append(f'd:{esc(rel)}')
            else:
                rows.append(f'f:{esc(rel)}:{stat.S_IMODE(os.stat(full).st_mode):o}:{esc(open(full, "rb").read())}')
    return 'ok ' + ' '.join(sorted(rows))


whole = listing()
utf8 = {**os.environ, 'LC_ALL': 'C.UTF-8'}
posix = {**os.environ, 'LC_ALL': 'C'}
for program in ('tar', 'bsdtar'):
    for suffix, how in (('tar', []), ('tar.gz', ['-z']), ('tar.zst', ['--zstd'])):
        run(program, '-C', tree, *how, '-cf', path(f'{program}.{suffix}'), '.', env=utf8)
        note(f'{program}.{suffix}', whole)
    for fmt in ('gnu' if program == 'tar' else 'gnutar', 'pax'):
        run(program, '-C', tree, f'--format={fmt}', '-cf', path(f'{program}.{fmt}.tar'), '.', env=utf8)
        note(f'{program}.{fmt}.tar', whole)
    run(program, '-C', tree, '-cf', path(f'{program}.posix.tar'), '.', env=posix)
    note(f'{program}.posix.tar', whole)
run('zip', '-qry', path('zip.zip'), '.', cwd=tree, env=utf8)
note('zip.zip', whole)
for fmt in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    name = f'python{fmt}.tar'
    with tarfile.open(path(name), 'w', format=fmt, encoding='utf-8', errors='surrogateescape') as f:
        f.add(tree, arcname='.')
    note(name, whole)
with zipfile.ZipFile(path('python.zip'), 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('a/ü', 'x' * 1000)
    z.writestr('b', '')
note('python.zip', 'ok f:a/\\xc3\\xbc:600:' + 'x' * 1000 + ' f:b:600:')
# a name of bytes, not marked as UTF-8
with zipfile.ZipFile(path('latin.zip'), 'w') as z:
    z.writestr('lQtin', 'x')
with open(path('latin.zip'), 'r+b') as f:
    data = f.read().replace(b'lQtin', b'l\xe4tin')
    f.seek(0)
    f.write(data)
note('latin.zip', 'ok f:l\\xe4tin:600:x')
with open(path('latin_marked.zip'), 'wb') as f:
    data = bytearray(data)
    data[7] |= 8  # the flag "UTF-8" of both headers: a lie
    data[data.index(b'PK\1\2') + 9] |= 8
    f.write(data)
note('latin_marked.zip', 'invalid marked as UTF-8')
tar('hard.tar', [(info('a'), b'12'), info('d', tarfile.DIRTYPE, mode=0o755), info('d/b', tarfile.LNKTYPE, 'a'),
                 info('c', tarfile.LNKTYPE, './d/b')],
    'ok d:d f:a:644:12 h:c:d/b h:d/b:a')
tar('dots.tar', [(info('./a//b/./c'), b'1'), info('././', tarfile.DIRTYPE), info('a/', tarfile.DIRTYPE, mode=0o700)],
    'ok d:a f:a/b/c:644:1')
tar('links.tar', [info('a/b/l', tarfile.SYMTYPE, '../../x'), info('dot', tarfile.SYMTYPE, '.'),
                  info('self', tarfile.SYMTYPE, 'self'), info('s', tarfile.SYMTYPE, './d//e')],
    'ok l:a/b/l:../../x l:dot:. l:s:./d//e l:self:self')
tar('setuid.tar', [(info('a', mode=0o6755), b'1')], 'ok f:a:755:1')
tar('empty.tar', [], 'ok ')
with zipfile.ZipFile(path('empty.zip'), 'w'):
    pass
note('empty.zip', 'ok ')
run('truncate', '-s', '300000', path('sparse'))
os.chmod(path('sparse'), 0o644)
run('tar', '-C', out, '-cSf', path('sparse.tar'), 'sparse')
note('sparse.tar', 'ok f:sparse:644:@300000:0')

# ---- names and links that leave ----
tar('absolute.tar', [(info('/etc/passwd'), b'x')], "invalid '/etc/passwd': the path is absolute")
tar('up.tar', [(info('../x'), b'x')], "invalid '../x': the path holds \"..\"")
tar('up_inside.tar', [(info('a/../../x'), b'x')], 'invalid holds ".."')
tar('up_last.tar', [info('a/..', tarfile.DIRTYPE)], 'invalid holds ".."')
tar('link_absolute.tar', [info('l', tarfile.SYMTYPE, '/etc')], 'invalid absolute path')
tar('link_up.tar', [info('l', tarfile.SYMTYPE, '..')], 'invalid leaves the work folder')
tar('link_up_deep.tar', [info('a/b/l', tarfile.SYMTYPE, '../../..')], 'invalid leaves the work folder')
tar('link_back.tar', [info('l', tarfile.SYMTYPE, 'a/../../x')], 'invalid behind a name')
tar('link_chain.tar', [info('y', tarfile.SYMTYPE, 'x/..'), info('x', tarfile.SYMTYPE, '.')], 'invalid behind a name')
tar('link_empty.tar', [info('l', tarfile.SYMTYPE, '')], 'invalid without a target')
tar('through_link.tar', [info('d', tarfile.SYMTYPE, '.'), (info('d/x'), b'x')], "invalid 'd/x': the path leads through a link")
tar('through_file.tar', [(info('d'), b'1'), (info('d/x'), b'x')], 'invalid through a file')
tar('folder_to_link.tar', [(info('d/x'), b'1'), info('d', tarfile.SYMTYPE, '.')], 'invalid there already')
tar('twice.tar', [(info('a'), b'1'), (info('./a'), b'2')], 'invalid there already')
tar('folder_on_link.tar', [info('d', tarfile.SYMTYPE, 'e'), info('d', tarfile.DIRTYPE)], 'invalid there already')
tar('hard_absolute.tar', [info('h', tarfile.LNKTYPE, '/etc/passwd')], 'invalid a hard link: the path is absolute')
tar('hard_up.tar', [info('h', tarfile.LNKTYPE, '../x')], 'invalid a hard link: the path holds')
tar('hard_later.tar', [info('h', tarfile.LNKTYPE, 'a'), (info('a'), b'1')], 'invalid no file that came before')
tar('hard_to_link.tar', [info('l', tarfile.SYMTYPE, 'x'), info('h', tarfile.LNKTYPE, 'l')], 'invalid no file that came before')
tar('hard_to_folder.tar', [info('d', tarfile.DIRTYPE), info('h', tarfile.LNKTYPE, 'd')], 'invalid no file that came before')
tar('hard_through_link.tar', [info('d/f'), info('l', tarfile.SYMTYPE, 'd'), info('h', tarfile.LNKTYPE, 'l/f')],
    'invalid no file that came before')
for kind, word in ((tarfile.CHRTYPE, 'a device'), (tarfile.BLKTYPE, 'a device'), (tarfile.FIFOTYPE, 'a fifo')):
    tar(f'kind{kind.decode()}.tar', [info('n', kind)], 'invalid ' + word)
tar('names_folder.tar', [info('./', tarfile.SYMTYPE, 'x')], 'invalid names the work folder')
with zipfile.ZipFile(path('kinds.zip'), 'w') as z:
    i = zipfile.ZipInfo('s')
    i.create_system, i.external_attr = 3, (stat.S_IFSOCK | 0o644) << 16
    z.writestr(i, '')
note('kinds.zip', 'invalid')
with zipfile.ZipFile(path('link.zip'), 'w') as z:
    i = zipfile.ZipInfo('l')
    i.create_system, i.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    z.writestr(i, '../../etc/passwd')
note('link.zip', 'invalid leaves the work folder')
with zipfile.ZipFile(path('up.zip'), 'w') as z:
    z.writestr('../x', 'x')
note('up.zip', 'invalid holds ".."')

# ---- maxima (of the test: 200 entries, 1 MiB a file, 2 MiB in all, 1000 bytes of path) ----
tar('many.tar', [info(f'n{i}') for i in range(201)], 'too_large more than 200 entries')
tar('most.tar', [info(f'n{i:03}') for i in range(200)], 'ok ' + ' '.join(f'f:n{i:03}:644:' for i in range(200)))
tar('implied.tar', [info('/'.join('d' * 201)), ], 'too_large more than 200 files and folders')
tar('same_folder.tar', [info('d', tarfile.DIRTYPE)] * 201, 'too_large more than 200 entries')
tar('work_folder.tar', [info('./', tarfile.DIRTYPE)] * 201, 'too_large more than 200 entries')
with open(path('large_folder.tar'), 'wb') as f:
    f.write(info('d', DUMPDIR, size=8 << 30).tobuf(tarfile.GNU_FORMAT))
note('large_folder.tar', 'too_large a file may have 1048576')
tar('large.tar', [(info('a'), b'x' * ((1 << 20) + 1))], 'too_large a file may have 1048576')
tar('largest.tar', [(info('a'), b'x' * (1 << 20)), (info('b'), b'y' * (1 << 20))],
    f'ok f:a:644:@{1 << 20}:{ord("x") << 20} f:b:644:@{1 << 20}:{ord("y") << 20}')
tar('total.tar', [(info('a'), b'x' * (1 << 20)), (info('b'), b'y' * (1 << 20)), (info('c'), b'z')],
    'too_large more than 2097152 bytes in all')
tar('long.tar', [info('/'.join(['y' * 99] * 11))], 'too_large the path is over 1000 bytes')
tar('long_part.tar', [info('z' * 256)], 'too_large a part of the path is over 255 bytes')
tar('long_target.tar', [info('l', tarfile.SYMTYPE, 'y' * 1001)], 'too_large target is over 1000 bytes')

# ---- bombs ----
head = tarfile.TarInfo('bomb')
head.size = BIG
block = head.tobuf(tarfile.GNU_FORMAT)
with open(path('bomb.tar.zst'), 'wb') as f:
    p = subprocess.Popen(['zstd', '-q', '-19', '--single-thread'], stdin=subprocess.PIPE, stdout=f)
    p.stdin.write(block)
    zeros = bytes(1 << 24)
    for _ in range(4):  # the header is what counts: the rest is never asked for
        p.stdin.write(zeros)
    p.stdin.close()
    p.wait()
note('bomb.tar.zst', 'too_large a file may have 1048576')
member = gzip.compress(bytes(1 << 26), 9)
with open(path('bomb.tar.gz'), 'wb') as f:
    f.write(gzip.compress(block) + member * 64)
note('bomb.tar.gz', 'too_large a file may have 1048576')
# 4096 files of 1 MiB of zeros each, 42 KB or less
with open(path('bomb_many.tar.zst'), 'wb') as f:
    p = subprocess.Popen(['zstd', '-q', '-9', '--long=24', '--single-thread'], stdin=subprocess.PIPE, stdout=f)
    for i in range(100):
        p.stdin.write(info(f'b{i:04}', size=1 << 20).tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    p.stdin.close()
    p.wait()
note('bomb_many.tar.zst', 'too_large more than 2097152 bytes in all')
with zipfile.ZipFile(path('bomb.zip'), 'w', zipfile.ZIP_DEFLATED) as z:
    z.writestr('b', bytes(1 << 26))
note('bomb.zip', 'too_large a file may have 1048576')
with open(path('bomb.zip'), 'rb') as f:
    data = bytearray(f.read())
struct.pack_into('<I', data, 22, 100)  # it says 100 bytes, in both headers
struct.pack_into('<I', data, data.rindex(b'PK\1\2') + 24, 100)
with open(path('bomb_liar.zip'), 'wb') as f:
    f.write(data)
note('bomb_liar.zip', 'invalid')
sparse = info('s', size=512)
sparse.pax_headers = {'GNU.sparse.major': '0', 'GNU.sparse.minor': '0', 'GNU.sparse.size': str(BIG),
                      'GNU.sparse.numblocks': '0'}
tar('bomb_sparse.tar', [(sparse, bytes(512))], 'too_large a file may have 1048576', tarfile.PAX_FORMAT)
# a body of 4 GiB behind a header that says two sizes: GNU's real size is the one that is told
for name in ('folder', 'work'):
    block = bytearray(info('./' if name == 'work' else 'd', DUMPDIR, size=BIG).tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b'00000000001\0'
    block[148:156] = b'%06o\0 ' % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    with open(path(f'bomb_{name}.tar.zst'), 'wb') as f:
        f.write(b'\x28\xb5\x2f\xfd\x00\x50' + zstd_block(0, 512, block, 0))
        f.write(zstd_block(1, 1 << 17, b'\0', 0) * (BIG >> 17) + zstd_block(0, 1024, bytes(1024), 1))
    note(f'bomb_{name}.tar.zst', 'too_large what it unpacks to is more than')
with open(path('nested.tar.gz'), 'wb') as f:
    f.write(gzip.compress(gzip.compress(open(path('tar.tar'), 'rb').read())))
note('nested.tar.gz', 'invalid damaged')

# ---- not read ----
run('zip', '-qr', '-P', 'secret', path('secret.zip'), 'd', cwd=tree)
note('secret.zip', 'invalid encrypted')
for method, word in ((zipfile.ZIP_BZIP2, 'bzip2'), (zipfile.ZIP_LZMA, 'lzma')):
    with zipfile.ZipFile(path(f'{word}.zip'), 'w', method) as z:
        z.writestr('a', 'x' * 1000)
    note(f'{word}.zip', 'invalid a zip method other than store and deflate')
run('tar', '-C', tree, '-cJf', path('tar.tar.xz'), '.')
note('tar.tar.xz', 'invalid this is xz')
run('bsdtar', '-C', tree, '--format=cpio', '-cf', path('cpio'), '.')
note('cpio', 'invalid this is cpio')
run('bsdtar', '-C', tree, '--format=7zip', '-cf', path('7z'), '.')
note('7z', 'invalid this is 7z')
for name, data, word in (('nothing', b'', 'nothing'), ('text', b'hello\n' * 500, 'something else'), ('short', b'x', 'something else')):
    with open(path(name), 'wb') as f:
        f.write(data)
    note(name, 'invalid this is ' + word)
with open(path('plain.gz'), 'wb') as f:
    f.write(gzip.compress(b'hello\n' * 500))
note('plain.gz', 'invalid damaged')

# ---- damaged ----
for name in ('tar.tar', 'tar.tar.gz', 'tar.tar.zst', 'zip.zip'):
    data = open(path(name), 'rb').read()
    with open(path('cut.' + name), 'wb') as f:
        f.write(data[:len(data) // 2 + 100])
    note('cut.' + name, 'invalid')
index.close()
