use Test::More tests => 3;
pass('first');
BAIL_OUT('the disk is gone');
