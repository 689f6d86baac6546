import { test, describe, it } from 'node:test';
import assert from 'node:assert';

test('passes', () => {});
test('fails', () => { assert.strictEqual(1, 2); });
test('skipped', { skip: 'not today' }, () => {});
test('later', { todo: 'write it' }, () => { assert.ok(false); });
describe('group', () => {
    it('inner passes', () => {});
    it('inner fails', () => { throw new TypeError('inner <broke>'); });
});
