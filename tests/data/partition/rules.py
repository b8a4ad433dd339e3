"""Labels, groups and the configured rules that the tests of partitions share; also what a fresh process imports."""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from fedsaf.core.resolvers import register

register()
CONF = Path(__file__).parents[3] / "conf"
NAMES = sorted(f.stem for f in (CONF / "partition").glob("*.yaml"))

# 20 clients fit these data under every rule: 4 domains of 5 clients, 40 users of which two thirds are large enough.
LABELS = np.random.default_rng(0).permutation(np.arange(6000) % 10)
DOMAINS = np.sort(np.random.default_rng(1).permutation(np.repeat([0, 1, 3, 4], [2500, 1800, 1000, 700])))
USERS = np.random.default_rng(2).permutation(np.repeat(np.arange(0, 80, 2), np.tile([60, 150, 240], 14)[:40]))
CHANGES = {"by_domain": {"clients_per_domain": 5}, "by_user": {"min_samples": 100}}


@cache
def configured(name):
    """Instantiate a rule from its configuration."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return instantiate(compose("train", overrides=[f"partition={name}"]).partition)


def rule_of(name, **changes):
    """The configured rule with other values."""
    return replace(configured(name), **changes)


def inputs_of(name):
    """Labels and groups that suit the rule."""
    groups = USERS if name == "by_user" else DOMAINS
    return LABELS[: len(groups)], groups


def share_out(name, num_clients=20, **changes):
    """Assign the common data by a configured rule."""
    rule = rule_of(name, **CHANGES.get(name, {}), **changes)
    return rule(*inputs_of(name), num_clients, rule.rng())


def digest(indices):
    """Hash index lists, boundaries included."""
    parts = [np.append(len(own), own).astype("<i8").tobytes() for own in indices]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def labels_of(*sizes):
    """Sorted labels with these class sizes."""
    return np.repeat(np.arange(len(sizes)), sizes)


def shuffled(n, classes, seed=0):
    """Shuffled labels of nearly equal class sizes."""
    return np.random.default_rng(seed).permutation(np.arange(n) % classes)


def run(partitioner, labels, num_clients, groups=None):
    """Assign with a fresh generator."""
    return partitioner(labels, groups, num_clients, partitioner.rng())


def assert_disjoint_and_complete(indices, n):
    """Fail unless every sample has one client."""
    assert np.array_equal(np.sort(np.concatenate(indices)), np.arange(n))
