"""No process outlives its test, whatever that test finds."""

import pytest

from tests.e2e.processes import STARTED


@pytest.fixture(autouse=True)
def nobody_left_behind():
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()
