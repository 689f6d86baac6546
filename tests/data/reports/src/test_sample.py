import sys
import pytest


def test_passes():
    print("seen on stdout")


def test_fails():
    assert 1 + 1 == 3, "sum < 3 & so \"on\""


@pytest.mark.parametrize("n", [1, 2])
def test_param(n):
    assert n == 1


@pytest.mark.skip(reason="not today")
def test_skipped():
    pass


@pytest.mark.xfail(reason="known bug")
def test_xfail():
    assert False


@pytest.fixture
def broken():
    raise RuntimeError("no database")


def test_setup_error(broken):
    pass


class TestGroup:
    def test_control(self):
        sys.stdout.write("bell \x07 and \x1b[31mred\x1b[0m\n")
        raise ValueError("bell \x07 here")
