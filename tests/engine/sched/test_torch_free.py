"""The pure core decides without torch: scheduler, KV and facade import in a process that never loads it."""

import subprocess
import sys


def test_the_core_does_not_import_torch() -> None:
    code = (
        "import sys, branchwise.engine, branchwise.engine.engine, branchwise.engine.sched.scheduler\n"
        "branchwise.engine.Engine, branchwise.engine.StopRule\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
