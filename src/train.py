"""Entry: ``python src/train.py alignment=rcsa partition=dirichlet_0.5 -m``. Composes, checks, hands over."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Threads that wait must sleep, not spin: on cores that something else uses, spinning made a round 20 times slower. Read
# when torch is loaded, and by spawned ranks.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import hydra
from omegaconf import DictConfig

from fedsaf.cli import check_command_line, words_first
from fedsaf.core.config import ConfigError
from fedsaf.federation.interrupt import leave_on_request
from fedsaf.run import run
from fedsaf.tracking.location import load_environment

CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def main(config: DictConfig) -> dict[str, str]:
    """Run one job; Hydra calls this once per cell of a sweep."""
    return run(config)


if __name__ == "__main__":
    leave_on_request()
    sys.argv[1:] = words_first(sys.argv[1:])
    load_environment(CONF.parent / ".env")
    try:
        check_command_line(sys.argv[1:], CONF, "train")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    main()
