"""The gate before the setup: every Python can read it, only 3.11 and later pass.

``make`` starts this file with whatever ``python3`` is. It keeps to syntax that an old
Python knows, so that an old Python gives a sentence instead of a SyntaxError; the
setup itself is in ``environment``.
"""

import os
import subprocess
import sys

WANTED = (3, 11)
NAMES = ["python3.13", "python3.12", "python3.11", "python3.14", "python3"]


def newer_python():
    """Return the first name on PATH that starts a Python that will do, or None."""
    test = "import sys; sys.exit(sys.version_info[:2] < " + repr(WANTED) + ")"
    with open(os.devnull, "w") as nowhere:
        for name in NAMES:
            try:
                if subprocess.call([name, "-c", test], stdout=nowhere, stderr=nowhere):
                    continue
            except OSError:
                continue
            return name
    return None


def main():
    """Refuse an old Python in one line; hand a new one over to the setup."""
    if sys.version_info[:2] < WANTED:
        goals = " ".join(sys.argv[1:]) or "setup"
        this = os.path.basename(sys.executable)
        version = ".".join(str(number) for number in sys.version_info[:3])
        better = newer_python()
        advice = "run make PYTHON=" + (better or "python3.11") + " " + goals
        if not better:
            advice = "install one, then " + advice
        line = "setup: Python 3.11 or later is wanted, " + this + " is " + version
        sys.stderr.write(line + ": " + advice + "\n")
        return 1
    here = os.path.dirname(os.path.abspath(__file__))
    # Started as a script, this folder is on the path, and any module in it would
    # stand before the standard library's of the same name.
    src = os.path.dirname(os.path.dirname(here))
    sys.path[:] = [src] + [path for path in sys.path if path != here]
    from bookbinder.installation.environment import main as set_up

    return set_up()


if __name__ == "__main__":
    sys.exit(main())
