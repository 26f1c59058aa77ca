"""Python without rights: what may not be written, and devices, which root with broken code would replace for good."""

import subprocess
import sys

DROP_RIGHTS = """
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""


def run_as_nobody(imports: str, program: str, *arguments: str) -> list[str]:
    """The lines that `program` prints; `imports` is run before, as long as every file may be read."""
    code = f"import os, sys\n{imports}\n{DROP_RIGHTS}\n{program}"
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
