"""Names of `soundness` under their former place."""

from fedsaf.reproduction.soundness import UnusableRun, read_lines, read_object

__all__ = ["UnusableRun", "read_lines", "read_object"]
