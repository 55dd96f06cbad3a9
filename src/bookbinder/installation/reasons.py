"""Say in one line why pip or npm failed, from what they printed."""

import re

__all__ = ["reason"]

# The first that matches is the reason, so what causes another comes before it: a
# package "is not found" as well when the network is down or the disk is full.
_REASONS = [
    (
        r"No space left on device|ENOSPC|Disk quota exceeded|EDQUOT",
        "the disk is full: make room, then run the same command again",
    ),
    (
        r"Read-only file system|EROFS",
        "the folder is read-only: use a copy of the repository that can be written to",
    ),
    (
        r"Permission denied|EACCES|EPERM",
        "a file may not be written: the repository and the caches of pip and npm must"
        " belong to the user who runs make",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SELF_SIGNED_CERT|UNABLE_TO_(?:GET|VERIFY)_\w+",
        "the network's certificate is not trusted: give pip (PIP_CERT) and npm"
        " (NODE_EXTRA_CA_CERTS) the certificate of your proxy",
    ),
    (
        r"the requirement (?P<name>\S+)(?: \([^()]*\))? \(from versions: (?!none\))",
        "no fitting version of {name} for this Python and this machine",
    ),
    (
        r"no matching distributions available for your environment:\s+(?P<name>\S+)",
        "no fitting version of {name} for this Python and this machine",
    ),
    (r"No matching version found for (?P<name>\S+?)\.?$", "there is no {name}"),
    (
        r"npm error 404 +Not Found - GET \S*/(?P<name>\S+)",
        "package {name} is not found",
    ),
    (
        r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeoutError"
        r"|ProxyError|SSLError|Max retries exceeded|Connection(?:Reset|Refused)Error"
        r"|Failed to establish a new connection|name resolution|ProtocolError"
        r"|Network is unreachable|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET"
        r"|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|EIDLETIMEOUT",
        "no network: the package index does not answer; connect (or set HTTPS_PROXY),"
        " then run the same command again",
    ),
    (
        r"HTTP error (?P<name>[45]\d\d)|(?P<npm>E(?:401|403|5\d\d))\b",
        "the package index refuses with {name}: try again later, or look at your own"
        " settings of pip and npm",
    ),
    (r"No matching distribution found for (?P<name>.+)", "package {name} is not found"),
    (
        r"ResolutionImpossible|conflicting dependencies",
        "pyproject.toml and constraints.txt contradict each other",
    ),
    (
        r"npm error code EUSAGE",
        "package.json and package-lock.json do not fit together",
    ),
]

_ERROR = r"(?i)(?:npm )?error:? "


def reason(output: str) -> str:
    """Return one line on why a command failed.

    Args:
        output: What pip, npm or Python printed.
    """
    for pattern, line in _REASONS:
        if found := re.search(pattern, output, re.MULTILINE):
            names = [name for name in found.groupdict().values() if name]
            return line.format(name=names[0].strip() if names else "")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(_ERROR, line)]
    return re.sub(_ERROR, "", (errors or lines or ["it said nothing"])[-1])
