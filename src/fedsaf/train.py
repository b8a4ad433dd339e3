"""The command ``fedsaf-train``, which is ``python src/train.py``: composes, checks, hands over."""

from __future__ import annotations

import os
import sys

# Threads that wait must sleep, not spin: on cores that something else uses, spinning made a round 20 times slower. Read
# when torch is loaded, and by spawned ranks.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hydra
from omegaconf import DictConfig

from fedsaf.cli import check_command_line, words_first
from fedsaf.core.config import CONF, ConfigError
from fedsaf.federation.interrupt import leave_on_request
from fedsaf.run import run
from fedsaf.tracking.location import load_environment


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def job(config: DictConfig) -> dict[str, str]:
    """Run one job; Hydra calls this once per cell of a sweep."""
    return run(config)


def main() -> None:
    """Answer mistakes in the command line, then let Hydra run what it asks for."""
    leave_on_request()
    sys.argv[1:] = words_first(sys.argv[1:])
    load_environment()
    try:
        check_command_line(sys.argv[1:], CONF, "train")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    job()


if __name__ == "__main__":
    main()
