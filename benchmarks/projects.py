"""The checks on attention from public projects: what is measured, told and kept."""

from benchmarks.public import measure_found, measure_public, shortened
from benchmarks.public.telling import told, told_found
from benchmarks.run import SETS, Results, Run

__all__ = ["found", "public"]


def public(run: Run) -> Results:
    """Measure the sets, and print their tables; the record keeps less than a file."""
    sets = [run.set] if run.set else [*SETS]
    results = measure_public(run.projects, sets, only=run.only, parts=run.parts)
    print("\n".join(told(results, verbose=run.verbose)))
    return results if run.out else shortened(results)


def found(run: Run) -> Results:
    """Measure the modules that may be wrong, and print the answers."""
    results = measure_found(run.projects, only=run.only)
    print("\n".join(told_found(results, verbose=run.verbose)))
    return results
