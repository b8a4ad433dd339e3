"""The command ``fedsaf-partition``, which is ``python src/partition.py``: who holds what. Nothing is trained.

Takes the words of ``src/train.py``, prints the table of every distinct partition they describe, and saves it under
``<results_root>/partitions/``. A sweep over anything else, such as ``alignment=gcsa,rcsa``, shows one partition once.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, open_dict

from fedsaf.cli import cells, check_command_line, searching
from fedsaf.core.config import CONF, ConfigError, resolved
from fedsaf.tracking.location import load_environment


def configurations(words: Sequence[str], multirun: bool) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Compose every cell that has a partition of its own, on the search path that `fedsaf.cli.searching` has set.

    Args:
        words: overrides; with ``multirun`` they may be sweeps, and an experiment's own sweep counts.
        multirun: whether ``-m`` was given.

    Returns:
        Resolved configurations with the choice of each group, in the order of the sweep.

    Raises:
        ConfigError: a sweep without ``-m``, or one without cells.
    """
    distinct: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
    sweeps = [word for word in words if len(cells([word])) > 1]
    if sweeps and not multirun:
        raise ConfigError(f"{sweeps[0]} is a sweep; add -m")
    swept = _sweep_of(_compose(cells(words)[0])) if multirun else []
    given = {word.partition("=")[0] for word in words}
    for cell in cells([*(word for word in swept if word.partition("=")[0] not in given), *words]):
        composed = _compose(cell)
        choices = {name: str(choice) for name, choice in composed.hydra.runtime.choices.items()}
        with open_dict(composed):
            del composed["hydra"]
        config = resolved(composed)
        parts = [config["dataset"], config["partition"], config["num_clients"]]
        parts += [config["protocol"][key] for key in ("split", "train_fraction")] + [config.get("validation")]
        distinct.setdefault(json.dumps(parts, sort_keys=True), (config, choices))
    return list(distinct.values())


def _compose(words: Sequence[str]) -> DictConfig:
    return compose("train", overrides=list(words), return_hydra_config=True)


def _sweep_of(config: DictConfig) -> list[str]:
    """Return the words of the sweep that an experiment brings."""
    return [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]


def show(config: dict[str, Any], choices: dict[str, str]) -> Path:
    """Share out one data set, print who holds what, save it, and return the folder.

    Raises:
        ValueError: the rule cannot serve the clients from these data, or a part refuses its values.
        OSError: data that are not where they should be, or a folder that cannot be written.
    """
    from fedsaf.assembly import federated_data, show_partition
    from fedsaf.data.partition.report import partition_picture

    data = federated_data(config)
    show_partition(data)
    record = data.record
    name = f"{choices['dataset']}_{choices['partition']}_N{record.num_clients}_{record.hash[:12]}"
    folder = Path(config["results_root"]) / "partitions" / name
    folder.mkdir(parents=True, exist_ok=True)
    record.save(folder)
    partition_picture(record, folder / "partition.png")
    return folder


def main() -> int:
    """Show every partition; return 1 if one of several could not be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="overrides, as for src/train.py")
    parser.add_argument("-m", "--multirun", action="store_true", help="words may be sweeps")
    parser.add_argument("-cd", "--config-dir", help="a folder that is laid over conf")
    options = parser.parse_intermixed_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    load_environment()
    failed = False
    try:
        own = [] if options.config_dir is None else ["--config-dir", options.config_dir]
        check_command_line([*options.words, *["-m"] * options.multirun, *own], CONF, "train")
        with searching(CONF, options.config_dir):
            found = configurations(options.words, options.multirun)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    for config, choices in found:
        try:
            print(f"saved: {show(config, choices)}")
        except (ValueError, OSError) as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
