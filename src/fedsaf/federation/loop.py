"""The federated loop: the order of events in a round, and nothing about the method that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedsaf.core.types import ClientResult, Message
from fedsaf.federation.dataloader import ClientDataLoader
from fedsaf.federation.interrupt import Interrupted
from fedsaf.federation.local_training import LocalTraining
from fedsaf.federation.pool import ClientPool
from fedsaf.federation.ranks import ClientError, Failure, Ranks
from fedsaf.federation.records import RoundFacts
from fedsaf.federation.round_logger import RoundLogger
from fedsaf.federation.sampling import cohort
from fedsaf.federation.server import Server


@dataclass(frozen=True)
class LoopSettings:
    """Counts and policies of the loop.

    Attributes:
        seed: run seed.
        rounds: T.
        num_clients: N.
        participation_ratio: share of clients per round, in (0, 1].
        eval_every: evaluate after every k-th round; the last round always is.
        on_client_error: ``stop``, or ``skip``: go on without the client in that round, counted and recorded. A round in
            which every client fails stops the run all the same.
    """

    seed: int
    rounds: int
    num_clients: int
    participation_ratio: float
    eval_every: int
    on_client_error: str

    @property
    def cohort_size(self) -> int:
        """Clients per round."""
        return len(self.cohort(0))

    def cohort(self, t: int) -> list[int]:
        """Return the clients of round t."""
        return cohort(self.seed, t, self.num_clients, self.participation_ratio)


class FederatedLoop:
    """Runs the rounds on every rank; rank zero holds the server and the records.

    Round t: the server broadcasts, the cohort trains, the server updates its aggregators (here prototypes are made),
    every client is evaluated, the round is recorded, a checkpoint closes it.

    Args:
        settings: counts and policies.
        ranks: who owns which client.
        pool: client states and workbenches of this rank.
        loaders: client id to its data.
        work: what a client does in its turn.
        server: the aggregators; on ranks other than zero it is there but never asked.
        round_logger: records, mirror, progress and checkpoints.
    """

    def __init__(
        self,
        settings: LoopSettings,
        ranks: Ranks,
        pool: ClientPool,
        loaders: Mapping[int, ClientDataLoader],
        work: LocalTraining,
        server: Server,
        round_logger: RoundLogger,
    ) -> None:
        self.settings, self.ranks, self.pool, self.loaders = settings, ranks, pool, loaders
        self.work, self.server, self.round_logger = work, server, round_logger
        self.everyone = list(range(settings.num_clients))

    def run(self) -> None:
        """Run from the last checkpoint, or from the start, to round T; see `steps`."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[int]:
        """Run, and yield the number of each round that is closed: 0 for the evaluation before training.

        Raises:
            Interrupted: on request, with everything up to the last complete round saved.
            ClientError: if a client failed and failures are not skipped.
        """
        last = self.round_logger.restore(self.pool, self.server, self.ranks)
        broadcast = self._broadcast()
        if last is None:
            facts, broadcast = self._introduce(broadcast)
            self._close(facts, broadcast)
            last = 0
            yield last
        for t in range(last, self.settings.rounds):
            try:
                broadcast = self._round(t, broadcast)
            except Interrupted:
                self.pool.abandon()
                self.round_logger.save_now(t, self.server, self.pool, self.ranks)
                raise
            yield t + 1
            if self.ranks.any(self.work.stop()) and t + 1 < self.settings.rounds:
                self.round_logger.save_now(t + 1, self.server, self.pool, self.ranks)
                raise Interrupted

    def _introduce(self, broadcast: dict[str, Message | None]) -> tuple[RoundFacts, dict[str, Message | None]]:
        """Let everyone upload over the channels that ask for it before round 0; return its facts and what follows."""
        facts = RoundFacts(round=0, cohort=[], download=broadcast)
        channels = self.server.asks_first
        if not channels:
            return facts, broadcast

        def turn(client: int) -> ClientResult:
            module = self.pool.borrow(client, for_training=False)
            return self.work.introduce(client, module, self.loaders[client], broadcast, channels)

        results, failures = self.ranks.map(turn, self.everyone)
        self._judge(failures, self.everyone, -1)
        facts.results, facts.failures = list(results.values()), failures
        facts.server = self.server.update(facts.results, -1, channels) if self.ranks.is_zero else {}
        return facts, self._broadcast()

    def _judge(self, failures: list[Failure], asked: list[int], t: int) -> None:
        """Raise on all ranks together if a failure counts: any, or where failures are skipped, everyone's."""
        if failures and (self.settings.on_client_error == "stop" or len(failures) == len(asked)):
            raise ClientError(_describe(failures, t))

    def _round(self, t: int, broadcast: dict[str, Message | None]) -> dict[str, Message | None]:
        """Run training round t and everything that closes it; return the broadcast of the next round."""
        chosen = self.settings.cohort(t)
        results, failures = self._train(t, chosen, broadcast)
        began = time.perf_counter()
        report = self.server.update(list(results.values()), t) if self.ranks.is_zero else {}
        changed = self.pool.commit(except_for=[failure.client for failure in failures])
        self.round_logger.changed(changed)
        download, broadcast = broadcast, self._broadcast()
        facts = RoundFacts(
            round=t + 1,
            cohort=chosen,
            download=download,
            results=list(results.values()),
            failures=failures,
            server=report,
            server_seconds=time.perf_counter() - began,
        )
        self._close(facts, broadcast)
        return broadcast

    def _train(
        self, t: int, chosen: list[int], broadcast: Mapping[str, Message | None]
    ) -> tuple[dict[int, ClientResult], list[Failure]]:
        """Let the cohort train; raise together on all ranks if one was interrupted or a failure counts."""
        interrupted = False

        def turn(client: int) -> ClientResult | None:
            nonlocal interrupted
            if interrupted:
                return None
            module = self.pool.borrow(client, for_training=True)
            try:
                result = self.work.train(client, module, self.loaders[client], broadcast, t)
            except Interrupted:
                interrupted = True
                return None
            self.pool.keep(client, module)
            self.round_logger.advance(client)
            return result

        results, failures = self.ranks.map(turn, chosen)
        if self.ranks.any(interrupted):
            raise Interrupted
        self._judge(failures, chosen, t)
        return results, failures

    def _close(self, facts: RoundFacts, broadcast: Mapping[str, Message | None]) -> None:
        """Evaluate if it is due, then record and save the round."""
        due = facts.round % self.settings.eval_every == 0 or facts.round == self.settings.rounds
        began = time.perf_counter()
        if due:

            def score(client: int) -> dict[str, int]:
                module = self.pool.borrow(client, for_training=False)
                return self.work.evaluate(module, self.loaders[client], broadcast)

            facts.hits, failures = self.ranks.map(score, self.everyone)
            if failures:
                raise ClientError(_describe(failures, facts.round - 1))
        facts.evaluation_seconds = time.perf_counter() - began
        facts.broadcast = broadcast
        self.round_logger.close_round(facts, self.server, self.pool, self.ranks)

    def _broadcast(self) -> dict[str, Message | None]:
        return self.ranks.share(self.server.broadcast() if self.ranks.is_zero else None)


def _describe(failures: list[Failure], t: int) -> str:
    first = failures[0]
    more = f" (and {len(failures) - 1} more clients)" if len(failures) > 1 else ""
    where = "" if f"client {first.client}" in first.message else f"client {first.client}, round {t + 1}: "
    return f"{where}{first.message}{more}\n{first.trace}"
