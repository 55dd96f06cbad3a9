"""Verify the modules of the corpus that have a checkout, and print what is wrong."""

import argparse
import warnings
from difflib import unified_diff
from pathlib import Path

import torch

from benchmarks.corpus.asking import modules
from benchmarks.corpus.modules import source
from benchmarks.corpus.verifying import problems
from benchmarks.run import SETS

command = argparse.ArgumentParser("python -m benchmarks.corpus", description=__doc__)
command.add_argument("projects", type=Path, help="a folder with checkouts")
command.add_argument("--set", choices=(*SETS, "found"), help="one set; default all")
command.add_argument("--only", default="", help="only modules named so")
command.add_argument("--diff", action="store_true", help="print each bug instead")
options = command.parse_args()
torch.set_num_threads(1)
warnings.simplefilter("ignore")
for name in [options.set] if options.set else (*SETS, "found"):
    there = modules(name, options.projects, options.only)
    wrong = 0
    for module in there:
        if not options.diff:
            for problem in problems(module, options.projects):
                wrong += 1
                print(problem, flush=True)
            continue
        for bug in module.bugs:
            before, after = (
                source(module, options.projects, bug.file, each).splitlines()
                for each in (None, bug)
            )
            print(f"{module.name}: {bug.bug}")
            print(*unified_diff(before, after, n=0, lineterm=""), sep="\n")
    bugs = sum(len(module.bugs) for module in there)
    print(f"{name}: {len(there)} modules, {bugs} bugs, {wrong} problems")
