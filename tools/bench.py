"""Measure attnviz against its budgets: python tools/bench.py [--rounds 15] [--only WORD] [--smollm2 FOLDER]"""

import os
import runpy
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line sets it, before NumPy is imported
sys.path.insert(0, str(Path(__file__).parent.parent))  # a script finds only its own folder
runpy.run_module("tools.benchmarks", run_name="__main__", alter_sys=True)
