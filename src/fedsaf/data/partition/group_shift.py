"""Shift by groups that the data bring along: one domain, or one user, per client.

Both rules give every client the samples of a single group in pooled order, or a random share of them. Dimension
letters: n samples, N clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaf.data.partition.partitioner import Assignment, Partitioner, Rng, check_clients, check_count


@dataclass(frozen=True, kw_only=True)
class ByDomain(Partitioner):
    """Feature shift: every domain on one client, or shared out at random over k clients of its own.

    Clients stand in the order of the domains, those of one domain side by side. With k = 1 nothing is drawn.

    Attributes:
        clients_per_domain: k; num_clients must be k times the number of domains.
    """

    clients_per_domain: int

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Cut every domain into k shares of equal size, up to one sample."""
        k = self.clients_per_domain
        check_count("clients_per_domain", k, 1)
        domains, members = _members(groups, "by_domain", "domains")
        if len(domains) < 2:
            raise ValueError(
                f"partition=by_domain needs two domains or more, but all {len(labels)} samples are of one; "
                "partition=iid shares them out over clients without a shift"
            )
        if num_clients != len(domains) * k:
            whole, rest = divmod(num_clients, len(domains))
            raise ValueError(
                f"num_clients={num_clients}, but {len(domains)} domains x partition.clients_per_domain={k} make "
                f"{len(domains) * k} clients; set num_clients={len(domains) * k}"
                + ("" if rest or whole < 1 else f", or partition.clients_per_domain={whole}")
            )
        indices = []
        for domain, own in zip(domains, members, strict=True):
            if len(own) < k:
                raise ValueError(
                    f"domain {domain} has {len(own)} samples for partition.clients_per_domain={k} clients; "
                    f"the most that every domain can serve is {min(map(len, members))}"
                )
            indices += [own] if k == 1 else np.array_split(own[rng.permutation(len(own))], k)
        return Assignment(indices, groups=[int(domain) for domain in domains for _ in range(k)])


@dataclass(frozen=True, kw_only=True)
class ByUser(Partitioner):
    """Real-world shift: every client is one user, such as a speaking role.

    Users are shuffled, and the first N with enough samples become clients, in ascending order of their size (ties by
    user id). So the users for N clients are among those for N + 1.

    Attributes:
        min_samples: users with fewer samples are left out.
        max_samples_per_client: the first m samples of a user are taken; None takes all.
    """

    min_samples: int
    max_samples_per_client: int | None

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Draw one permutation of all users that have a sample."""
        check_count("min_samples", self.min_samples, 1)
        check_clients(num_clients, len(labels), 1)
        users, members = _members(groups, "by_user", "users")
        sizes = np.array([len(own) for own in members])
        most = self.max_samples_per_client
        if most is not None:
            check_count("max_samples_per_client", most, 1)
            if most < self.min_samples:
                raise ValueError(
                    f"partition.max_samples_per_client={most} is below partition.min_samples={self.min_samples}; "
                    "raise the first or lower the second"
                )
        most = most or int(sizes.max())
        shuffled = rng.permutation(len(users))
        eligible = shuffled[sizes[shuffled] >= self.min_samples]
        if len(eligible) < num_clients:
            raise ValueError(_too_few_users(num_clients, len(eligible), self.min_samples, sizes))
        chosen = np.sort(eligible[:num_clients])
        chosen = chosen[np.argsort(np.minimum(sizes[chosen], most), kind="stable")]
        return Assignment(
            [members[user][:most] for user in chosen],
            groups=[int(users[user]) for user in chosen],
            left_out={
                f"users with fewer than {self.min_samples} samples": len(users) - len(eligible),
                "users not drawn": len(eligible) - num_clients,
                f"samples beyond the first {most} of a user": int(np.clip(sizes[chosen] - most, 0, None).sum()),
            },
        )


def _members(groups: np.ndarray | None, choice: str, kind: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the ids of the groups that have a sample, ascending, and the positions of each in pooled order."""
    if groups is None:
        raise ValueError(
            f"partition={choice} needs a data set with {kind}; name their column by dataset.group_column, or take "
            "another one, such as partition=dirichlet"
        )
    present, counts = np.unique(groups, return_counts=True)
    return present, np.split(np.argsort(groups, kind="stable"), np.cumsum(counts)[:-1])


def _too_few_users(num_clients: int, eligible: int, min_samples: int, sizes: np.ndarray) -> str:
    ways = [f"num_clients to {eligible}"] if eligible else []
    if len(sizes) >= num_clients:
        ways.append(f"partition.min_samples to {np.sort(sizes)[-num_clients]}")
    elif not eligible:
        ways.append(f"partition.min_samples to {sizes.max()} and num_clients to {(sizes == sizes.max()).sum()}")
    return (
        f"num_clients={num_clients}, but only {eligible} of {len(sizes)} users have "
        f"partition.min_samples={min_samples} samples or more; lower {' or '.join(ways)}"
    )
