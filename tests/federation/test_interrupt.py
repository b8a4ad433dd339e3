import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from fedsaf.federation.interrupt import EXIT_AGAIN, SIGNALS, StopRequest


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_sets_the_flag_and_the_former_handler_comes_back(number):
    former = signal.getsignal(number)
    with StopRequest(insist=True) as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
    assert signal.getsignal(number) is former


def test_a_second_ctrl_c_insists():
    with StopRequest(insist=True):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("first", "second", "insist"),
    [(signal.SIGUSR1, signal.SIGTERM, True), (signal.SIGTERM, signal.SIGTERM, True), (signal.SIGINT,) * 2 + (False,)],
)
def test_warning_then_request_is_one_request(first, second, insist):
    with StopRequest(insist=insist) as stop:
        os.kill(os.getpid(), first)
        os.kill(os.getpid(), second)
        assert stop.requested


def test_outside_the_main_thread_no_handler_is_touched():
    former = [signal.getsignal(number) for number in SIGNALS]

    def work():
        with StopRequest(insist=True):
            seen.extend(signal.getsignal(number) for number in SIGNALS)

    seen = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == former


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_before_and_between_runs_a_signal_leaves_with_the_code_for_again(number):
    program = """
        import os, sys, time
        sys.path.insert(0, "src")
        from fedsaf.federation.interrupt import StopRequest, leave_on_request
        leave_on_request()
        with StopRequest(insist=True):
            pass
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(30)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(int(number))]
    assert subprocess.run(command, timeout=60).returncode == EXIT_AGAIN
