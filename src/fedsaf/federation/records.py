"""From the facts of one round to its record: plain numbers, bounded names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsaf.core.types import ClientResult, Message, RoundRecord
from fedsaf.evaluation.metrics import summarise_accuracies
from fedsaf.federation.ranks import Failure
from fedsaf.federation.server import Server


@dataclass
class RoundFacts:
    """What happened in one round, as the loop saw it on rank zero.

    Attributes:
        round: 0 before training, t + 1 after training round t.
        cohort: ids of the clients that were asked to train.
        download: what they received.
        results: what they brought home.
        failures: clients that raised and were skipped.
        server: what the aggregators report.
        broadcast: what the server sends from now on; evaluation used it.
        hits: correct answers by client and prediction rule; empty if the round was not evaluated.
        server_seconds: wall time of the server's update.
        evaluation_seconds: wall time of the evaluation.
        peaks: most memory that any rank needed since the round before; see `memory`.
    """

    round: int
    cohort: list[int]
    download: Mapping[str, Message | None]
    results: list[ClientResult] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    server: dict[str, float] = field(default_factory=dict)
    broadcast: Mapping[str, Message | None] = field(default_factory=dict)
    hits: dict[int, dict[str, int]] = field(default_factory=dict)
    server_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    peaks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientFacts:
    """What never changes about a client: its architecture and the sizes of its parts."""

    architecture: str
    num_train: int
    num_test: int


@dataclass(frozen=True)
class RecordBuilder:
    """Builds round records.

    Attributes:
        clients: facts of every client, by id.
        rules: names of the prediction rules.
        diagnostics: analyses of what travels, by channel; each maps (uploads, broadcast) to numbers.
        diagnostics_every: every k-th round and the last; 0 for never.
        rounds: T.
    """

    clients: Mapping[int, ClientFacts]
    rules: Sequence[str]
    diagnostics: Mapping[str, Callable[..., dict[str, Any]]]
    diagnostics_every: int
    rounds: int

    def build(self, facts: RoundFacts, server: Server, round_seconds: float) -> RoundRecord:
        """Return the record of one round."""
        diagnostics, per_client = self._diagnose(facts, server)
        observers = len(self.clients) - len(facts.cohort)
        metrics: dict[str, Any] = {
            "round": facts.round,
            "cohort": facts.cohort,
            **{rule: self._accuracy(facts, rule) for rule in self.rules},
            "loss": _mean_over_clients(facts.results),
            "active": _sum_over_clients(facts.results),
            "num_batches": sum(result.num_batches for result in facts.results),
            "upload_bytes": server.upload_bytes(facts.results),
            "download_bytes": server.download_bytes(facts.download, len(facts.cohort)),
            "observer_bytes": server.download_bytes(facts.download, observers)["total"] if facts.cohort else 0,
            "num_prototypes": sum(_num_rows(message) for message in facts.broadcast.values()),
            "server": facts.server,
            "diagnostics": diagnostics,
            "failed_clients": [failure.client for failure in facts.failures],
        }
        timing = {
            "round": facts.round,
            "client": sum(result.seconds["client"] for result in facts.results),
            "data": sum(result.seconds["data"] for result in facts.results),
            "server": facts.server_seconds,
            "evaluation": facts.evaluation_seconds,
            "total": round_seconds,
            **facts.peaks,
        }
        return RoundRecord(facts.round, metrics, self._client_rows(facts, per_client), timing)

    def _accuracy(self, facts: RoundFacts, rule: str) -> dict[str, float | None] | None:
        if not facts.hits:
            return None
        ids = sorted(facts.hits)
        return summarise_accuracies([facts.hits[i][rule] for i in ids], [self.clients[i].num_test for i in ids])

    def _diagnose(self, facts: RoundFacts, server: Server) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
        """Return numbers about all clients together, and by client."""
        together: dict[str, Any] = {}
        by_client: dict[int, dict[str, Any]] = {}
        last = facts.round == self.rounds
        if not facts.results or not self.diagnostics_every or (facts.round % self.diagnostics_every and not last):
            return together, by_client
        for channel, diagnose in self.diagnostics.items():
            numbers = dict(diagnose(server.uploads(facts.results, channel), facts.broadcast.get(channel)))
            for client, values in numbers.pop("per_client").items():
                by_client.setdefault(client, {}).update(values)
            together |= numbers
        return together, by_client

    def _client_rows(self, facts: RoundFacts, diagnostics: Mapping[int, dict[str, Any]]) -> list[dict[str, Any]]:
        results = {result.client: result for result in facts.results}
        failed = {failure.client: failure.message for failure in facts.failures}
        rows = []
        for client, known in sorted(self.clients.items()):
            hits, result = facts.hits.get(client), results.get(client)
            row = {
                "round": facts.round,
                "client": client,
                "architecture": known.architecture,
                "num_train": known.num_train,
                "num_test": known.num_test,
                "took_part": result is not None,
                "num_batches": result.num_batches if result else 0,
                "error": failed.get(client),
            }
            for rule in self.rules:
                row[rule] = hits[rule] / known.num_test if hits and known.num_test else None
            row |= {f"loss/{name}": value for name, value in (result.losses if result else {}).items()}
            row |= {f"active/{name}": value for name, value in (result.active if result else {}).items()}
            row |= {f"diagnostics/{name}": value for name, value in diagnostics.get(client, {}).items()}
            rows.append(row)
        return rows


def _mean_over_clients(results: Sequence[ClientResult]) -> dict[str, float]:
    """Mean of every term over the clients that computed it, weighted by their steps."""
    sums: dict[str, float] = {}
    steps: dict[str, int] = {}
    for result in results:
        for name, value in result.losses.items():
            sums[name] = sums.get(name, 0.0) + value * result.num_batches
            steps[name] = steps.get(name, 0) + result.num_batches
    return {name: sums[name] / steps[name] for name in sorted(sums)}


def _sum_over_clients(results: Sequence[ClientResult]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for result in results:
        for name, count in result.active.items():
            sums[name] = sums.get(name, 0) + count
    return dict(sorted(sums.items()))


def _num_rows(message: Message | None) -> int:
    """Rows of a message about classes; 0 for any other."""
    return 0 if message is None or "labels" not in message else len(message["labels"])
