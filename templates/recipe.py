#!/usr/bin/python3
"""Reads a template's recipe for the build script.

recipe.py DIR NAME                                  checked, as bash assignments
recipe.py --manifest DIR NAME DIGEST ROOTFS DEBS    the manifest of what was built
"""
import datetime
import hashlib
import json
import os
import re
import shlex
import sys
import urllib.parse

FIELDS = {'name': str, 'description': str, 'suite': str, 'packages': list, 'memory_mib': int, 'vcpus': int,
          'warm': str, 'exercise': dict, 'env': dict, 'links': dict, 'files': dict, 'commands': list}
REQUIRED = ('name', 'description', 'packages', 'memory_mib', 'vcpus')
MEMORY_MIB = (128, 65536)


def refuse(text):
    sys.exit('recipe.json: ' + text)


def load(folder, name):
    with open(os.path.join(folder, 'recipe.json'), encoding='utf-8') as f:
        try:
            recipe = json.load(f)
        except ValueError as e:
            refuse(str(e))
    if not isinstance(recipe, dict):
        refuse('not an object')
    for key, value in recipe.items():
        if key not in FIELDS:
            refuse(f'{key}: unknown field')
        if not isinstance(value, FIELDS[key]) or isinstance(value, bool):
            refuse(f'{key}: must be {FIELDS[key].__name__}')
    for key in REQUIRED:
        if key not in recipe:
            refuse(f'{key}: missing')
    if recipe['name'] != name:
        refuse(f'name: is {recipe["name"]}, the template is called {name}')
    if not MEMORY_MIB[0] <= recipe['memory_mib'] <= MEMORY_MIB[1]:
        refuse(f'memory_mib: not within {MEMORY_MIB[0]} to {MEMORY_MIB[1]}')
    if not 1 <= recipe['vcpus'] <= 64:
        refuse('vcpus: not within 1 to 64')
    for p in recipe['packages']:
        if not isinstance(p, str) or not re.fullmatch(r'[a-z0-9][a-z0-9+.:=~-]*', p):
            refuse(f'packages: {p!r} is no package')
    for field in ('env', 'links', 'files'):
        for k, v in recipe.get(field, {}).items():
            if not isinstance(v, str) or '\n' in k + v or '\0' in k + v:
                refuse(f'{field}: {k!r}: must be a line of text')
            if field != 'env' and not (k.startswith('/') and '..' not in k.split('/')):
                refuse(f'{field}: {k!r}: must be an absolute path')
            if field == 'env' and not re.fullmatch(r'[A-Za-z_][A-Za-z0-9_]*', k):
                refuse(f'env: {k!r} is no name')
    for source in [recipe.get('warm', 'recipe.json'), *recipe.get('files', {}).values()]:
        if '..' in source.split('/') or not os.path.isfile(os.path.join(folder, source)):
            refuse(f'{source}: no such file beside the recipe')
    exercise = recipe.get('exercise', {})
    if set(exercise) - {'argv', 'light'} or not all(isinstance(a, str) for argv in exercise.values() for a in argv):
        refuse('exercise: must be {"argv": [text, ...], "light": [text, ...]}')
    if not all(isinstance(c, str) for c in recipe.get('commands', [])):
        refuse('commands: must be lines of text')
    return recipe


def shell(recipe):
    def array(name, values):
        print(f'{name}=({" ".join(shlex.quote(v) for v in values)})')
    array('packages', recipe['packages'])
    array('link_paths', recipe.get('links', {}).keys())
    array('link_targets', recipe.get('links', {}).values())
    array('file_paths', recipe.get('files', {}).keys())
    array('file_sources', recipe.get('files', {}).values())
    array('commands', recipe.get('commands', []))
    print(f'suite={shlex.quote(recipe.get("suite", "bookworm"))}')
    print(f'warm={shlex.quote(recipe.get("warm", ""))}')
    print('env_lines=' + shlex.quote(''.join(f'{k}={v}\n' for k, v in recipe.get('env', {}).items())))


def manifest(recipe, digest, rootfs, debs):
    sha = hashlib.sha256()
    with open(rootfs, 'rb') as f:
        while chunk := f.read(1 << 20):
            sha.update(chunk)
    packages = {}
    with open(debs, encoding='utf-8') as f:
        for line in f:
            package, version, _ = urllib.parse.unquote(line.strip()).rsplit('_', 2)
            packages[package] = version
    json.dump({'format': 1, 'name': recipe['name'], 'digest': digest, 'description': recipe['description'],
               'rootfs': 'rootfs.erofs', 'rootfs_sha256': sha.hexdigest(), 'memory_mib': recipe['memory_mib'],
               'vcpus': recipe['vcpus'], 'warm': 'warm' in recipe,
               'exercise': recipe.get('exercise', {'argv': ['/bin/true']}),
               'packages': dict(sorted(packages.items())),
               'created_at': datetime.datetime.utcnow().strftime('%Y-%m-%dT%H:%M:%SZ')}, sys.stdout, indent=2)
    print()


def main(args):
    if args[:1] == ['--manifest']:
        folder, name, digest, rootfs, debs = args[1:]
        manifest(load(folder, name), digest, rootfs, debs)
    else:
        folder, name = args
        shell(load(folder, name))


main(sys.argv[1:])
