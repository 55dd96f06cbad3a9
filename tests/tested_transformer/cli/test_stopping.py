import signal
import threading

import pytest

from tested_transformer.cli.stopping import StopRequest


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_asks_to_stop(number, status, capfd):
    before = signal.getsignal(number)
    with StopRequest(repeats=False) as stop:
        assert (stop(), stop.status) == (False, 0)
        signal.raise_signal(number)
        assert (stop(), stop.status) == (True, status)
        # Under torchrun, a second signal changes nothing.
        signal.raise_signal(signal.SIGINT)
        assert stop.status == status
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err.count("finishing the step") == 1


def test_the_second_signal_leaves_at_once():
    # A shell that starts a job in the background lets it ignore SIGINT.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert signal.getsignal(signal.SIGTERM) is before
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, inherited)


def test_outside_the_main_thread_it_only_never_stops():
    seen: list[bool] = []

    def use():
        with StopRequest() as stop:
            seen.append(stop())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [False]
