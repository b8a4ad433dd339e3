"""What a round leaves behind: a record, a checkpoint, a mirrored row, a step of the progress bar; and how to go on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fedsaf.core.types import RoundRecord
from fedsaf.federation.checkpoint import Checkpoint
from fedsaf.federation.final_messages import save_uploads
from fedsaf.federation.memory import largest, take_peaks
from fedsaf.federation.pool import ClientPool
from fedsaf.federation.ranks import Ranks
from fedsaf.federation.records import RecordBuilder, RoundFacts
from fedsaf.federation.server import Server


class RoundLogger:
    """Closes rounds, in an order that survives a kill at any point: record, checkpoint, mirror.

    Records past the last checkpoint are cut on resume and written again, the same; the mirror gets a row only once its
    round is in a checkpoint.

    Args:
        checkpoint: where checkpoints go.
        identity: values a checkpoint must carry to be resumed.
        builder: turns facts into records.
        rounds: T.
        cohort_size: clients per round, for the progress display.
        outputs: makes recorder, mirror and display; None on ranks other than zero.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: Mapping[str, Any],
        builder: RecordBuilder,
        rounds: int,
        cohort_size: int,
        outputs: Any,
    ) -> None:
        self.checkpoint, self.identity, self.builder = checkpoint, dict(identity), builder
        self.rounds, self.cohort_size, self.outputs = rounds, cohort_size, outputs
        self.recorder = self.tracker = self.progress = None
        self._entries: dict[str, dict[str, Any]] = {}
        self._changed: set[int] = set()
        self._unmirrored: list[RoundRecord] = []
        self._saved: int | None = None
        self._round_began = time.perf_counter()

    def restore(self, pool: ClientPool, server: Server, ranks: Ranks) -> int | None:
        """Put everything back as the last checkpoint holds it; return its round, None if there is none."""
        restored = self.checkpoint.load(self.identity) if ranks.is_zero else None
        manifest = ranks.share(restored.manifest if restored else None)
        if manifest is not None:
            self._entries = dict(manifest["clients"])
            self._saved = int(manifest["round"])
            for client in ranks.own(sorted(int(key) for key in self._entries)):
                pool.restore(client, self.checkpoint.read(self._entries[str(client)]))
        if ranks.is_zero:
            if restored is not None:
                server.load_state_dict(restored.server)
            self._open_outputs(manifest)
        self._round_began = time.perf_counter()
        return self._saved

    def _open_outputs(self, manifest: Mapping[str, Any] | None) -> None:
        self.recorder = self.outputs.recorder()
        self.recorder.truncate(-1 if self._saved is None else self._saved)
        self.tracker = self.outputs.tracker(manifest["tracker"]["run_id"] if manifest else None)
        self.progress = self.outputs.progress()
        self.progress.start(self.rounds, (self._saved or 0) + 1, self.cohort_size, self.recorder.rows())

    def close(self, finished: bool) -> None:
        """Close mirror and display, whatever happened."""
        if self.progress is not None:
            self.progress.stop()
        if self.tracker is not None:
            self.tracker.finish(0 if finished else 1)

    def changed(self, clients: list[int]) -> None:
        """Note that these clients of this rank have a state that no checkpoint holds yet."""
        self._changed.update(clients)

    def advance(self, client: int) -> None:
        """Note that one client of this rank has finished its turn."""
        if self.progress is not None:
            self.progress.advance(client)

    def close_round(self, facts: RoundFacts, server: Server, pool: ClientPool, ranks: Ranks) -> None:
        """Record the round, after the last one its class rows too, and save it if a checkpoint is due."""
        facts.peaks = largest(ranks.gather(take_peaks()))
        if ranks.is_zero:
            now = time.perf_counter()
            record = self.builder.build(facts, server, now - self._round_began)
            self.recorder.append(record)
            self._unmirrored.append(record)
            self.progress.round(record)
            if facts.round == self.rounds:  # before the checkpoint, after which the uploads are gone
                save_uploads(self.outputs.folder, facts.results, server)
            self._round_began = now
        if ranks.share(self.checkpoint.due() or facts.round == self.rounds):
            self.save_now(facts.round, server, pool, ranks)

    def save_now(self, round: int, server: Server, pool: ClientPool, ranks: Ranks) -> None:
        """Write a checkpoint of the state after ``round``, unless it is there already."""
        if self._saved == round:
            return
        began = time.monotonic()
        written = {
            str(client): self.checkpoint.write_client(client, round, pool.store[client])
            for client in sorted(self._changed)
        }
        self._changed.clear()
        for part in ranks.gather(written):
            self._entries.update(part)
        if ranks.is_zero:
            values = {"clients": self._entries, "tracker": self.tracker.state(), **self.identity}
            self.checkpoint.commit(round, server.state_dict(), values, began)
            for record in self._unmirrored:
                self.tracker.log(record)
            self._unmirrored = []
        ranks.share(None)
        self._saved = round
