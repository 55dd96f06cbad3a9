"""A process that hangs, dies or fails does no harm, and is told from one that ends."""

import os
import time

from bookbinder.running.forking import each_in_a_fork


def forever() -> None:
    while True:
        pass


def test_what_becomes_of_work():
    work = [
        ("right", lambda: "x" * 200_000, 5.0),
        ("wrong", lambda: 1 / 0, 5.0),
        ("gone", lambda: os._exit(3), 5.0),
        ("busy", forever, 0.2),
        ("asleep", lambda: time.sleep(60), 0.1),
    ]
    found = {key: (each.value, each.died) for key, each in each_in_a_fork(work, 3)}
    assert found == {
        "right": ("x" * 200_000, ""),
        "wrong": (None, "the process ended with 1"),
        "gone": (None, "the process ended with 3"),
        "busy": (None, "time"),
        "asleep": (None, "time"),
    }


def test_nothing_that_is_done_there_is_seen_here():
    seen: list[int] = []
    work = [(n, lambda n=n: seen.append(n) or len(seen), 5.0) for n in range(4)]
    assert [each.value for _, each in each_in_a_fork(work, 2)] == [1, 1, 1, 1]
    assert seen == []


def test_who_stops_listening_leaves_no_process_behind():
    running = each_in_a_fork([("a", forever, 60.0), ("b", lambda: 1, 5.0)], 2)
    assert next(running)[0] == "b"
    running.close()
    try:
        left = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        left = None
    assert left in (None, (0, 0)), "other tests may have children, this one has not"
