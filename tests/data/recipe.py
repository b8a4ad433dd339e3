"""One small federated data set, for this process and for fresh ones."""

from fedsaf.data.federated import FederatedData, federate
from fedsaf.data.partition.label_shift import Dirichlet
from fedsaf.data.sources.embedded import Synthetic


def make(num_clients=20, alpha=0.05, split="stratified", generator="numpy", seed=1, validation=None) -> FederatedData:
    source = Synthetic(
        image_size=4,
        mode="auto",
        max_samples=None,
        max_per_class=None,
        frozen_crop=False,
        memory_limit_gib=4,
        mean=0.5,
        std=0.5,
        num_samples=500,
        num_classes=10,
        channels=1,
        noise=5.0,
        group_names=None,
    )
    rule = Dirichlet(alpha=alpha, min_samples=40, max_tries=50, repair=True, seed=seed, generator=generator)
    return federate(source.load(1), rule, num_clients, split, 0.75, validation)
