"""What pip 26 and npm 11 print, and the line that comes of it."""

import pytest

from bookbinder.installation.reasons import reason

RETRYING = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None,"
    " status=None)) after connection broken by '{}': /simple/torch/\n"
)
NOTHING_FOUND = """\
ERROR: Could not find a version that satisfies the requirement \
torch (from versions: none)
ERROR: No matching distribution found for torch
"""
REFUSED = (
    "NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=9): Failed to"
    ' establish a new connection: [Errno 111] Connection refused")'
)
NO_NAME = (
    "NameResolutionError(\"HTTPSConnection(host='index.example', port=443): Failed to"
    " resolve 'index.example' ([Errno -2] Name or service not known)\")"
)
CERTIFICATE = (
    'SSLError(SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]'
    ' certificate verify failed: self-signed certificate (_ssl.c:1006)"))'
)
OTHER_VERSIONS = """\
ERROR: Could not find a version that satisfies the requirement \
torch==9.9 (from versions: 2.12.0, 2.13.0)
ERROR: No matching distribution found for torch==9.9
"""
FULL = """\
Installing collected packages: torch
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
"""
TOO_NEW = """\
ERROR: Cannot install soupsieve because these package versions have conflicting \
dependencies.
The conflict is caused by:
    The user requested soupsieve
    The user requested (constraint) soupsieve==4.1.1

Additionally, some packages in these conflicts have no matching distributions \
available for your environment:
    soupsieve

ERROR: ResolutionImpossible: for help visit the manual
"""
READ_ONLY = "Error: [Errno 30] Read-only file system: '/book/.venv'\n"
DENIED = """\
ERROR: Could not install packages due to an OSError: [Errno 13] \
Permission denied: '/book'
Check the permissions.
"""
NPM_NO_NAME = """\
npm error code ENOTFOUND
npm error syscall getaddrinfo
npm error errno ENOTFOUND
npm error network request to https://index.example/katex \
failed, reason: getaddrinfo ENOTFOUND index.example
"""
NPM_REFUSED = """\
npm error FetchError: request to http://127.0.0.1:9/katex \
failed, reason: connect ECONNREFUSED 127.0.0.1:9
npm error   code: 'ECONNREFUSED',
npm error A complete log of this run can be found in: debug-0.log
"""
NPM_NO_PACKAGE = """\
npm error code E404
npm error 404 Not Found - GET https://index.example/katex-nope
npm error 404
npm error 404  The requested resource 'katex-nope@1.0.0' could not be found
"""
NPM_NO_VERSION = """\
npm error code ETARGET
npm error notarget No matching version found for katex@9.9.9.
npm error notarget In most cases you or one of your dependencies are requesting
"""
NPM_LOCK = """\
npm error code EUSAGE
npm error `npm ci` can only install packages when \
your package.json and package-lock.json are in sync.
"""
CONFLICT = """\
ERROR: Cannot install numpy==2.4.6 because these package \
versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit the manual
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (RETRYING.format(REFUSED) + NOTHING_FOUND, "no network"),
        (RETRYING.format(NO_NAME) + NOTHING_FOUND, "no network"),
        (RETRYING.format(CERTIFICATE) + NOTHING_FOUND, "the network's certificate"),
        (NPM_NO_NAME, "no network"),
        (NPM_REFUSED, "no network"),
        (NOTHING_FOUND, "package torch is not found"),
        (OTHER_VERSIONS, "no fitting version of torch==9.9 for this Python"),
        # One lost packet on the way is not why the version is not there.
        (RETRYING.format(REFUSED) + OTHER_VERSIONS, "no fitting version of torch==9.9"),
        (TOO_NEW, "no fitting version of soupsieve for this Python"),
        (NPM_NO_PACKAGE, "package katex-nope is not found"),
        (NPM_NO_VERSION, "there is no katex@9.9.9"),
        (NPM_LOCK, "package.json and package-lock.json do not fit together"),
        (FULL, "the disk is full"),
        (FULL + NOTHING_FOUND, "the disk is full"),
        ("npm error code ENOSPC\n", "the disk is full"),
        (READ_ONLY, "the folder is read-only"),
        (DENIED, "a file may not be written"),
        (CONFLICT, "pyproject.toml and constraints.txt contradict each other"),
        ("npm error code E503\n", "the package index refuses with E503"),
        (
            "ERROR: HTTP error 403 while getting it\n",
            "the package index refuses with 403",
        ),
        ("one\nERROR: two\nthree\n", "two"),
        ("npm error code EOTHER\nnpm error four\n", "four"),
        ("five\n six \n\n", "six"),
        ("", "it said nothing"),
    ],
)
def test_the_line_names_the_cause(output: str, line: str) -> None:
    found = reason(output)
    assert found.startswith(line)
    assert "\n" not in found
