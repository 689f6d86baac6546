use strict;
use warnings;
use Test::More;

pass('passes');
is(1 + 1, 3, 'fails');
SKIP: { skip 'not today', 1; pass('never'); }
TODO: { local $TODO = 'write it'; ok(0, 'later'); }
subtest 'group' => sub {
    plan tests => 2;
    ok(1, 'inner passes');
    ok(0, 'inner # fails');
};
done_testing();
